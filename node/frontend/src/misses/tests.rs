use super::*;
use crate::testing::{key, tiny, tokens};
use protocol::prompt::{Hints, Limits, Sampling};

fn prompt(id: u128, session: Option<&str>, text: &str) -> Prompt {
    let tokens = tokens(text);
    Prompt {
        id: RequestId(id),
        model: "tiny".into(),
        tenant: TenantId::local(),
        session: session.and_then(SessionId::new),
        prefix: key(1).chain(&[], &tokens).into(),
        tokens: tokens.into(),
        salt: None,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: 1, stop_tokens: Vec::new() },
        constraint: None,
        hints: Hints::default(),
    }
}

fn words(from: usize, to: usize) -> String {
    (from..to).map(|i| format!("word{i} ")).collect()
}

/// Notes each text as a request of one session; what is known of the last when `cached` tokens
/// were found.
fn last(misses: &Misses, texts: &[String], cached: u32) -> Value {
    let mut miss = None;
    for (i, text) in texts.iter().enumerate() {
        miss = Some(misses.note(&prompt(i as u128 + 1, Some("s"), text), tiny().tokenizer()));
    }
    let miss = miss.unwrap();
    let sources = PromptSources { gpu: cached, ..PromptSources::default() };
    miss.found(sources, "node", "kv");
    miss.to_json()
}

#[test]
fn a_prompt_that_goes_on_is_no_miss() {
    let (short, long) = (words(0, 60), words(0, 90));
    let shared = tokens(&short).len() / GRANULE * GRANULE;
    let told = last(&Misses::new(), &[short, long], shared as u32);
    assert_eq!(told["first_divergence"], Value::Null);
    assert!(told["verdict"].as_str().unwrap().starts_with("No miss"), "{told}");
}

#[test]
fn a_changed_word_is_found_among_all_that_came_before() {
    let changed = format!("{}other {}", words(0, 40), words(41, 90));
    // A prompt of another kind in between is not what it is compared with.
    let told = last(&Misses::new(), &[words(0, 90), "a title".into(), changed], 0);
    assert_eq!(told["compared_with"]["request"], RequestId(1).to_string());
    let at = told["first_divergence"]["token"].as_u64().unwrap() as usize;
    let exact = tokens(&words(0, 40)).len();
    assert!((at..at + GRANULE).contains(&exact), "{told}: {exact}");
    assert!(told["first_divergence"]["after"].as_str().unwrap().contains("other"), "{told}");
}

#[test]
fn what_was_shared_and_not_cached_was_lost() {
    let told = last(&Misses::new(), &[words(0, 60), words(0, 90)], 16);
    assert!(told["verdict"].as_str().unwrap().contains("evicted"), "{told}");
}

#[test]
fn without_a_session_nothing_is_compared_and_tenants_see_their_own() {
    let misses = Misses::new();
    let prompt = prompt(7, None, "hi");
    let miss = misses.note(&prompt, tiny().tokenizer());
    assert!(miss.to_json()["verdict"].as_str().unwrap().contains("not been served"));
    miss.found(PromptSources::default(), "node", "kv");
    assert!(miss.to_json()["verdict"].as_str().unwrap().contains("names no session"));
    assert!(misses.of(&TenantId::local(), &RequestId(7)).is_some());
    assert!(misses.of(&TenantId("other".into()), &RequestId(7)).is_none());
    assert!(misses.of(&TenantId::local(), &RequestId(8)).is_none());
}
