//! A response as it is kept, and what later requests take from it.
//!
//! A record repeats what came before its own turn only up to [`TAIL_MAX`] bytes; beyond that it
//! names the record to read first. So a conversation of n bytes is read in about n / `TAIL_MAX`
//! steps, and a turn is not written again with each later one.

use crate::error::{ApiError, Kind};
use crate::json;
use crate::weight::weight;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// About how many bytes of earlier turns a record repeats.
const TAIL_MAX: usize = 128 << 10;

/// What is kept of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The response whose history comes before `tail`.
    pub(crate) base: Option<String>,
    /// Items of earlier turns after those of `base`.
    tail: Vec<Value>,
    /// Input items of its own turn, each with an id.
    pub(crate) input: Vec<Value>,
    /// The response object.
    pub(crate) response: Value,
}

/// What a request wants of kept responses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The response to go on from.
    pub(crate) previous: Option<String>,
    /// Responses of which single items are named, with those.
    pub(crate) referenced: BTreeMap<String, BTreeSet<String>>,
}

/// What was found of that.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    /// The response to go on from, and all items up to its end.
    pub(crate) previous: Option<(Arc<Record>, Vec<Value>)>,
    /// By their id: items that are named.
    items: HashMap<String, Value>,
    /// What it may take.
    pub(crate) room: Room,
}

/// Memory for what a request names, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Room {
    most: usize,
    left: usize,
}

/// Items that were copied out of a record, and the bytes that they take.
pub(crate) type Copied = (Vec<Value>, usize);

/// The part of a request that makes a record, once there is a response.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) previous: Option<Arc<Record>>,
    pub(crate) input: Vec<Value>,
}

impl Wanted {
    /// Whether a body may name anything; a quick look.
    pub(crate) fn may_be_in(body: &[u8]) -> bool {
        let names = |word: &str| memchr::memmem::find(body, word.as_bytes()).is_some();
        names("previous_response_id") || names("item_reference")
    }

    /// Reads what a body names. A body that is no good wants nothing: its own reader will say so.
    pub(crate) fn of(body: &[u8]) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Names {
            previous_response_id: Option<String>,
            input: Value,
        }
        let Names { previous_response_id, input } = json::parse(body).unwrap_or_default();
        let items = input.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut referenced: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for item in items.iter().filter(|item| item["type"] == "item_reference") {
            let id = item["id"].as_str().unwrap_or_default();
            if let Some(response) = response_of(id) {
                referenced.entry(response).or_default().insert(id.to_owned());
            }
        }
        Self { previous: previous_response_id, referenced }
    }
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Takes `bytes` for what the field `field` names.
    pub(crate) fn take(&mut self, bytes: usize, field: &str) -> Result<(), ApiError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.exceeded(field))?;
        Ok(())
    }

    /// What the field `field` names takes more than is left.
    pub(crate) fn exceeded(&self, field: &str) -> ApiError {
        ApiError::field(
            field,
            format_args!(
                "what is named of kept responses takes more than {} bytes of memory",
                self.most
            ),
        )
    }
}

impl Recalled {
    /// Nothing yet, and at most `most` bytes.
    pub(crate) fn within(most: usize) -> Self {
        Self { room: Room::new(most), ..Self::default() }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.room.most - self.room.left
    }

    /// Puts items in the place of their names. Each copy takes room: an item may be named often.
    pub(super) fn resolve(&mut self, input: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        let Self { items, room, .. } = self;
        let resolve = |(i, item): (usize, Value)| -> Result<Value, ApiError> {
            if item["type"] != "item_reference" {
                return Ok(item);
            }
            let at = format!("input[{i}].id");
            let id = item["id"].as_str().ok_or_else(|| ApiError::field(&at, "missing field"))?;
            let found = items.get(id).ok_or_else(|| {
                ApiError::field(
                    &at,
                    format_args!(
                        "no item `{id}` is kept here: it has expired, was deleted, or its response \
                         was not stored; send the item itself"
                    ),
                )
            })?;
            room.take(weight(found), &at)?;
            Ok(found.clone())
        };
        input.into_iter().enumerate().map(resolve).collect()
    }

