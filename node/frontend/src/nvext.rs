//! The `nvext` envelope: what agents say about themselves, and what they ask to be told.

pub(crate) mod outcome;

use crate::content::CacheControl;
use crate::error::ApiError;
use crate::json;
use outcome::Outcome;
use protocol::id::NodeId;
use protocol::prompt::PromptSources;
use protocol::time::Span;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// `nvext` of a request, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NvExt {
    pub(crate) hints: AgentHints,
    pub(crate) cache_control: Option<CacheControl>,
    pub(crate) retention: Vec<Retention>,
    pub(crate) cache_salt: Option<String>,
    /// The session ends with this request.
    pub(crate) session_final: Option<bool>,
    /// Expected time of the tools that the answer calls, in milliseconds.
    pub(crate) tool_latency_ms: Option<u64>,
    /// Serve it there and nowhere else: a debugging aid.
    pub(crate) target: Option<NodeId>,
    pub(crate) extra: Extra,
}

/// `nvext.agent_hints`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AgentHints {
    /// Higher goes sooner.
    pub(crate) priority: Option<i32>,
    pub(crate) osl: Option<u32>,
    pub(crate) strict_priority: Option<u32>,
    pub(crate) speculative_prefill: Option<bool>,
    /// Old name of `priority`, used when that is absent.
    pub(crate) latency_sensitivity: Option<f64>,
}

impl AgentHints {
    /// The priority: as given, else what the deprecated hint rounds to, else `usual`.
    pub(crate) fn priority(&self, usual: i32) -> i32 {
        // Numbers of this kind round to the nearest that fits.
        let rounded = || self.latency_sensitivity.map(|wish| wish.round() as i32);
        self.priority.or_else(rounded).unwrap_or(usual)
    }
}

/// `nvext.retention[]`: a claim on a range of prompt tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Retention {
    pub(crate) start: u32,
    /// One past the last token; absent: to the prompt's end.
    #[serde(default)]
    pub(crate) end: Option<u32>,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default)]
    pub(crate) duration_ms: Option<u64>,
}

/// `nvext.extra_fields`: what the answer's `nvext` shall hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extra {
    pub(crate) timing: bool,
    pub(crate) route: bool,
    pub(crate) prompt_token_ids: bool,
    pub(crate) completion_token_ids: bool,
    /// What became of every hint; of those in `nvext` that were not simply accepted it is told anyway.
    pub(crate) hints: bool,
}

/// Most `nvext.retention` ranges of one request.
const RETENTION_MAX: usize = 32;

const KEYS: [&str; 8] = [
    "agent_hints",
    "cache_control",
    "cache_salt",
    "extra_fields",
    "retention",
    "session_final",
    "target",
    "tool_latency_ms",
];
const HINT_KEYS: [&str; 5] =
    ["priority", "osl", "strict_priority", "speculative_prefill", "latency_sensitivity"];
const RETENTION_KEYS: [&str; 4] = ["start", "end", "priority", "duration_ms"];
const EXTRA_KEYS: [&str; 6] =
    ["timing", "route", "hints", "token_ids", "completion_token_ids", "prompt_token_ids"];

/// Refuses `key` unless it is known, naming the known key it is most like.
fn check_key(at: &str, key: &str, known: &[&str]) -> Result<(), ApiError> {
    if known.contains(&key) {
        return Ok(());
    }
    let nearest = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
    let nearest = nearest.copied().unwrap_or_default();
    Err(ApiError::field(at, format_args!("`{key}` is not known; did you mean `{nearest}`?")))
}

/// Refuses all but objects: a list would be taken for the fields in order.
fn object<'a>(at: &str, value: &'a Value) -> Result<&'a Map<String, Value>, ApiError> {
    value.as_object().ok_or_else(|| ApiError::field(at, "expected an object"))
}

fn check_keys(at: &str, value: &Value, known: &[&str]) -> Result<(), ApiError> {
    let keys = object(at, value)?.keys();
    keys.into_iter().try_for_each(|key| check_key(at, key, known))
}

