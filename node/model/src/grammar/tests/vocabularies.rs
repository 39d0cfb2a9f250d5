//! Tokens and their bytes.

use super::*;
use serde_json::json;

/// SentencePiece's way: spaces are U+2581, bytes without a letter are spelt.
fn fallback() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    let mut add = |token: String| {
        let id = vocab.len();
        vocab.entry(token).or_insert(id.into());
    };
    ["<unk>", "<s>", "</s>"].iter().for_each(|token| add((*token).into()));
    (0..=255).for_each(|byte| add(format!("<0x{byte:02X}>")));
    (' '..='~').filter(|letter| *letter != ' ').for_each(|letter| add(letter.into()));
    ["▁", "▁{", "ü", "{\"", "\"}", "▁\""].iter().for_each(|token| add((*token).into()));
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let library = json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
        ]},
        "model": {"type": "BPE", "vocab": vocab, "unk_token": "<unk>", "fuse_unk": true,
                  "byte_fallback": true,
                  "merges": ["▁ {", "{ \"", "\" }", "▁ \""]},
    });
    Tokenizer::from_json(Path::new("x"), library.to_string().as_bytes()).unwrap()
}

#[test]
fn every_token_has_its_bytes() {
    let builtin = Tokenizer::byte_level(Path::new("x"), &["<end>"]).unwrap();
    for tokenizer in [TINY.clone(), builtin, fallback()] {
        let environment = vocabulary::of(&tokenizer, &[]).unwrap();
        let trie = environment.tok_trie();
        assert_eq!(trie.vocab_size(), tokenizer.vocab_size());
        for id in (0..tokenizer.vocab_size() as u32).map(Token) {
            let bytes = trie.token(id.0);
            if tokenizer.is_special(id) {
                assert_eq!(bytes.first(), Some(&0xff));
                continue;
            }
            // What the library itself says, where that is a text.
            let text = tokenizer.decode(&[id]);
            if !text.contains('\u{fffd}') {
                assert_eq!(String::from_utf8_lossy(bytes), text, "{:?}", tokenizer.spelling(id));
            }
        }
        let text = "{\"ü\": \"🙂 日本\", \"b\":\t[1,\n 2]}";
        let bytes: Vec<u8> = tokenizer
            .encode(text, false)
            .iter()
            .flat_map(|token| tokenizer.bytes(*token).unwrap())
            .collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}

/// Letters whose bytes are spread over tokens are text like any other.
#[test]
fn letters_in_pieces() {
    let builtin = Tokenizer::byte_level(Path::new("x"), &["<end>"]).unwrap();
    for (tokenizer, end) in [(builtin, Token(256)), (fallback(), Token(2))] {
        let grammars = Grammars::new(tokenizer.clone(), vec![end]);
        let described = json!({"type": "object", "properties": {"ü": {"type": "string"}},
                               "required": ["ü"], "additionalProperties": false});
        let grammar = grammars.compile(&schema(&described, true)).unwrap();
        let tokens = tokenizer.encode("{\"ü\": \"日🙂\"}", false);
        assert!(tokens.len() > 10);
        assert_eq!(fate(&grammar, &tokens), Fate::Must);
        // The first byte of a letter, then no letter.
        let cut = tokenizer.encode("{\"ü\": \"日", false);
        let quote = tokenizer.encode("\"", false);
        let broken: Vec<Token> = cut[..cut.len() - 1].iter().chain(&quote).copied().collect();
        assert_eq!(fate(&grammar, &broken), Fate::Refused(broken.len() - 1));
    }
}

#[test]
fn ends_are_no_text() {
    let grammar = tiny().compile(&schema(&json!({"type": "string"}), true)).unwrap();
    let mut guide = grammar.begin();
    for token in TINY.encode("\"abc\"", false) {
        let mask = guide.mask().unwrap();
        assert!(!mask.allows(END) && !mask.may_end());
        guide.accept(token).unwrap();
    }
    assert!(guide.mask().unwrap().must_end());
    // Tokens beyond the vocabulary, as padded embeddings have, are not allowed.
    assert!(!grammar.begin().mask().unwrap().allows(Token(5000)));
}

/// A vocabulary whose tokens have no bytes of their own cannot be held to anything.
#[test]
fn other_vocabularies_say_so() {
    let library = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    });
    let tokenizer = Tokenizer::from_json(Path::new("x"), library.to_string().as_bytes()).unwrap();
    let error = Grammars::new(tokenizer, vec![]).compile(&schema(&json!({}), true)).unwrap_err();
    assert!(matches!(error, GrammarError::Vocabulary(_)), "{error}");
}
