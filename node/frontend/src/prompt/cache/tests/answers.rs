//! Prompts that go on from what the model wrote.

use super::*;

/// The text's tokens, one by one of its characters: not as the tokenizer would cut it.
fn spelt(text: &str) -> Vec<Token> {
    text.chars().flat_map(|letter| tokens(&letter.to_string())).collect()
}

const ASKED: &str = concat!(
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|>assistant\n"
);
const MORE: &str = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n";
const SAID: &str = "the answer is the answer";

/// A cache in which [`ASKED`] was answered with [`SAID`].
fn answered() -> PrefixCache {
    let cache = PrefixCache::new(1 << 20);
    let prompt = read(&cache, &key(1), ASKED);
    cache.answered(&tiny(), &Arc::downgrade(&prompt), &spelt(SAID));
    cache
}

#[test]
fn the_next_turn_holds_the_tokens_that_were_generated() {
    assert_ne!(spelt(SAID), tokens(SAID));
    let cache = answered();
    let text = format!("{ASKED}{SAID}{MORE}");
    let next = read(&cache, &key(1), &text);
    let expected = [tokens(ASKED), spelt(SAID), tokens(MORE)].concat();
    assert_eq!(*next.tokens, expected);
    assert_eq!(*next.names, key(1).chain(&[], &expected));
    let ends = |read: &Tokenised| read.borders.iter().map(|(end, _)| *end).collect::<Vec<_>>();
    assert_eq!(ends(&next), ends(&from_scratch(&key(1), &text)), "cut at turns as ever");
    // And every turn after it, also when it is asked again.
    cache.answered(&tiny(), &Arc::downgrade(&next), &spelt("yes"));
    for _ in 0..2 {
        let third = read(&cache, &key(1), &format!("{text}yes{MORE}"));
        assert_eq!(*third.tokens, [expected.clone(), spelt("yes"), tokens(MORE)].concat());
    }
    // A branch from before it, and the same question once more.
    assert_eq!(
        read(&cache, &key(1), &format!("{text}no{MORE}")).tokens[..expected.len()],
        expected
    );
    assert_eq!(*read(&cache, &key(1), ASKED).tokens, tokens(ASKED));
}

#[test]
fn a_history_prefilled_ahead_is_the_beginning_of_the_next_turn() {
    let cache = answered();
    let history = format!("{ASKED}{SAID}<|im_end|>\n");
    let ahead = read(&cache, &key(1), &history);
    assert_eq!(*ahead.tokens, [tokens(ASKED), spelt(SAID), tokens("<|im_end|>\n")].concat());
    let next = read(&cache, &key(1), &format!("{ASKED}{SAID}{MORE}"));
    assert!(next.tokens.starts_with(&ahead.tokens));
}

#[test]
fn what_ends_with_the_answer_is_whole() {
    let cache = answered();
    let text = format!("{ASKED}{SAID}<|im_end|>");
    let read = read(&cache, &key(1), &text);
    assert_eq!(*read.tokens, [tokens(ASKED), spelt(SAID), tokens("<|im_end|>")].concat());
    assert_eq!(read.borders.last(), Some(&(text.len(), length(&read.tokens))));
}

#[test]
fn other_words_tenants_and_questions_are_tokenised_as_ever() {
    let other = ASKED.replace("hi", "hello");
    for (key, text) in [
        (key(1), format!("{ASKED}{SAID}!{MORE}")),
        (key(1), format!("{ASKED}{SAID} {MORE}")),
        (key(1), format!("{ASKED}the answer{MORE}")),
        (key(1), format!("{ASKED}\n{SAID}{MORE}")),
        (key(1), format!("{ASKED}{SAID}")),
        (key(1), format!("{other}{SAID}{MORE}")),
        (key(2), format!("{ASKED}{SAID}{MORE}")),
    ] {
        assert_equal(&read(&answered(), &key, &text), &from_scratch(&key, &text));
    }
}

#[test]
fn answers_without_a_text_of_their_own_are_not_remembered() {
    let special = tiny().tokenizer().token("<|im_start|>").unwrap();
    for generated in [
        Vec::new(),
        vec![special],
        spelt("<|im_start|>user\nmore"),
        spelt("世")[..1].to_vec(),
        vec![Token(u32::MAX)],
    ] {
        let cache = PrefixCache::new(1 << 20);
        let prompt = read(&cache, &key(1), ASKED);
        let before = cache.lock().prompts.bytes();
        cache.answered(&tiny(), &Arc::downgrade(&prompt), &generated);
        assert_eq!(cache.lock().prompts.bytes(), before, "{generated:?}");
    }
}