impl NvExt {
    /// Reads the envelope. Unknown keys are errors: a misspelt hint would be lost in silence.
    pub(crate) fn read(envelope: Option<Map<String, Value>>) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for (key, value) in envelope.unwrap_or_default() {
            check_key("nvext", &key, &KEYS)?;
            if value.is_null() {
                continue;
            }
            let at = format!("nvext.{key}");
            match key.as_str() {
                "agent_hints" => {
                    check_keys(&at, &value, &HINT_KEYS)?;
                    read.hints = json::typed(&at, value)?;
                }
                "cache_control" => {
                    object(&at, &value)?;
                    read.cache_control = Some(json::typed(&at, value)?);
                }
                "cache_salt" => read.cache_salt = Some(json::typed(&at, value)?),
                "session_final" => read.session_final = Some(json::typed(&at, value)?),
                "tool_latency_ms" => read.tool_latency_ms = Some(json::typed(&at, value)?),
                "target" => {
                    let node: String = json::typed(&at, value)?;
                    read.target = Some(NodeId::parse(&node).ok_or_else(|| {
                        ApiError::field(&at, "a node id is 64 hexadecimal digits (see status)")
                    })?);
                }
                "retention" => {
                    value.as_array().into_iter().flatten().enumerate().try_for_each(
                        |(i, range)| check_keys(&format!("{at}[{i}]"), range, &RETENTION_KEYS),
                    )?;
                    read.retention = json::typed(&at, value)?;
                    if read.retention.len() > RETENTION_MAX {
                        return Err(ApiError::field(
                            &at,
                            format_args!("at most {RETENTION_MAX} ranges are allowed"),
                        ));
                    }
                }
                _ => read.extra = Extra::read(&at, value)?,
            }
        }
        Ok(read)
    }
}

impl Extra {
    fn read(at: &str, value: Value) -> Result<Self, ApiError> {
        let mut extra = Self::default();
        for name in json::typed::<Vec<String>>(at, value)? {
            check_key(at, &name, &EXTRA_KEYS)?;
            match name.as_str() {
                "timing" => extra.timing = true,
                "route" => extra.route = true,
                "hints" => extra.hints = true,
                "prompt_token_ids" => extra.prompt_token_ids = true,
                "completion_token_ids" => extra.completion_token_ids = true,
                // Both, in one word.
                _ => (extra.prompt_token_ids, extra.completion_token_ids) = (true, true),
            }
        }
        Ok(extra)
    }
}

/// Everything an answer's `nvext` may tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Told {
    pub(crate) queue: Span,
    /// `None` when no token came.
    pub(crate) ttft: Option<Span>,
    pub(crate) total: Span,
    pub(crate) entry_node: String,
    pub(crate) serving_node: String,
    pub(crate) outcome: String,
    pub(crate) sources: PromptSources,
    pub(crate) prompt_tokens: Vec<u32>,
    pub(crate) completion_tokens: Vec<u32>,
    pub(crate) hints: Vec<Outcome>,
}

impl Told {
    /// The answer's `nvext`, with what was asked for and hints that were not followed; `None` when
    /// there is nothing to tell.
    pub(crate) fn envelope(&self, extra: Extra) -> Option<Value> {
        let mut map = Map::new();
        if extra.timing {
            let timing = json!({
                "queue_ms": self.queue.as_ms(),
                "ttft_ms": self.ttft.map(Span::as_ms),
                "total_ms": self.total.as_ms(),
            });
            map.insert("timing".into(), timing);
        }
        if extra.route {
            let PromptSources { gpu, dram, nvme, peer, computed } = self.sources;
            let route = json!({
                "entry_node": self.entry_node,
                "serving_node": self.serving_node,
                "cached_tokens": { "gpu": gpu, "dram": dram, "nvme": nvme, "peer": peer },
                "computed_tokens": computed,
                "outcome": self.outcome,
            });
            map.insert("route".into(), route);
        }
        let told = |hint: &&Outcome| extra.hints || hint.is_news();
        let hints: Vec<Value> = self.hints.iter().filter(told).map(Outcome::to_json).collect();
        if extra.hints || !hints.is_empty() {
            map.insert("hints".into(), hints.into());
        }
        if extra.prompt_token_ids {
            map.insert("prompt_token_ids".into(), json!(self.prompt_tokens));
        }
        if extra.completion_token_ids {
            map.insert("completion_token_ids".into(), json!(self.completion_tokens));
        }
        (!map.is_empty()).then_some(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
