//! Answers that must have a form.

use crate::house::{Answer, Ask, House, TINY};
use engine::EmbeddedConfig;
use protocol::constraint::{CallShape, Callable, Calls, Constraint, Form, Lead, Schema, TextForm};
use protocol::hash::Token;
use protocol::prompt::{FinishReason, Limits, Refusal, Sampling, StreamItem};
use serde_json::{Value, json};
use std::sync::Arc;

const END: Token = Token(2);

fn prompt(tokens: u32) -> Vec<Token> {
    (0..tokens).map(|i| Token(3 + i * 31 % 1000)).collect()
}

fn form(schema: &Value) -> Constraint {
    let schema = Schema { text: schema.to_string(), exact: true };
    Constraint { lead: Lead::None, form: Form::Text(TextForm::JsonSchema(schema)) }
}

/// An engine with room for many answers.
fn roomy() -> House {
    House::start(&TINY, |config| EmbeddedConfig { kv_tokens: 1 << 17, ..config })
}

/// Schemas whose answers are short whatever the model says.
fn schemas() -> Vec<Value> {
    let short = json!({"type": "string", "maxLength": 6});
    let count = json!({"type": "integer", "minimum": -9, "maximum": 99});
    vec![
        json!({"type": "object", "properties": {"title": short}, "required": ["title"],
               "additionalProperties": false}),
        json!({"type": "object", "additionalProperties": false, "properties": {
            "kind": {"enum": ["bug", "größer", null]}, "count": count,
            "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        }, "required": ["kind", "list"]}),
        json!({"anyOf": [count, {"type": "array", "items": short, "maxItems": 2}]}),
        json!({"type": "string", "pattern": "^[a-f]{2,5}-[0-9]{3}$"}),
    ]
}

fn samplings() -> Vec<Sampling> {
    let warm = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    let drawn = (1..4).map(|seed| Sampling { seed, ..warm });
    let narrow = Sampling { temperature: 1.5, top_p: 0.8, top_k: 40, min_p: 0.01, seed: 9 };
    std::iter::once(Sampling::GREEDY).chain(drawn).chain([narrow]).collect()
}

fn ask<'a>(house: &'a House, schema: &Value, sampling: Sampling) -> Ask<'a> {
    let mut ask = house.ask(&prompt(30), 400);
    ask.sampling = sampling;
    ask.limits.stop_tokens = vec![END];
    ask.constraint = Some(form(schema));
    ask
}

fn check(schema: &Value, answer: &Answer) {
    let text = TINY.tokenizer().decode(&answer.tokens);
    assert_eq!(answer.finish.reason, FinishReason::Stop(END), "{schema} {text}");
    let said: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(jsonschema::validator_for(schema).unwrap().is_valid(&said), "{schema} {text}");
}

/// All cases in one batch beside answers that are free; each is as if it were alone.
#[test]
fn answers_conform_alone_and_together() {
    let house = roomy();
    let cases: Vec<(Value, Sampling)> = schemas()
        .into_iter()
        .flat_map(|schema| samplings().into_iter().map(move |s| (schema.clone(), s)))
        .collect();
    let free = house.ask(&prompt(40), 200).submit().answer().tokens;
    let alone: Vec<Answer> =
        cases.iter().map(|(schema, s)| ask(&house, schema, *s).submit().answer()).collect();
    for ((schema, _), answer) in cases.iter().zip(&alone) {
        check(schema, answer);
    }
    let distinct: std::collections::BTreeSet<_> = alone.iter().map(|a| a.tokens.clone()).collect();
    assert!(distinct.len() > cases.len() / 2, "sampling makes a difference");
    let together = roomy();
    let mut beside = together.ask(&prompt(40), 200).submit();
    let mut streams: Vec<_> =
        cases.iter().map(|(schema, s)| ask(&together, schema, *s).submit()).collect();
    for (stream, alone) in streams.iter_mut().zip(&alone) {
        assert_eq!(stream.answer().tokens, alone.tokens);
    }
    assert_eq!(beside.answer().tokens, free, "free answers are what they were");
}

/// From cached blocks, and from any place on after the sequence was given up.
#[test]
fn cached_and_resumed_answers_are_equal() {
    let house = roomy();
    for (schema, sampling) in schemas().iter().zip(samplings()) {
        let mut cold = ask(&house, schema, sampling).submit();
        let answer = cold.answer();
        let mut cached = ask(&house, schema, sampling);
        cached.slots[0] = cold.slots[0];
        cached.ready = 1;
        assert_eq!(cached.submit().answer().tokens, answer.tokens);
        for cut in 1..=answer.tokens.len() {
            let (before, after) = answer.tokens.split_at(cut);
            let mut again = ask(&house, schema, sampling);
            again.prompt.extend(before);
            again.resumed = cut as u32;
            let rest = again.submit().answer();
            assert_eq!(rest.tokens, after, "from {cut}");
            assert_eq!(rest.finish.reason, FinishReason::Stop(END));
        }
    }
}

/// A sequence that waits for slots keeps its place in the grammar.
#[test]
fn a_pause_changes_nothing() {
    let schema = json!({"type": "array", "items": {"type": "string", "maxLength": 3},
                        "minItems": 12, "maxItems": 12});
    let house = roomy();
    let whole = ask(&house, &schema, Sampling::GREEDY).submit().answer();
    check(&schema, &whole);
    let mut short = ask(&house, &schema, Sampling::GREEDY);
    short.slots.truncate(2);
    let mut stream = short.submit();
    let lease = stream.lease;
    let slots = house.slots(24);
    house.wait(|events| {
        let needs = |event: &protocol::op::EngineEvent| {
            matches!(event, protocol::op::EngineEvent::NeedSlots { lease: of, .. } if *of == lease)
        };
        events.iter().any(needs).then_some(())
    });
    house.engine().perform(protocol::op::EngineOp::Grant { lease, slots });
    assert_eq!(stream.answer().tokens, whole.tokens);
}

#[test]
fn a_cut_answer_says_so() {
    let house = roomy();
    let schema = json!({"type": "array", "items": {"type": "boolean"}, "minItems": 50});
    let mut cut = ask(&house, &schema, Sampling::GREEDY);
    cut.limits.max_tokens = 10;
    let answer = cut.submit().answer();
    assert_eq!((answer.finish.reason, answer.tokens.len()), (FinishReason::Length, 10));
}

#[test]
fn calls_and_nothing_else() {
    let house = roomy();
    let arguments = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9,
        "minimum": 0}}, "required": ["n"], "additionalProperties": false});
    let shape = CallShape {
        open: "<tool_call>\n{\"name\": ".into(),
        arguments: ", \"arguments\": ".into(),
        close: "}\n</tool_call>".into(),
        between: "\n".into(),
    };
    let tool = |name: &str| Callable {
        name: name.into(),
        parameters: Some(Schema { text: arguments.to_string(), exact: true }),
    };
    let begun = "<tool_call>\n{\"name\":".to_owned();
    let tools = vec![tool("left"), tool("right")];
    let form = Form::Calls(Calls { shape, begun, tools, parallel: false });
    for sampling in samplings() {
        let mut call = ask(&house, &json!({}), sampling);
        call.constraint = Some(Constraint { lead: Lead::None, form: form.clone() });
        let answer = call.submit().answer();
        assert_eq!(answer.finish.reason, FinishReason::Stop(END));
        let text = TINY.tokenizer().decode(&answer.tokens);
        let text = format!("{{\"name\":{}", text.strip_suffix("\n</tool_call>").unwrap());
        let call: Value = serde_json::from_str(&text).unwrap();
        assert!(["left", "right"].contains(&call["name"].as_str().unwrap()));
        assert!((0..=9).contains(&call["arguments"]["n"].as_i64().unwrap()), "{text}");
    }
}

