//! The Responses dialect.

mod history;
mod item;
pub(crate) mod record;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;
mod tools;

use crate::keeper::Standing;
use crate::seal::Seal;
use crate::stream::{Ending, Reason, Usage};
use crate::weight::weight;
use record::{Draft, Record};
use serde_json::{Map, Value, json};
use tools::ToolTable;

/// What every part of one answer carries.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Hexadecimal digits of the request.
    pub(crate) request: String,
    /// The model as the client named it.
    pub(crate) model: String,
    /// Seconds since the Unix epoch.
    pub(crate) created: u64,
    /// Length of the prompt in tokens.
    pub(crate) prompt: u32,
    pub(crate) echo: Echo,
}

/// What an answer takes from its request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    /// Fields of the response object that repeat the request.
    fields: Map<String, Value>,
    /// Seals reasoning, where the client asked for that.
    seal: Option<Seal>,
    /// What the record of the response is made of, where it shall be kept.
    keep: Option<Draft>,
    /// Why it is not kept though it should be.
    unkept: Option<String>,
    tools: ToolTable,
}

/// A response is kept if what is to be kept of its request takes at most so much memory as this
/// and so many times what its prompt shows. What no prompt shows costs no tokens, and a tenant
/// must not push out others' responses with it.
const HIDDEN_MAX: usize = 3 << 20;
const KEPT_TIMES: usize = 8;

/// Where an answer stands.
#[derive(Clone, Copy)]
enum Status<'a> {
    InProgress,
    Ended(&'a Ending),
    /// The error, and what had been used by then.
    Failed(&'a Value, &'a Usage),
}

impl Frame {
    fn id(&self) -> String {
        format!("resp_{}", self.request)
    }

    /// The response object.
    fn object(&self, status: Status<'_>, output: &[Value]) -> Value {
        let mut object = Map::new();
        object.insert("id".into(), self.id().into());
        object.insert("object".into(), "response".into());
        object.insert("created_at".into(), self.created.into());
        object.insert("model".into(), self.model.as_str().into());
        object.extend(self.echo.fields.clone());
        let so_far = Usage { prompt: self.prompt, ..Usage::default() };
        let (word, incomplete, error, counts, completed) = match status {
            Status::InProgress => ("in_progress", Value::Null, Value::Null, so_far, Value::Null),
            Status::Failed(error, usage) => {
                let used = Usage { prompt: self.prompt, ..*usage };
                ("failed", Value::Null, error.clone(), used, Value::Null)
            }
            Status::Ended(ending) => {
                let (word, incomplete) = match is_cut(ending) {
                    true => ("incomplete", json!({ "reason": "max_output_tokens" })),
                    false => ("completed", Value::Null),
                };
                let completed = self.created.saturating_add(ending.took.0 / 1_000_000_000);
                (word, incomplete, Value::Null, ending.usage, completed.into())
            }
        };
        object.insert("status".into(), word.into());
        object.insert("completed_at".into(), completed);
        object.insert("incomplete_details".into(), incomplete);
        object.insert("error".into(), error);
        object.insert("output".into(), output.into());
        object.insert("usage".into(), usage(&counts));
        Value::Object(object)
    }

    /// The response object of an answer that has ended, with what `nvext` tells and how it is kept.
    fn ended(
        &self,
        ending: &Ending,
        output: &[Value],
        nvext: Option<Value>,
        standing: &Standing,
    ) -> Value {
        let mut object = self.object(Status::Ended(ending), output);
        if let Some(nvext) = nvext {
            object["nvext"] = nvext;
        }
        mark(&mut object, standing);
        object
    }
}

impl Echo {
    /// The same, of which nothing is kept where the prompt shows far too little of it: what it shows
    /// takes `shown` bytes.
    fn bounded(mut self, shown: usize) -> Self {
        let fields = || self.fields.values().map(weight).sum::<usize>();
        let kept = self.keep.as_ref().map_or(0, |draft| draft.weight() + fields());
        let most = HIDDEN_MAX.saturating_add(shown.saturating_mul(KEPT_TIMES));
        if kept > most {
            self.unkept = Some(format!(
                "the request takes {kept} bytes of memory, and at most {most} are kept where the \
                 prompt shows so little of it"
            ));
            self.keep = None;
            self.fields.insert("store".into(), false.into());
        }
        self
    }

    /// How the response is kept, as far as its request tells.
    fn standing(&self) -> Standing {
        self.unkept.clone().map_or(Standing::Safe, Standing::Not)
    }

    /// The record of a response, where it shall be kept.
    fn record(&self, response: &Value) -> Option<Record> {
        let draft = self.keep.clone()?;
        let mut response = response.clone();
        // What was told of one request's way says nothing later.
        if let Some(fields) = response.as_object_mut() {
            fields.remove("nvext");
        }
        Some(draft.record(response))
    }
}

/// Says in a response object how it is kept, unless it is as it should be.
fn mark(response: &mut Value, standing: &Standing) {
    let stored = match standing {
        Standing::Safe => return,
        Standing::Degraded => json!({ "state": "degraded" }),
        Standing::Not(why) => {
            response["store"] = false.into();
            json!({ "state": "failed", "reason": why })
        }
    };
    response["nvext"]["stored"] = stored;
}

/// Whether an answer ended before the model had ended it.
fn is_cut(ending: &Ending) -> bool {
    matches!(ending.reason, Reason::Length | Reason::ContextFull)
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": { "cached_tokens": usage.cached(), "cache_write_tokens": 0 },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.prompt.saturating_add(usage.output),
    })
}
