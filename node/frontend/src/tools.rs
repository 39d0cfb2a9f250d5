//! Calls that models make, and the tools they may call.

pub(crate) mod json;
pub(crate) mod python;
pub(crate) mod typed;
pub(crate) mod xml;

use model::Message;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A call the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// JSON text of an object.
    pub(crate) arguments: String,
}

impl Call {
    /// A call with these arguments; `None` without a name.
    pub(crate) fn new(name: &str, arguments: Map<String, Value>) -> Option<Self> {
        let arguments = Value::Object(arguments).to_string();
        (!name.is_empty()).then(|| Self { name: name.to_owned(), arguments })
    }
}

/// The tools that a prompt shows, in the shape chat templates read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    shown: Arc<[Message]>,
    /// The only ones that may be called, where not all of them.
    only: Option<Arc<[String]>>,
}

impl Tools {
    /// Shared with the request.
    pub(crate) fn new(shown: Arc<[Message]>) -> Self {
        Self { shown, only: None }
    }

    /// Only these of them may be called; `None` allows all.
    pub(crate) fn only(self, names: Option<Vec<String>>) -> Self {
        Self { only: names.map(Into::into), ..self }
    }

    /// Whether a call of this name is one. A name that no tool has is the client's to judge, unless
    /// it said which may be called.
    pub(crate) fn may_call(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|allowed| allowed == name))
    }

    /// Whether no call can be made.
    pub(crate) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// The names of the tools.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().filter_map(|tool| tool.get("function")?.get("name")?.as_str())
    }

    /// Whether a tool has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// The JSON schema of a tool's arguments.
    pub(crate) fn schema(&self, name: &str) -> Option<&Value> {
        let functions = self.shown.iter().filter_map(|tool| tool.get("function"));
        functions
            .filter(|function| function.get("name").is_some_and(|known| known == name))
            .find_map(|function| function.get("parameters"))
    }
}
