//! Schemas that would eat time, stack or memory.

use super::*;
use serde_json::json;

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}))
}

fn conjunction(expressions: usize) -> Value {
    let one = |n: usize| json!({"type": "string", "pattern": format!("(ab|cd|e.{{{}}}f)", n + 20)});
    json!({"allOf": (0..expressions).map(one).collect::<Vec<_>>()})
}

fn bombs() -> Vec<(&'static str, Value)> {
    let words: Vec<String> = (0..20_000).map(|n| format!("word number {n}")).collect();
    let fields: serde_json::Map<String, Value> =
        (0..3000).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
    let doubling: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"allOf": [next, next]}))
        })
        .chain([("d40".to_owned(), json!({"type": "string"}))])
        .collect();
    let wide: serde_json::Map<String, Value> = (0..30)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"type": "array", "prefixItems": [next, next, next]}))
        })
        .chain([("d30".to_owned(), json!({"type": "string"}))])
        .collect();
    let options: Vec<Value> = (0..2000)
        .map(|n| json!({"type": "object", "properties": {"kind": {"const": n}}}))
        .collect();
    vec![
        ("deep nesting", nested(31)),
        ("a cycle", json!({"$ref": "#"})),
        (
            "a longer cycle",
            json!({
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a",
            }),
        ),
        (
            "a cycle with company",
            json!({
                "$defs": {"a": {"type": "object", "allOf": [{"$ref": "#/$defs/a"}]}},
                "$ref": "#/$defs/a",
            }),
        ),
        (
            "a tree",
            json!({
                "$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}}},
                "$ref": "#/$defs/t",
            }),
        ),
        ("doubling", json!({"$defs": doubling, "$ref": "#/$defs/d0"})),
        ("tripling", json!({"$defs": wide, "$ref": "#/$defs/d0"})),
        ("a huge enum", json!({"enum": words})),
        (
            "a huge length",
            json!({"type": "string", "minLength": 1_000_000, "maxLength": 100_000_000}),
        ),
        (
            "many huge lengths",
            json!({"type": "object", "properties": (0..200).map(|n| {
            (format!("p{n}"), json!({"type": "string", "pattern": "^[a-z ]+$", "maxLength": 65_536}))
        }).collect::<serde_json::Map<_, _>>()}),
        ),
        (
            "huge counts",
            json!({"type": "array", "minItems": 1_000_000, "items": {
            "type": "array", "maxItems": 1_000_000, "items": {"type": "string"}}}),
        ),
        ("a huge repetition", json!({"type": "string", "pattern": "^(a{1,1000}){1,1000}$"})),
        (
            "nested repetitions",
            json!({"type": "string", "pattern": "^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$"}),
        ),
        (
            "a catastrophic expression",
            json!({"type": "string", "pattern": "^(a+)+(b|c*)*(.*x.*y){20}$"}),
        ),
        ("an exponential automaton", json!({"type": "string", "pattern": "^(a|b)*a(a|b){200}$"})),
        ("a conjunction", conjunction(60)),
        ("a small conjunction", conjunction(4)),
        ("many properties", json!({"type": "object", "properties": fields})),
        ("many options", json!({"anyOf": options})),
        ("exclusive options", json!({"oneOf": options})),
        (
            "patterns for names",
            json!({"type": "object", "patternProperties": (0..300).map(|n| {
            (format!("^x{n}.*y"), json!({"type": "string"}))
        }).collect::<serde_json::Map<_, _>>()}),
        ),
        (
            "a huge number",
            json!({"type": "number", "minimum": -1e300, "maximum": 1e300, "multipleOf": 1e-300}),
        ),
        (
            "a long name",
            json!({"type": "object", "properties": {"é".repeat(100_000): {"type": "null"}}}),
        ),
        ("an odd type", json!({"type": "é".repeat(200)})),
        ("an odd length", json!({"type": "string", "maxLength": "é".repeat(200)})),
    ]
}

/// Whatever the schema, the compiler comes to an end, and so does each mask (what goes off takes
/// hours); a refusal is words.
#[test]
fn bombs_do_not_go_off() {
    let grammars = tiny();
    grammars.compile(&schema(&json!({}), true)).unwrap();
    for (name, bomb) in bombs() {
        let outcome = match grammars.compile(&schema(&bomb, true)) {
            Err(error) => {
                let words = error.to_string();
                assert!(
                    !words.is_empty() && words.len() < 2000 && !words.contains('\n'),
                    "{words}"
                );
                format!("refused: {words}")
            }
            Ok(grammar) => format!("{} steps", walk(&grammar)),
        };
        println!("{name}: {outcome}");
    }
}

/// Goes on with the third of the allowed tokens, as long as there is one.
fn walk(grammar: &Grammar) -> usize {
    let mut guide = grammar.begin();
    let mut steps = 0;
    while steps < 60 {
        let mut allowed = Vec::new();
        if let Ok(mask) = guide.mask() {
            mask.for_each(|token| allowed.push(token));
        }
        let Some(token) = allowed.get(2.min(allowed.len().saturating_sub(1))) else { break };
        if guide.accept(*token).is_err() {
            break;
        }
        steps += 1;
    }
    steps
}
