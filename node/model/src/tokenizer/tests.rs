use super::Tokenizer;
use crate::ModelError;
use crate::gguf::{Header, tests::Writer};
use proptest::prelude::*;
use protocol::hash::Token;
use std::path::Path;
use std::sync::LazyLock;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-qwen3");

static TINY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let path = Path::new(FIXTURE).join("tokenizer.json");
    Tokenizer::from_json(&path, &std::fs::read(&path).unwrap()).unwrap()
});

/// A byte-level GGUF vocabulary: the 256 bytes, a few merges, control and user-defined tokens.
fn gguf(pre: &str) -> Writer {
    let mut tokens: Vec<String> = (0..=255u32).map(|byte| alphabet(byte).to_string()).collect();
    tokens.extend(["he", "ll", "hell", "hello", "Ġhello", "12"].map(String::from));
    let mut types = vec![1; tokens.len()];
    tokens.extend(["<|im_start|>", "<|im_end|>", "<tool_call>"].map(String::from));
    types.extend([3, 3, 4]);
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2"].map(String::from);
    Writer::default()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &merges)
        .ints("tokenizer.ggml.token_type", &types)
        .u32("tokenizer.ggml.bos_token_id", 262)
        .u32("tokenizer.ggml.eos_token_id", 263)
}

/// The byte's letter, written independently of the code under test.
fn alphabet(byte: u32) -> char {
    let printable = |b: u32| (33..127).contains(&b) || (161..256).contains(&b) && b != 173;
    let code = match printable(byte) {
        true => byte,
        false => 256 + (0..byte).filter(|b| !printable(*b)).count() as u32,
    };
    char::from_u32(code).unwrap()
}

fn from_gguf(writer: &Writer) -> Result<Tokenizer, ModelError> {
    super::from_gguf(Path::new("x.gguf"), &Header::read(&writer.bytes()).unwrap())
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

#[test]
fn special_tokens_in_text_become_themselves() {
    let tokens = TINY.encode("<|im_start|>user\nHi<tool_call><|im_end|>", false);
    assert_eq!(tokens.first(), TINY.token("<|im_start|>").as_ref());
    assert_eq!(tokens.last(), TINY.token("<|im_end|>").as_ref());
    assert!(tokens.contains(&TINY.token("<tool_call>").unwrap()));
    // Control tokens are not text, marks of the model's own language are.
    assert_eq!(TINY.decode(&tokens), "user\nHi<tool_call>");
    assert!(TINY.is_special(tokens[0]) && !TINY.is_special(Token(1_000_000)));
}

#[test]
fn gguf_vocabularies() {
    let tokenizer = from_gguf(&gguf("smollm")).unwrap();
    assert_eq!(tokenizer.vocab_size(), 265);
    assert_eq!(ids(&tokenizer.encode("hello hello", false)), [259, 260]);
    let chat = tokenizer.encode("<|im_start|>hello<tool_call>", false);
    assert_eq!(ids(&chat), [262, 259, 264]);
    assert_eq!(tokenizer.decode(&chat), "hello<tool_call>");
    // smollm takes digits one by one, gpt-2 does not.
    assert_eq!(tokenizer.encode("12", false).len(), 2);
    assert_eq!(ids(&from_gguf(&gguf("gpt-2")).unwrap().encode("12", false)), [261]);
    assert_eq!(ids(&from_gguf(&gguf("llama-bpe")).unwrap().encode("12", false)), [261]);
    assert_eq!(from_gguf(&gguf("qwen2")).unwrap().encode("12", false).len(), 2);
}

#[test]
fn begin_and_end_only_when_asked_for() {
    let writer = gguf("gpt-2").flag("tokenizer.ggml.add_bos_token", true);
    let tokenizer = from_gguf(&writer).unwrap();
    assert_eq!(ids(&tokenizer.encode("hello", false)), [259]);
    assert_eq!(ids(&tokenizer.encode("hello", true)), [262, 259]);
    let both = from_gguf(&writer.flag("tokenizer.ggml.add_eos_token", true)).unwrap();
    assert_eq!(ids(&both.encode("hello", true)), [262, 259, 263]);
}

#[test]
fn other_vocabularies_are_named() {
    let message = from_gguf(&gguf("viking")).unwrap_err().to_string();
    assert!(message.contains("viking") && message.contains("smollm"), "{message}");
    let spm = Writer::default().text("tokenizer.ggml.model", "llama");
    assert!(matches!(from_gguf(&spm), Err(ModelError::Unsupported { .. })));
    let short = Writer::default()
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &["a".into()]);
    let message = from_gguf(&short).unwrap_err().to_string();
    assert!(message.contains("tokenizer.ggml.merges"), "{message}");
    let twice = short.clone().texts("tokenizer.ggml.merges", &["a b".into()]);
    assert!(matches!(from_gguf(&twice), Err(ModelError::Tokenizer { .. })));
    let garbage = Tokenizer::from_json(Path::new("t.json"), b"{\"version\":");
    assert!(matches!(garbage, Err(ModelError::Tokenizer { .. })));
}

