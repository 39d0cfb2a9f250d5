//! What constrained answers cost: `cargo run -p model --example grammar -- MODEL`.
//!
//! Compiles schemas, then walks through the masks of random answers. Times are of one thread.

#![allow(clippy::disallowed_methods, clippy::indexing_slicing)] // reads the clock

use model::{Grammar, Model};
use protocol::constraint::{Constraint, Form, Lead, Schema, TextForm};
use protocol::hash::Token;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: grammar MODEL")?;
    let model = Model::open(Path::new(&path))?;
    let fields: Map<String, Value> = (0..100)
        .map(|n| {
            let kinds = [json!("string"), json!("integer"), json!("boolean"), json!("number")];
            (format!("field_{n}"), json!({"type": kinds[n % 4], "description": "One of many."}))
        })
        .collect();
    let required: Vec<&String> = fields.keys().collect();
    let schemas = [
        (
            "title",
            json!({"type": "object", "properties": {"title": {"type": "string"}},
            "required": ["title"], "additionalProperties": false}),
        ),
        (
            "100 fields",
            json!({"type": "object", "properties": fields, "required": required,
            "additionalProperties": false}),
        ),
        ("any object", json!({"type": "object"})),
        ("long text", json!({"type": "string", "maxLength": 65_536})),
    ];
    let begun = Instant::now();
    model.grammars().compile(&constraint(&json!({})))?;
    let size = model.tokenizer().vocab_size();
    println!("first use, {size} tokens: {:.1?}", begun.elapsed());
    for (name, schema) in schemas {
        let begun = Instant::now();
        let grammar = model.grammars().compile(&constraint(&schema))?;
        let compiled = begun.elapsed();
        let mut masks = Vec::new();
        for seed in 0..20 {
            walk(&grammar, seed, &mut masks)?;
        }
        masks.sort();
        let at = |share: f64| masks[((masks.len() - 1) as f64 * share) as usize];
        let mean = masks.iter().sum::<Duration>() / masks.len() as u32;
        println!(
            "{name}: compiled in {compiled:.1?}; {} masks, mean {mean:.1?}, p50 {:.1?}, p99 {:.1?}, most {:.1?}",
            masks.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

fn constraint(schema: &Value) -> Constraint {
    let schema = Schema { text: schema.to_string(), exact: true };
    Constraint { lead: Lead::None, form: Form::Text(TextForm::JsonSchema(schema)) }
}

/// One random answer of at most 100 tokens.
fn walk(
    grammar: &Grammar,
    seed: u64,
    masks: &mut Vec<Duration>,
) -> Result<(), model::GrammarError> {
    let mut guide = grammar.begin();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..100 {
        let begun = Instant::now();
        let mask = guide.mask()?;
        masks.push(begun.elapsed());
        let mut allowed: Vec<Token> = Vec::new();
        mask.for_each(|token| allowed.push(token));
        if mask.must_end() || allowed.is_empty() {
            break;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        guide.accept(allowed[(state >> 33) as usize % allowed.len()])?;
        if guide.is_over() {
            break;
        }
    }
    Ok(())
}
