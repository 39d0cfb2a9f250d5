//! Typed access to configuration fields; what cannot be used is named.

use crate::ModelError;
use serde_json::{Map, Value};
use std::path::Path;

/// A JSON object from a file, with the names that lead to it for messages.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    path: &'a Path,
    prefix: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self { path, prefix: "", map }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The field, unless absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A nested object, when there is one; `prefix` leads its fields' names in messages.
    pub(crate) fn object(
        &self,
        name: &str,
        prefix: &'a str,
    ) -> Result<Option<Fields<'a>>, ModelError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields { path: self.path, prefix, map })),
            Some(other) => Err(self.wrong(name, other, "an object")),
        }
    }

    pub(crate) fn size(&self, name: &str) -> Result<Option<usize>, ModelError> {
        self.get(name)
            .map(|value| {
                let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
                size.ok_or_else(|| self.wrong(name, value, "a whole number"))
            })
            .transpose()
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, ModelError> {
        self.get(name)
            .map(|value| {
                let number = value.as_f64().filter(|number| number.is_finite());
                number.ok_or_else(|| self.wrong(name, value, "a number"))
            })
            .transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        self.get(name)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong(name, value, "true or false")))
            .transpose()
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, ModelError> {
        self.get(name)
            .map(|value| value.as_str().ok_or_else(|| self.wrong(name, value, "a string")))
            .transpose()
    }

    /// One token id or a list of them; absent is empty.
    pub(crate) fn ids(&self, name: &str) -> Result<Vec<u32>, ModelError> {
        let id = |value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| self.wrong(name, value, "a token id or a list of token ids"))
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(id).collect(),
            Some(one) => Ok(vec![id(one)?]),
        }
    }

    /// The value, or an error that says it is missing.
    pub(crate) fn need<T>(&self, name: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| self.error(name, "is missing"))
    }

    pub(crate) fn error(&self, name: &str, problem: impl Into<String>) -> ModelError {
        ModelError::field(self.path, format!("{}{name}", self.prefix), problem)
    }

    fn wrong(&self, name: &str, found: &Value, expected: &str) -> ModelError {
        self.error(name, format!("is {}, expected {expected}", short(found)))
    }
}

/// A value for a message: at most 60 characters of it.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