#[test]
fn a_character_in_pieces_comes_out_whole() {
    let tokenizer = from_gguf(&gguf("gpt-2")).unwrap();
    let tokens = tokenizer.encode("ü🙂", false);
    assert_eq!(tokens.len(), 6);
    let mut stream = tokenizer.decode_stream();
    let told: Vec<Option<String>> = tokens.iter().map(|token| stream.push(*token)).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(told, [None, some("ü"), None, None, None, some("🙂")]);
    assert_eq!(stream.finish(), "");
    // An answer that ends inside a character, and one that goes on with something else.
    let mut cut = tokenizer.decode_stream();
    assert_eq!(cut.push(tokens[2]), None);
    assert_eq!(cut.finish(), "\u{fffd}");
    let mut broken = tokenizer.decode_stream();
    assert_eq!(broken.push(tokens[2]), None);
    assert_eq!(broken.push(Token(259)), some("\u{fffd}hello"));
}

/// The same vocabulary without the byte table, as tokenizers of other kinds are decoded.
fn without_table(tokenizer: &Tokenizer) -> Tokenizer {
    let upstream = tokenizer.inner.upstream.clone();
    let special = tokenizer.inner.special.clone();
    Tokenizer {
        inner: std::sync::Arc::new(super::Inner {
            upstream,
            special,
            table: None,
            fewest: None,
            pieces: super::Pieces::Whole,
        }),
    }
}

proptest! {
    #[test]
    fn text_survives(text in "\\PC{0,40}") {
        // Qwen's tokenizers normalise to NFC; text that is NFC already comes back as it was.
        let tokens = TINY.encode(&text, false);
        let again = TINY.decode(&tokens);
        prop_assert_eq!(TINY.encode(&again, false), tokens);
        let plain = from_gguf(&gguf("gpt-2")).unwrap();
        prop_assert_eq!(plain.decode(&plain.encode(&text, false)), text);
    }

    /// Pieces put together are the whole as the library decodes it, and the pieces of text that
    /// was whole have no replacement characters.
    #[test]
    fn streams_equal_the_library(tokens in prop::collection::vec(0u32..1024, 0..40)) {
        let mut stream = TINY.decode_stream();
        let mut text: String = tokens.iter().filter_map(|id| stream.push(Token(*id))).collect();
        text.push_str(&stream.finish());
        prop_assert_eq!(text, TINY.inner.upstream.decode(&tokens, true).unwrap());
    }

    #[test]
    fn streams_of_text_have_no_replacements(text in "[a-zäß日本語🙂🇨🇭 ]{0,20}") {
        for tokenizer in [TINY.clone(), without_table(&TINY)] {
            let mut stream = tokenizer.decode_stream();
            let mut whole = String::new();
            for token in tokenizer.encode(&text, false) {
                let piece = stream.push(token).unwrap_or_default();
                prop_assert!(!piece.contains(char::REPLACEMENT_CHARACTER));
                whole.push_str(&piece);
            }
            whole.push_str(&stream.finish());
            prop_assert_eq!(&whole, &text);
        }
    }
}

/// SentencePiece's way, as Llama 2 has it: letters without a token are spelt in bytes.
static SPELT: LazyLock<Tokenizer> = LazyLock::new(|| {
    let mut vocab = serde_json::Map::new();
    let mut add = |token: String| {
        let id = vocab.len();
        vocab.insert(token, id.into());
    };
    add("<unk>".into());
    (0..=255u8).for_each(|byte| add(format!("<0x{byte:02X}>")));
    ('a'..='z').for_each(|letter| add(letter.into()));
    add("\u{2581}".into());
    let library = serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": null, "post_processor": null,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
        ]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "vocab": vocab, "unk_token": "<unk>", "fuse_unk": true,
                  "byte_fallback": true, "merges": []},
    });
    Tokenizer::from_json(Path::new("spelt"), library.to_string().as_bytes()).unwrap()
});

