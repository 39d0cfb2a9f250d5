//! What grammars accept and refuse, by tokens of real vocabularies.

mod forms;
mod hostile;
mod schemas;
mod vocabularies;

use super::*;
use protocol::constraint::{Form, Lead, Schema, TextForm};
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;

/// The tokenizer of the tiny model: byte-level, with tags for calls and reasoning.
static TINY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/tiny-qwen3/tokenizer.json");
    Tokenizer::from_json(&path, &std::fs::read(&path).unwrap()).unwrap()
});

const END: Token = Token(2);

fn tiny() -> Grammars {
    Grammars::new(TINY.clone(), vec![END])
}

fn schema(schema: &Value, exact: bool) -> Constraint {
    let schema = Schema { text: schema.to_string(), exact };
    Constraint { lead: Lead::None, form: Form::Text(TextForm::JsonSchema(schema)) }
}

/// How an answer fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The token at this place is not allowed.
    Refused(usize),
    /// It may not end there.
    Unfinished,
    /// It may end there, or go on.
    May,
    /// It must end there.
    Must,
}

fn fate(grammar: &Grammar, answer: &[Token]) -> Fate {
    let mut guide = grammar.begin();
    for (place, token) in answer.iter().enumerate() {
        if guide.is_over() || !guide.mask().unwrap().allows(*token) {
            return Fate::Refused(place);
        }
        guide.accept(*token).unwrap();
    }
    let mask = guide.mask().unwrap();
    assert!(!guide.is_over() || mask.must_end());
    match (mask.may_end(), mask.must_end()) {
        (false, _) => Fate::Unfinished,
        (true, false) => Fate::May,
        (true, true) => Fate::Must,
    }
}

fn says(grammar: &Grammar, text: &str) -> Fate {
    fate(grammar, &TINY.encode(text, false))
}