    /// Takes items that may be named.
    pub(crate) fn offer(&mut self, items: Vec<Value>) {
        let named = |item: Value| Some((item["id"].as_str()?.to_owned(), item));
        self.items.extend(items.into_iter().filter_map(named));
    }
}

impl Draft {
    /// About the memory that its input takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.input.iter().map(weight).sum()
    }

    /// The record of `response`.
    pub(super) fn record(self, response: Value) -> Record {
        let digits = digits_of(response["id"].as_str().unwrap_or_default()).unwrap_or_default();
        let mut input = self.input;
        for (i, item) in input.iter_mut().enumerate() {
            let kind = match item["type"].as_str() {
                Some("function_call_output" | "custom_tool_call_output") => "fco",
                Some("function_call") => "fc",
                Some("custom_tool_call") => "ctc",
                Some("reasoning") => "rs",
                _ => "msg",
            };
            // Ids of input items never meet those of output items, which count from 00.
            let id = || Value::String(format!("{kind}_{digits}i{i}"));
            if let Some(item) = item.as_object_mut() {
                if item.get("id").is_none_or(Value::is_null) {
                    item.insert("id".into(), id());
                }
                item.entry("type").or_insert_with(|| "message".into());
            }
        }
        let (base, tail) = match self.previous {
            None => (None, Vec::new()),
            Some(previous) => match fit(previous.history(), TAIL_MAX) {
                true => (previous.base.clone(), previous.history().cloned().collect()),
                false => (previous.response["id"].as_str().map(str::to_owned), Vec::new()),
            },
        };
        Record { base, tail, input, response }
    }
}

impl Record {
    /// Items of its own turn: input, then output.
    fn items(&self) -> impl Iterator<Item = &Value> {
        let output = self.response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.input.iter().chain(output)
    }

    /// What the record holds of the history, which follows what `base` holds.
    fn history(&self) -> impl Iterator<Item = &Value> {
        self.tail.iter().chain(self.items())
    }

    /// Copies of what it holds of the history; `None` where they take more than `most` bytes.
    pub(crate) fn copied(&self, most: usize) -> Option<Copied> {
        copied(self.history(), most)
    }

    /// As [`Self::copied`], of the items of its own turn that are `named`.
    pub(crate) fn named(&self, named: &BTreeSet<String>, most: usize) -> Option<Copied> {
        let is_named = |item: &&Value| item["id"].as_str().is_some_and(|id| named.contains(id));
        copied(self.items().filter(is_named), most)
    }

    /// About the memory that it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.tail.iter().chain(&self.input).map(weight).sum::<usize>() + weight(&self.response)
    }
}

fn copied<'a>(items: impl Iterator<Item = &'a Value>, most: usize) -> Option<Copied> {
    let (mut copies, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += weight(item);
        if bytes > most {
            return None;
        }
        copies.push(item.clone());
    }
    Some((copies, bytes))
}

/// Whether values have at most `most` bytes as JSON.
fn fit<'a>(mut values: impl Iterator<Item = &'a Value>, most: usize) -> bool {
    let mut room = vec![0u8; most];
    let mut left = room.as_mut_slice();
    values.all(|value| serde_json::to_writer(&mut left, value).is_ok())
}

/// A text as an input item.
pub(super) fn said(text: &str) -> Value {
    json!({
        "type": "message", "role": "user",
        "content": [{ "type": "input_text", "text": text }],
    })
}

/// The request's digits in an id that was given out here.
fn digits_of(id: &str) -> Option<&str> {
    let digits = id.split_once('_')?.1.get(..32)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(digits)
}

/// The response that an item's id names.
fn response_of(item: &str) -> Option<String> {
    digits_of(item).map(|digits| format!("resp_{digits}"))
}

/// `id` names no response that is kept.
pub(crate) fn unknown_previous(id: &str) -> ApiError {
    let message = format!(
        "previous_response_id: no response `{id}` is kept here: it has expired, was deleted, or was not stored"
    );
    ApiError {
        param: Some("previous_response_id".into()),
        ..ApiError::new(Kind::NoPrevious, message)
    }
}

#[cfg(test)]
mod tests;