/// Its token of a byte.
fn spelt(byte: u8) -> Token {
    SPELT.token(&format!("<0x{byte:02X}>")).unwrap()
}

/// All text of a stream.
fn streamed(tokenizer: &Tokenizer, tokens: &[Token]) -> String {
    let mut stream = tokenizer.decode_stream();
    let mut text: String = tokens.iter().filter_map(|token| stream.push(*token)).collect();
    text.push_str(&stream.finish());
    text
}

#[test]
fn bytes_that_are_no_text_are_decoded_in_linear_time() {
    let text = |bytes: usize| "\u{fffd}".repeat(bytes);
    assert!(SPELT.decode(&vec![spelt(0x80); 200_000]) == text(200_000));
    assert!(streamed(&SPELT, &vec![spelt(0x80); 20_000]) == text(20_000));
    let bytes = without_table(&from_gguf(&gguf("gpt-2")).unwrap());
    let lone = bytes.encode("ü", false)[1];
    assert!(bytes.decode(&vec![lone; 200_000]) == text(200_000));
    assert!(streamed(&bytes, &vec![lone; 20_000]) == text(20_000));
}

/// A byte that is no text takes nothing with it of what comes before or after it.
#[test]
fn text_around_a_lone_byte_is_not_lost() {
    let face: Vec<Token> = "🙂".bytes().map(spelt).collect();
    let word = SPELT.encode("and so on", false);
    for (tokens, text) in [
        ([face.clone(), vec![spelt(0x80)], word.clone()].concat(), "🙂\u{fffd} and so on"),
        ([face.clone(), vec![spelt(0x80)]].concat(), "🙂\u{fffd}"),
        ([word.clone(), vec![spelt(0xf0)], word].concat(), "and so on\u{fffd} and so on"),
        ([face.clone(), face.clone(), face[..2].to_vec()].concat(), "🙂🙂\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(streamed(&SPELT, &tokens), text);
    }
}

proptest! {
    /// However long a row of spelt letters is, each comes out with its last byte.
    #[test]
    fn spelt_letters_come_out_whole(text in "[a-zé日本🙂🇨🇭 ]{0,40}") {
        let tokens = SPELT.encode(&text, false);
        prop_assert_eq!(&SPELT.decode(&tokens), &text);
        let mut stream = SPELT.decode_stream();
        let mut letters = text.chars();
        let mut told = String::new();
        for token in tokens {
            let piece = stream.push(token).unwrap_or_default();
            prop_assert!(piece.chars().all(|letter| letters.next() == Some(letter)), "{:?}", piece);
            told.push_str(&piece);
        }
        prop_assert_eq!(&told, &text);
        prop_assert_eq!(stream.finish(), "");
    }

    /// Bytes of characters, whole and broken, in tokens that are not looked up in a table.
    #[test]
    fn streams_without_a_table_equal_the_library(
        tokens in prop::collection::vec(prop::sample::select(vec!["a", "ü", "世", "🙂"]), 0..40),
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let tokenizer = without_table(&from_gguf(&gguf("gpt-2")).unwrap());
        let mut tokens = tokenizer.encode(&tokens.concat(), false);
        for at in dropped {
            if !tokens.is_empty() {
                tokens.remove(at.index(tokens.len()));
            }
        }
        let whole = tokenizer.inner.upstream.decode(&ids(&tokens), true).unwrap();
        prop_assert_eq!(streamed(&tokenizer, &tokens), whole.clone());
        prop_assert_eq!(tokenizer.decode(&tokens), whole);
    }

    /// Whatever comes, no letter is lost that has a token.
    #[test]
    fn any_tokens_can_be_streamed(tokens in prop::collection::vec(0u32..290, 0..200)) {
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).count();
        let spelt: Vec<Token> = tokens.into_iter().map(Token).collect();
        let own = |token: &&Token| (257..283).contains(&token.0);
        let told = letters(&streamed(&SPELT, &spelt));
        prop_assert!(told >= spelt.iter().filter(own).count(), "{:?}", spelt);
    }
}

