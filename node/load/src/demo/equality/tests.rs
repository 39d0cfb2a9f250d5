use super::*;
use crate::client::{CachedTokens, CallError};

fn outcome(gpu: u64, peer: u64) -> Outcome {
    Outcome {
        prompt_tokens: 100,
        token_ids: vec![1, 2, 3],
        cached: CachedTokens { gpu, peer, ..CachedTokens::default() },
        computed: 100 - gpu - peer,
        ..Outcome::default()
    }
}

fn runs() -> Runs {
    Runs { cold: outcome(0, 0), cached: outcome(96, 0), peer: outcome(0, 96), again: outcome(0, 0) }
}

fn check(change: impl FnOnce(&mut Runs), expected: &[&str]) {
    let mut runs = runs();
    change(&mut runs);
    let failures = judge(1, &runs);
    assert_eq!(failures.len(), expected.len(), "{failures:?}");
    for (failure, part) in failures.iter().zip(expected) {
        assert!(failure.contains(part), "{failure} should say {part}");
    }
}

#[test]
fn every_deviation_is_named() {
    check(|_| (), &[]);
    check(|runs| runs.peer.token_ids[2] = 4, &["the peer run gave other tokens"]);
    check(
        |runs| runs.again.token_ids.clear(),
        &["second cold run returned no", "gave other tokens"],
    );
    check(|runs| runs.cold.cached.gpu = 16, &["the cold run found 16"]);
    check(|runs| runs.again.cached.peer = 16, &["the second cold run found 16"]);
    check(|runs| runs.cached = outcome(32, 0), &["the cached run found only 32"]);
    check(|runs| runs.cached = outcome(0, 96), &["the cached run found only 0"]);
    check(|runs| runs.peer = outcome(96, 0), &["nothing was fetched"]);
    let cut = || Some(CallError::BrokenOff("cut".into()));
    check(|runs| runs.peer.error = cut(), &["prompt 1, peer run: the stream broke off"]);
}
