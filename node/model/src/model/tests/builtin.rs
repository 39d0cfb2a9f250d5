//! The model without files.

use crate::{Model, RenderRequest};
use protocol::hash::Token;
use serde_json::json;

#[test]
fn each_byte_is_a_token_and_comes_back() {
    let model = Model::builtin().unwrap();
    let tokenizer = model.tokenizer();
    let all: String = (0..=0x7f_u8).map(char::from).chain("äß→🦀\u{0}".chars()).collect();
    let tokens = tokenizer.encode(&all, false);
    let expected: Vec<Token> = all.bytes().map(|byte| Token(byte.into())).collect();
    assert_eq!(tokens, expected);
    assert_eq!(tokenizer.decode(&tokens), all);
    assert_eq!(tokenizer.vocab_size(), 259);
    assert!((all.len() / 2..=all.len()).contains(&tokenizer.fewest(&all)));
    let marked = tokenizer.encode("<|im_start|>a<|im_end|>", false);
    assert_eq!(marked, [Token(256), Token(97), Token(257)]);
    assert_eq!(model.stop_tokens(), [Token(257), Token(258)]);
    assert!([256, 257, 258].iter().all(|token| tokenizer.is_special(Token(*token))));
    assert!(!tokenizer.is_special(Token(255)));
}

#[test]
fn its_names_are_fixed() {
    let model = Model::builtin().unwrap();
    assert_eq!((model.name(), model.config().max_position), (Model::BUILTIN, 262_144));
    let routing = model.routing();
    assert_eq!(routing, Model::builtin().unwrap().routing());
    let hex = |digest: [u8; 32]| digest.iter().map(|b| format!("{b:02x}")).collect::<String>();
    // Nodes of different versions must agree, or know that they do not.
    assert_eq!(
        hex(routing.tokenizer),
        "e74c20c63c3a4ce208cd5c93cebd56904f2e128586beb940d09e2e26f61ad824"
    );
    assert_eq!(
        hex(routing.weights),
        "0a6fd8a3ddb92afc76f3c98a8a2e5c264a714b80ffd48faa41a6a08f8a2ad4d0"
    );
}

#[test]
fn its_template_keeps_the_prefix_property_and_says_tools_in_words() {
    let model = Model::builtin().unwrap();
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": {}}});
    let call = json!({"id": "c1", "function": {"name": "look", "arguments": "{\"at\": \"sea\"}"}});
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "What is there?"}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "water"}),
        json!({"role": "assistant", "content": "Water."}),
        json!({"role": "system", "content": "Be long."}),
    ];
    let render = |count: usize, add_generation_prompt: bool| {
        let messages = &messages[..count];
        let tools = std::slice::from_ref(&tool);
        model.template().render(&RenderRequest { messages, tools, add_generation_prompt }).unwrap()
    };
    let whole = render(messages.len(), false);
    for count in 1..messages.len() {
        assert!(whole.starts_with(&render(count, false)), "{count}");
    }
    assert!(render(2, true).ends_with("What is there?<|im_end|>\n<|im_start|>assistant\n"));
    assert!(
        whole.contains(r#"<tool_call>{"name": "look", "arguments": {"at": "sea"}}</tool_call>"#)
    );
    assert!(whole.contains("<tool_response>water</tool_response>"));
    assert!(whole.contains("<|im_start|>system\nBe long."));
}

#[test]
fn there_is_nothing_to_compute_with() {
    let model = Model::builtin().unwrap();
    assert_eq!(model.weights().names().count(), 0);
    assert!(model.weights().tensor("model.embed_tokens.weight").is_err());
}
