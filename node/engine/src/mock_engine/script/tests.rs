use super::*;

fn model() -> Model {
    Model::builtin().unwrap()
}

fn prompt(model: &Model, messages: &[(&str, &str)]) -> Vec<Token> {
    let messages: Vec<_> = messages
        .iter()
        .map(|(role, content)| serde_json::json!({"role": role, "content": content}))
        .collect();
    let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt: true };
    model.tokenizer().encode(&model.template().render(&request).unwrap(), false)
}

fn said(model: &Model, script: Option<&Script>) -> Option<String> {
    let script = script?;
    let tokens: Vec<Token> = (0..script.len()).filter_map(|i| script.token(i)).collect();
    Some(model.tokenizer().decode(&tokens))
}

const TOML: &str = r#"
[[answer]]
prompt_contains = "weather"
turn = 2
chunks = ["second", " weather"]
[[answer]]
prompt_contains = "weather"
pace_ms = 2.5
chunks = ["weather"]
[[answer]]
turn = 3
chunks = ["third"]
[[answer]]
chunks = ["else"]
"#;

const LINES: &str = r#"
// the same
{"prompt_contains": "weather", "turn": 2, "chunks": ["second", " weather"]}
{"prompt_contains": "weather", "pace_ms": 2.5, "chunks": ["weather"]}

{"turn": 3, "chunks": ["third"]}
{"chunks": ["else"]}
"#;

#[test]
fn the_first_answer_whose_conditions_hold_is_played() {
    let model = model();
    let first = [("user", "How is the weather?")];
    let second = [first[0], ("assistant", "fine"), ("user", "And now?")];
    let other = [("system", "x"), ("user", "hello")];
    let third = [other[1], ("assistant", "a"), other[1], ("assistant", "b"), other[1]];
    for scripts in [Scripts::from_toml(TOML, &model), Scripts::from_json_lines(LINES, &model)] {
        let scripts = scripts.unwrap();
        let answer = |messages: &[(&str, &str)]| {
            let script = scripts.choose(&prompt(&model, messages), 0);
            said(&model, script.as_deref()).unwrap()
        };
        assert_eq!(answer(&first), "weather");
        assert_eq!(answer(&second), "second weather");
        assert_eq!(answer(&other), "else");
        assert_eq!(answer(&third), "third");
    }
}

#[test]
fn what_was_answered_before_is_no_part_of_the_question() {
    let model = model();
    let text = "[[answer]]\nprompt_contains = \"weather\"\nchunks = [\"a\"]";
    let scripts = Scripts::from_toml(text, &model).unwrap();
    let mut tokens = prompt(&model, &[("user", "hello")]);
    assert!(scripts.choose(&tokens, 0).is_none());
    tokens.extend(model.tokenizer().encode("weather", false));
    assert!(scripts.choose(&tokens, 7).is_none());
    assert!(scripts.choose(&tokens, 0).is_some());
}

#[test]
fn mistakes_are_told_with_their_place() {
    let model = model();
    let toml = |text: &str| Scripts::from_toml(text, &model).unwrap_err().to_string();
    let lines = |text: &str| Scripts::from_json_lines(text, &model).unwrap_err().to_string();
    assert_eq!(toml(""), "no [[answer]] in it");
    assert!(toml("[[answer]]\nchunk = []").contains("unknown field `chunk`"));
    assert!(toml("[[answer]]").contains("chunks"));
    assert_eq!(toml("[[answer]]\nturn = 0\nchunks = []"), "answer 1: `turn` counts from 1");
    assert!(toml("[[answer]]\npace_ms = -1\nchunks = []").contains("`pace_ms`"));
    assert!(lines("{\"chunks\": []}\n{chunks}").starts_with("line 2 is not an answer in JSON"));
    assert_eq!(lines("// nothing"), "no [[answer]] in it");
}
