//! Renderings held against those of transformers.

use super::template;
use serde_json::Value;

struct Case {
    template: String,
    name: String,
    messages: Vec<Value>,
    tools: Vec<Value>,
    prompt: bool,
    expected: String,
    source: Option<String>,
}

fn cases() -> Vec<Case> {
    let path = "/../../tests/fixtures/reference/templates.json";
    let text = std::fs::read_to_string(env!("CARGO_MANIFEST_DIR").to_owned() + path).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
    let case = |case: &Value| Case {
        template: text(case, "template"),
        name: text(case, "name"),
        messages: case["messages"].as_array().unwrap().clone(),
        tools: case["tools"].as_array().unwrap().clone(),
        prompt: case["add_generation_prompt"].as_bool().unwrap(),
        expected: text(case, "expected"),
        source: case.get("source").map(|source| source.as_str().unwrap().to_owned()),
    };
    cases.iter().map(case).collect()
}

/// The template alone renders as under transformers.
#[test]
fn raw_renderings_are_equal() {
    let mut differing = Vec::new();
    for case in cases() {
        let template = match case.template.as_str() {
            "tiny-qwen3" => super::tiny(),
            "smollm2" => template(super::SMOLLM2),
            _ => template(case.source.as_deref().unwrap()),
        };
        let text = template.render_raw(&case.messages, &case.tools, case.prompt);
        if text.as_ref() != Ok(&case.expected) {
            differing
                .push(format!("{}/{}:\n{text:?}\n{:?}", case.template, case.name, case.expected));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}

/// With our folding in between nothing changes, where the template can say it all itself.
#[test]
fn renderings_are_equal() {
    for case in cases().iter().filter(|case| case.template != "inline") {
        let template = match case.template.as_str() {
            "tiny-qwen3" => super::tiny(),
            _ => template(super::SMOLLM2),
        };
        let request = crate::RenderRequest {
            messages: &case.messages,
            tools: &case.tools,
            add_generation_prompt: case.prompt,
        };
        let text = template.render(&request).unwrap();
        assert_eq!(text, case.expected, "{}/{}", case.template, case.name);
    }
}
