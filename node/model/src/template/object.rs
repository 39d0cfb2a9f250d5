//! Objects of JSON as templates see them.
//!
//! Made for what templates do with them again and again: look up a few fields of every message of a
//! history, and write the arguments of every call and every tool as JSON.

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Objects up to so many fields are looked through, larger ones have an index.
const FEW: usize = 16;

/// An object; the order of its fields is kept.
#[derive(Debug)]
pub(super) struct Fields {
    /// Names, which are texts, and values.
    pairs: Vec<(Value, Value)>,
    /// Places by name, where there are more than a few.
    index: BTreeMap<Box<str>, usize>,
    /// As JSON in the default style; `None` where it cannot be written.
    text: OnceLock<Option<Value>>,
}

impl Fields {
    /// Of pairs whose names differ.
    pub(super) fn new<'a>(pairs: impl Iterator<Item = (&'a str, Value)>) -> Self {
        let pairs: Vec<_> = pairs.map(|(name, value)| (Value::from(name), value)).collect();
        let named = |(place, (name, _)): (usize, &(Value, Value))| {
            name.as_str().map(|name| (Box::from(name), place))
        };
        let index = match pairs.len() {
            0..=FEW => BTreeMap::new(),
            _ => pairs.iter().enumerate().filter_map(named).collect(),
        };
        Self { pairs, index, text: OnceLock::new() }
    }

    /// As JSON in the default style, `write` is asked once at most.
    pub(super) fn written(&self, write: impl FnOnce() -> Option<String>) -> Option<Value> {
        self.text.get_or_init(|| write().map(Value::from)).clone()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let pair = match self.pairs.len() {
            0..=FEW => self.pairs.iter().find(|(known, _)| known.as_str() == Some(name)),
            _ => self.index.get(name).and_then(|place| self.pairs.get(*place)),
        };
        pair.map(|(_, value)| value)
    }
}

impl Object for Fields {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key.as_str()?).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_key_value_enumerator(|this| Box::new(this.pairs.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.pairs.len())
    }
}