/// What cannot be enforced fails before the first token; what runs beside it goes on.
#[test]
fn a_schema_that_does_not_compile_fails_the_answer() {
    let house = House::start(&TINY, |config| EmbeddedConfig { max_batch: 2, ..config });
    let mut beside = house.ask(&prompt(40), 50).submit();
    let bad = json!({"type": "string", "pattern": "("});
    let mut stream = ask(&house, &bad, Sampling::GREEDY).submit();
    let Some(StreamItem::Failed(Refusal::Failed(why))) = stream.next() else { panic!("it ran") };
    assert!(!why.is_empty());
    assert_eq!(stream.next(), None);
    stream.wait_released();
    assert_eq!(beside.answer().tokens.len(), 50);
}

/// A request that knows no end still ends when its form is whole.
#[test]
fn the_form_ends_the_answer() {
    let house = roomy();
    let mut endless = ask(&house, &json!({"const": [true]}), Sampling::GREEDY);
    endless.limits = Limits { max_tokens: 400, stop_tokens: vec![] };
    let answer = endless.submit().answer();
    assert!(matches!(answer.finish.reason, FinishReason::Stop(_)));
    let said: Value = serde_json::from_str(&TINY.tokenizer().decode(&answer.tokens)).unwrap();
    assert_eq!(said, json!([true]));
}

/// The mock engine plays its script whatever the form.
#[test]
fn the_mock_engine_answers_as_written() {
    let dram = kernels::Pool::new(16 << 10, 16).unwrap();
    let house = House::mock(&Arc::clone(&TINY), dram, |config| config);
    assert!(!house.engine().constrains());
    let mut any = house.ask(&prompt(30), 8);
    any.constraint = Some(form(&json!({"type": "null"})));
    assert_eq!(any.submit().answer().tokens.len(), 8);
}
