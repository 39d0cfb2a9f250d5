//! Messages and tools that are rendered again with every turn of their conversation.

use super::json;
use super::shape::Shape;
use minijinja::Value;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A message or a tool that remembers what templates are given for it. Cheap to clone, and never
/// changed: the next turn can hold the same.
#[derive(Clone)]
pub struct Message(Arc<Inner>);

struct Inner {
    json: serde_json::Value,
    shape: Shape,
    value: OnceLock<Value>,
}

/// What can be rendered as a message or a tool.
pub trait AsMessage: Borrow<serde_json::Value> {
    /// What templates see of it.
    fn value(&self) -> Value;

    /// What it is made of.
    fn shape(&self) -> Shape;
}

impl AsMessage for serde_json::Value {
    fn value(&self) -> Value {
        json::to_value(self)
    }

    fn shape(&self) -> Shape {
        Shape::of(self)
    }
}

impl AsMessage for Message {
    fn value(&self) -> Value {
        self.0.value.get_or_init(|| json::to_value(&self.0.json)).clone()
    }

    fn shape(&self) -> Shape {
        self.0.shape
    }
}

impl From<serde_json::Value> for Message {
    fn from(json: serde_json::Value) -> Self {
        let shape = Shape::of(&json);
        Self(Arc::new(Inner { json, shape, value: OnceLock::new() }))
    }
}

impl Deref for Message {
    type Target = serde_json::Value;

    fn deref(&self) -> &serde_json::Value {
        &self.0.json
    }
}

impl Borrow<serde_json::Value> for Message {
    fn borrow(&self) -> &serde_json::Value {
        &self.0.json
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.json == other.0.json
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.json.fmt(f)
    }
}
