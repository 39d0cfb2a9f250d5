//! More work than the engine's pool holds: sequences wait and go on, answers stay whole.

use crate::kit::{Cluster, eventually, with_config};
use crate::models::tiny;
use crate::prompts::words;
use load::client::Call;

/// Room for two of the answers below at once.
const SMALL: &str = "[engine]\nkv_tokens = 1536\n";
const ANSWERS: u64 = 6;

fn call(cluster: &Cluster, number: u64, salt: &str) -> Call {
    let mut call = cluster.bound(0, &words(40 + number, 60), salt);
    call.max_tokens = 500;
    call
}

#[tokio::test]
async fn answers_that_lose_their_room_go_on_unchanged() {
    let cluster = Cluster::start(&tiny(), vec![with_config(SMALL)]).await;
    let mut alone = Vec::new();
    for number in 0..ANSWERS {
        alone.push(cluster.answer(&call(&cluster, number, "alone")).await);
    }
    let calls: Vec<Call> = (0..ANSWERS).map(|n| call(&cluster, n, "together")).collect();
    let together = futures::future::join_all(calls.iter().map(|c| cluster.answer(c))).await;
    for (alone, together) in alone.iter().zip(&together) {
        assert_eq!(together.token_ids, alone.token_ids);
        assert_eq!(together.finish, alone.finish);
        assert_eq!(together.prompt_tokens, alone.prompt_tokens);
    }
    let tokens: usize = alone.iter().map(|a| a.token_ids.len()).sum();
    assert!(tokens > 1536, "the answers alone are more than the pool: {tokens}");
    // A lease ends behind what its engine told, a moment after the answer.
    eventually("no lease is left", async || (cluster.leases(0).await == 0.0).then_some(())).await;
}
