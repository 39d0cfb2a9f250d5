use super::Processor;
use crate::{Date, Model, OpenOptions, RenderRequest};
use protocol::card::BlobDigest;
use serde_json::json;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// What is read off a card equals the model that the card was made of.
pub(crate) fn agrees(model: &Model) {
    let (card, tokenizer) = model.card("name", &["alias".into()], "hermes");
    assert_eq!(card.tokenizer, BlobDigest::of(&tokenizer));
    assert_eq!(model.card("name", &["alias".into()], "hermes").0, card, "cards are stable");
    let sent = protocol::wire::decode(&card.encode().unwrap()).unwrap();
    assert_eq!(card, sent);
    let read = Processor::from_card(&sent, &tokenizer, &OpenOptions::default()).unwrap();
    assert_eq!(read.stop_tokens(), model.stop_tokens());
    assert_eq!(read.tokenizer().vocab_size(), model.tokenizer().vocab_size());
    let messages = [
        json!({"role": "system", "content": "Be brief — ünïcödé, 日本語, 👩‍💻."}),
        json!({"role": "user", "content": "let x = 0x1F; // 12345 \r\n\t  it's  we'll\n\n\nfoo()"}),
    ];
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    let request = RenderRequest {
        messages: &messages,
        tools: std::slice::from_ref(&tool),
        add_generation_prompt: true,
    };
    let text = model.template().render(&request).unwrap();
    assert_eq!(read.template().render(&request).unwrap(), text);
    for special in [false, true] {
        let tokens = model.tokenizer().encode(&text, special);
        assert_eq!(read.tokenizer().encode(&text, special), tokens);
        assert_eq!(read.tokenizer().decode(&tokens), model.tokenizer().decode(&tokens));
        let is_special = |token| read.tokenizer().is_special(token);
        assert!(tokens.iter().all(|t| model.tokenizer().is_special(*t) == is_special(*t)));
    }
    assert_eq!(read.tokenizer().fewest(&text), model.tokenizer().fewest(&text));
}

#[test]
fn a_card_of_a_folder() {
    agrees(&Model::open(&fixtures().join("tiny-qwen3")).unwrap());
}

#[test]
fn a_card_of_the_model_without_files() {
    agrees(&Model::builtin().unwrap());
}

#[test]
fn a_template_that_demands_the_day_gets_it() {
    let (mut card, tokenizer) = Model::builtin().unwrap().card("name", &[], "hermes");
    card.template = Some("{{ strftime_now('%Y') }}".into());
    let today = Some(Date { year: 2026, month: 11, day: 30 });
    let read = Processor::from_card(&card, &tokenizer, &OpenOptions { today }).unwrap();
    let messages = [json!({"role": "user", "content": "x"})];
    let request = RenderRequest { messages: &messages, tools: &[], add_generation_prompt: false };
    assert_eq!(read.template().render(&request).unwrap(), "2026");
}

#[test]
fn cards_that_cannot_be_used() {
    let (card, tokenizer) = Model::builtin().unwrap().card("name", &[], "hermes");
    let options = OpenOptions::default();
    assert!(Processor::from_card(&card, b"{}", &options).is_err());
    assert!(Processor::from_card(&card, b"", &options).is_err());
    let broken = protocol::card::ModelCard { template: Some("{% if".into()), ..card };
    assert!(Processor::from_card(&broken, &tokenizer, &options).is_err());
}
