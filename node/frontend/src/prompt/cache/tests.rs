mod answers;

use super::*;
use crate::testing::{key, tiny, tokens};
use memchr::memmem::Finder;
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

fn read(cache: &PrefixCache, key: &RoutingKey, text: &str) -> Arc<Tokenised> {
    cache.read(&tiny(), key, text.to_owned(), |_| Ok(())).unwrap()
}

/// What the cache must give, without any cache.
fn from_scratch(key: &RoutingKey, text: &str) -> Tokenised {
    let marker = Finder::new("<|im_start|>").into_owned();
    let mut out = Tokenised { text: text.to_owned(), ..Tokenised::default() };
    for part in cuts::parts(text, Some(&marker)) {
        Arc::make_mut(&mut out.tokens).extend(tokens(part));
        let bytes = out.borders.last().map_or(0, |(bytes, _)| *bytes) + part.len();
        out.borders.push((bytes, length(&out.tokens)));
    }
    assert_eq!(*out.tokens, tokens(text), "cut or not");
    out.names = key.chain(&[], &out.tokens).into();
    out
}

fn assert_equal(read: &Tokenised, scratch: &Tokenised) {
    assert_eq!(read.text, scratch.text);
    assert_eq!(read.tokens, scratch.tokens);
    assert_eq!(read.names, scratch.names);
    assert_eq!(read.borders, scratch.borders);
}

const HEAD: &str = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n";
const ANSWER: &str = "<|im_start|>assistant\n";

#[test]
fn a_flood_of_turns_is_refused_before_it_is_worked_on() {
    let flood = format!("{HEAD}{}", "<|im_start|>ab".repeat(PARTS_MAX + 50));
    for size in [0, 1 << 20] {
        let cache = PrefixCache::new(size);
        let early = |fewest: usize| match fewest > 4000 {
            true => Err(ApiError::invalid("too many")),
            false => Ok(()),
        };
        assert!(cache.read(&tiny(), &key(1), flood.clone(), early).is_err());
        assert_equal(&read(&cache, &key(1), &flood), &from_scratch(&key(1), &flood));
        assert_eq!(cache.lock().tokens.len(), 0, "no conversation has so many turns");
    }
}

#[test]
fn only_what_is_new_is_tokenised() {
    let cache = PrefixCache::new(1 << 20);
    read(&cache, &key(1), HEAD);
    let before = cache.lock().tokens.len();
    read(&cache, &key(1), &format!("{HEAD}{ANSWER}"));
    assert_eq!(cache.lock().tokens.len(), before + 1, "one new part");
    read(&cache, &key(2), HEAD);
    assert_eq!(cache.lock().tokens.len(), before * 2 + 1, "tenants share nothing");
}

#[test]
fn a_next_turn_takes_the_place_of_the_one_before_and_a_branch_stays_beside_it() {
    let cache = PrefixCache::new(1 << 20);
    let branches = |text: &str| {
        let prompts = read(&cache, &key(1), text).text.clone();
        assert_eq!(prompts, text);
        let anchor = digest(&mark_of(&key(1)), HEAD.as_bytes());
        cache.lock().prompts.get(&anchor).map_or(0, |branches| branches.len())
    };
    let turn = |n: u32| format!("{ANSWER}answer {n}<|im_end|>\n<|im_start|>user\n{n}<|im_end|>\n");
    assert_eq!(branches(&format!("{HEAD}{ANSWER}")), 1);
    assert_eq!(branches(&format!("{HEAD}{}{ANSWER}", turn(1))), 1);
    assert_eq!(branches(&format!("{HEAD}{}{}{ANSWER}", turn(1), turn(2))), 1);
    assert_eq!(branches(&format!("{HEAD}{}{}{ANSWER}", turn(1), turn(3))), 2, "another branch");
    for n in 4..100 {
        let known = branches(&format!("{HEAD}{}{}{ANSWER}", turn(1), turn(n)));
        assert!(known <= BRANCHES_MAX);
    }
}

#[test]
fn a_long_prompt_is_refused_by_what_is_known_of_it() {
    let cache = PrefixCache::new(1 << 20);
    let text = format!("{HEAD}{ANSWER}");
    let exact = read(&cache, &key(1), &text).tokens.len();
    let refuse = |least| {
        let refusal = ApiError::invalid(format!("{least}"));
        Err(refusal)
    };
    let refused = cache.read(&tiny(), &key(1), text, refuse).unwrap_err();
    assert_eq!(refused.message, exact.to_string(), "the second time the count is exact");
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
    let model = model::Model::open(&path).unwrap();
    let model = model.processor();
    assert_eq!(cuts::turn_marker(model).as_deref(), Some("<|im_start|>"));
    let turn = "<|im_start|>user\n  What's 12345 + 世界🦀?\n\n<|im_end|>\n";
    let text = format!("{}<|im_start|>assistant\n", turn.repeat(5));
    let expected = model.tokenizer().encode(&text, false);
    let cache = PrefixCache::new(1 << 20);
    for _ in 0..2 {
        let prompt = cache.read(model, &key(1), text.clone(), |_| Ok(())).unwrap();
        assert_eq!(*prompt.tokens, expected);
    }
}

/// Many sessions at once, whose turns go on, branch off, are cut short or change in the middle.
fn conversations() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    let step = (0..3usize, 0..8usize, turns().prop_map(|turns| turns.concat()));
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn step_by_step_equals_from_scratch(steps in conversations(), size in 0..3usize) {
        let cache = PrefixCache::new([0, 6_000, 1 << 20][size]);
        let key = key(1);
        let mut sessions = vec![vec![HEAD.to_owned()]; 3];
        for (session, keep, turns) in steps {
            let history = &mut sessions[session];
            history.truncate(keep.max(1));
            history.push(turns);
            let text = format!("{}{ANSWER}", history.concat());
            assert_equal(&read(&cache, &key, &text), &from_scratch(&key, &text));
            // Cut anywhere, also within a marker.
            let cut = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at));
            let cut = &text[..cut.unwrap_or_default()];
            assert_equal(&read(&cache, &key, cut), &from_scratch(&key, cut));
        }
    }

    #[test]
    fn every_longer_history_equals_it_from_scratch(turns in turns(), small: bool) {
        let cache = PrefixCache::new(if small { 6_000 } else { 1 << 20 });
        let key = key(1);
        for n in 1..=turns.len() {
            let text = format!("{}{ANSWER}", turns[..n].concat());
            assert_equal(&read(&cache, &key, &text), &from_scratch(&key, &text));
        }
    }
}