#[test]
fn several_answers_to_one_prompt_are_told_apart_and_bounded() {
    let cache = PrefixCache::new(1 << 20);
    let prompt = read(&cache, &key(1), ASKED);
    let said = |n: usize| format!("{SAID} {n}");
    for n in 0..20 {
        // Asked again: it is the same prompt still.
        assert!(Arc::ptr_eq(&read(&cache, &key(1), ASKED), &prompt));
        cache.answered(&tiny(), &Arc::downgrade(&prompt), &spelt(&said(n)));
    }
    let bytes = cache.lock().prompts.bytes();
    assert!(bytes < 8 * 1024, "{bytes}");
    let next = |n| read(&cache, &key(1), &format!("{ASKED}{}{MORE}", said(n))).tokens.clone();
    assert_eq!(*next(18), [tokens(ASKED), spelt(&said(18)), tokens(MORE)].concat());
    assert_eq!(*next(3), tokens(&format!("{ASKED}{}{MORE}", said(3))));
}

#[test]
fn an_answer_to_a_forgotten_prompt_is_forgotten() {
    let cache = PrefixCache::new(0);
    let prompt = read(&cache, &key(1), ASKED);
    cache.answered(&tiny(), &Arc::downgrade(&prompt), &spelt(SAID));
    let text = format!("{ASKED}{SAID}{MORE}");
    assert_equal(&read(&cache, &key(1), &text), &from_scratch(&key(1), &text));
}

/// What a client does next: keep so much of the history, take the answer as it was or another one,
/// ask something.
fn steps() -> impl Strategy<Value = Vec<(usize, bool, String, String)>> {
    let said =
        ["ok", SAID, "", " the", "<|im_end|>", "世界 🦀", "<tool_call>x</tool_call>", "\n\n"];
    let said = prop::collection::vec(prop::sample::select(said.to_vec()), 0..3);
    let step = (0..6usize, any::<bool>(), said.prop_map(|said| said.concat()), "[a-z\n ]{0,8}");
    prop::collection::vec(step, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn only_generated_tokens_of_the_same_text_differ(steps in steps(), small: bool) {
        let (cache, key) = (PrefixCache::new(if small { 8_000 } else { 1 << 20 }), key(1));
        // Every answer with the prompt it was given to.
        let mut written: Vec<(Vec<Token>, Vec<Token>)> = Vec::new();
        let mut turns: Vec<String> = vec![ASKED.to_owned()];
        for (keep, as_it_was, said, asked) in steps {
            let text = turns.concat();
            let prompt = read(&cache, &key, &text);
            prop_assert_eq!(&tokenize::text(&prompt.tokens, tiny().tokenizer()).unwrap(), &text);
            prop_assert_eq!(&*prompt.names, &key.chain(&[], &prompt.tokens));
            let plain = from_scratch(&key, &text);
            prop_assert_eq!(prompt.borders.len(), plain.borders.len());
            let (mut before, mut from) = (0, 0);
            for ((bytes, to), (plain, _)) in prompt.borders.iter().zip(&plain.borders) {
                prop_assert_eq!(bytes, plain);
                let (part, to) = (&text[before..*bytes], *to as usize);
                let read = &prompt.tokens[from..to];
                let generated = written.iter().any(|(asked, answer)| {
                    let whole = [asked.as_slice(), answer].concat();
                    asked.len() > from && to >= whole.len() && prompt.tokens.starts_with(&whole)
                });
                prop_assert!(generated || read == tokens(part), "{:?}", part);
                (before, from) = (*bytes, to);
            }
            let generated = spelt(&said);
            cache.answered(&tiny(), &Arc::downgrade(&prompt), &generated);
            written.push((prompt.tokens.to_vec(), generated));
            turns.truncate(keep.max(1));
            let said = if as_it_was { said } else { format!("{said}.") };
            turns.push(format!("{said}<|im_end|>\n<|im_start|>user\n{asked}<|im_end|>\n{ANSWER}"));
        }
    }
}