/// The lower bound counts every letter: text of long words is cheaper than text of short ones.
#[test]
fn the_fewest_tokens_follow_the_vocabulary() {
    let tokenizer = from_gguf(&gguf("gpt-2")).unwrap();
    // `x` is in no token but its own; `h` is in ` hello`, and `l` and `o` also in `<tool_call>`.
    assert_eq!(tokenizer.fewest(&"x".repeat(1000)), 1000);
    assert_eq!(tokenizer.fewest(&"h".repeat(1200)), 200);
    assert_eq!(tokenizer.encode(&" hello".repeat(1000), false).len(), 1000);
    let bound = tokenizer.fewest(&" hello".repeat(1000));
    assert!((600..=1000).contains(&bound), "{bound}");
    assert_eq!(tokenizer.fewest(""), 0);
}

/// Nothing is known where a normaliser or a splitter may take away text, or where a byte has no
/// token of its own.
#[test]
fn no_bound_where_text_can_vanish() {
    let path = Path::new(FIXTURE).join("tokenizer.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let fewest = |change: fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        let tokenizer = Tokenizer::from_json(&path, json.to_string().as_bytes()).unwrap();
        tokenizer.fewest(&"word ".repeat(1000))
    };
    assert!(fewest(|_| {}) > 0);
    assert_eq!(fewest(|t| t["normalizer"] = serde_json::json!({"type": "NFKC"})), 0);
    assert_eq!(fewest(|t| t["added_tokens"][1]["rstrip"] = true.into()), 0);
    assert_eq!(
        fewest(|t| t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed".into()),
        0
    );
}

proptest! {
    /// The bound never exceeds the truth, also where NFC makes text shorter.
    #[test]
    fn fewest_is_a_lower_bound(
        text in "(\\PC|[ a-zé\u{212a}\u{212b}\u{1fbe}\u{308}\u{301}\u{344}\u{1100}\u{1161}\u{11a8}]|<tool_call>|<\\|im_end\\|>){0,60}",
        times in 1usize..20,
    ) {
        let text = text.repeat(times);
        for tokenizer in [TINY.clone(), from_gguf(&gguf("gpt-2")).unwrap()] {
            prop_assert!(tokenizer.fewest(&text) <= tokenizer.encode(&text, false).len());
        }
    }
}

/// The tokens of a text that the library was given whole.
fn whole(tokenizer: &Tokenizer, text: &str) -> Vec<Token> {
    let encoding = tokenizer.inner.upstream.encode_fast(text, true).unwrap();
    encoding.get_ids().iter().copied().map(Token).collect()
}

#[test]
fn a_long_text_in_pieces_has_the_tokens_of_the_whole() {
    const LONG: usize = 400 << 10;
    let fixture = std::fs::read(format!("{FIXTURE}/tokenizer.json")).unwrap();
    let fixture = Tokenizer::from_json(Path::new("fixture"), &fixture).unwrap();
    let path = Path::new("builtin");
    let bytes = Tokenizer::byte_level(path, &["<|im_start|>", "<|im_end|>"]).unwrap();
    for part in [
        "fn main() {\n    say(\"é世界 🦀\");\n}\nThe end of it\n\nNext one\nand more, 12345.\n",
        "<|im_end|>\n<|im_start|>user\nhello\nworld<|im_end|><|im_start|>",
        "a\r\nb\n \n  c\td\n",
        "世界",
        "x",
        "\n",
        " \u{301}a\n\u{301}b",
    ] {
        let text = part.repeat(LONG / part.len());
        // Where a piece ends differs with what stands before.
        for lead in ["", "x", "ab\ncd"] {
            let text = format!("{lead}{text}");
            for tokenizer in [&fixture, &bytes] {
                let tokens = tokenizer.encode(&text, true);
                assert!(tokens == whole(tokenizer, &text), "{part:?} after {lead:?}");
            }
        }
    }
    let most = |text: &str| bytes.inner.pieces.of(text).map(str::len).max().unwrap();
    assert!(most(&"x".repeat(LONG)) < LONG / 4, "bytes are cut anywhere");
    assert!(fixture.inner.pieces.of(&"one\ntwo\n".repeat(LONG / 8)).count() > 4, "or at lines");
}
