use super::*;
use crate::testing::{key, tiny, tokens};
use proptest::prelude::*;

/// Chat-like texts: turns whose borders and content try to stick together.
fn turns() -> impl Strategy<Value = Vec<String>> {
    let content = prop::sample::select(vec![
        "",
        " ",
        "\n",
        "hello",
        " world",
        "世界 🦀",
        "a\u{301}",
        "1234567",
        "<|im_end|>",
        "<|im_start|>",
        "<tool_call>",
        "x = [1, 2]\n\n",
        "it's",
        "  \n ",
    ]);
    let turn = (
        prop::sample::select(vec!["user", "assistant", "system"]),
        prop::collection::vec(content, 0..6),
    )
        .prop_map(|(role, parts)| format!("<|im_start|>{role}\n{}<|im_end|>\n", parts.concat()));
    prop::collection::vec(turn, 1..6)
}

#[test]
fn the_tiny_model_has_a_turn_marker() {
    assert_eq!(cuts::turn_marker(&tiny()).as_deref(), Some("<|im_start|>"));
}

#[test]
fn only_what_is_new_is_tokenised() {
    let cache = PrefixCache::new(1 << 20);
    let head = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n";
    cache.tokenise(&tiny(), &key(1), head);
    let before = cache.lock().tokens.entries.len();
    cache.tokenise(&tiny(), &key(1), &format!("{head}<|im_start|>assistant\n"));
    assert_eq!(cache.lock().tokens.entries.len(), before + 1, "one new part");
    cache.tokenise(&tiny(), &key(2), head);
    assert_eq!(cache.lock().tokens.entries.len(), before * 2 + 1, "tenants share nothing");
}

#[test]
fn a_full_cache_forgets_the_oldest_and_stays_within_bounds() {
    let mut lru: Lru<u32> = Lru::new(4 * (ENTRY_BYTES + 10));
    let name = |n: u8| [n; 32];
    for n in 0..4 {
        lru.insert(name(n), n.into(), 10);
    }
    assert_eq!(lru.get(&name(0)), Some(0));
    lru.insert(name(4), 4, 10);
    assert_eq!((lru.get(&name(0)), lru.get(&name(1))), (Some(0), None));
    lru.insert(name(5), 5, 4 * ENTRY_BYTES);
    assert_eq!(lru.get(&name(5)), None, "what is too large is not kept");
    assert!(lru.bytes <= lru.limit);
    assert_eq!((lru.entries.len(), lru.order.len()), (4, 4));
}

/// The model that newcomers get, where it is there.
#[test]
fn a_real_tokenizer_may_be_cut_at_its_turns() {
    let path = match std::env::var_os("DYNAMO_TEST_MODEL") {
        Some(path) => std::path::PathBuf::from(path),
        None => std::env::home_dir()
            .unwrap()
            .join(".cache/dynamo-node/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    };
    if !path.exists() {
        println!("skipped: no model at {}", path.display());
        return;
    }
    let model = Model::open(&path).unwrap();
    assert_eq!(cuts::turn_marker(&model).as_deref(), Some("<|im_start|>"));
    let turn = "<|im_start|>user\n  What's 12345 + 世界🦀?\n\n<|im_end|>\n";
    let text = format!("{}<|im_start|>assistant\n", turn.repeat(5));
    let prompt = PrefixCache::new(1 << 20).tokenise(&model, &key(1), &text);
    assert_eq!(prompt.tokens, model.tokenizer().encode(&text, false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn step_by_step_equals_in_one_go(turns in turns(), small: bool) {
        let cache = PrefixCache::new(if small { 2048 } else { 1 << 20 });
        let key = key(1);
        for n in 1..=turns.len() {
            let text = format!("{}<|im_start|>assistant\n", turns[..n].concat());
            let prompt = cache.tokenise(&tiny(), &key, &text);
            let whole = tokens(&text);
            prop_assert_eq!(&prompt.tokens, &whole);
            prop_assert_eq!(prompt.borders.last(), Some(&(text.len(), whole.len() as u32)));
            prop_assert_eq!(cache.names(&key, &prompt), key.chain(&[], &whole));
        }
    }
}
