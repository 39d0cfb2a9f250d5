use super::*;
use crate::agents::AgentOptions;
use crate::fake::Fake;
use std::time::Duration;

fn options() -> AgentOptions {
    AgentOptions { pause_mean: Duration::ZERO, ..AgentOptions::default() }
}

async fn driver(fake: &Fake, nodes: usize) -> Driver {
    let client = Client::new(Duration::from_secs(10)).unwrap();
    let entries = (0..nodes).map(|node| fake.url(node)).collect();
    Driver::new(client, entries, "words".into(), &options().preamble()).await.unwrap()
}

async fn records(fake: &Fake, nodes: usize, sessions: u32) -> Vec<Record> {
    let driver = driver(fake, nodes).await;
    let (sink, mut records) = mpsc::channel(1_000);
    for plan in options().sessions(sessions) {
        driver.session(plan, &sink).await;
    }
    drop(sink);
    let mut all = Vec::new();
    while let Some(record) = records.recv().await {
        all.push(record);
    }
    all
}

#[tokio::test]
async fn a_session_makes_all_its_calls_through_all_entries() {
    let fake = Fake::start(3).await;
    let all = records(&fake, 3, 2).await;
    assert_eq!(all.len() as u32, 2 * options().calls_per_session());
    assert!(all.iter().all(|record| record.outcome.ok()));
    for agent in [(0, 0), (1, 0), (0, 1), (1, 2)] {
        let turns: Vec<&Record> = all.iter().filter(|record| record.agent == agent).collect();
        assert!(turns.windows(2).all(|pair| pair[0].turn + 1 == pair[1].turn));
        assert!(turns.windows(2).all(|pair| pair[0].entry != pair[1].entry));
    }
    // The lead's third turn waits for its sub-agents.
    let at = |agent, turn| all.iter().position(|r| r.agent == agent && r.turn == turn).unwrap();
    assert!(at((0, 0), 2) > at((0, 1), 1) && at((0, 0), 2) > at((0, 2), 1));
}

#[tokio::test]
async fn one_node_with_an_endless_cache_reaches_the_ceiling() {
    let fake = Fake::start(1).await;
    let all = records(&fake, 1, 2).await;
    let sum = |of: fn(&Record) -> u64| all.iter().map(of).sum::<u64>();
    let (cached, ceiling) = (sum(|r| r.outcome.cached.sum()), sum(|r| r.ceiling_tokens));
    assert!(ceiling > 0);
    for record in &all {
        // The shared part may end one granule later where first words happen to be equal.
        let (cached, ceiling) = (record.outcome.cached.sum(), record.ceiling_tokens);
        assert!(cached == ceiling || cached == ceiling + 16, "{cached} of {ceiling}");
    }
    assert!(cached as f64 <= ceiling as f64 * 1.02, "{cached} of {ceiling}");
}

#[tokio::test]
async fn equal_seeds_ask_equal_questions() {
    let mut asked = Vec::new();
    for _ in 0..2 {
        let fake = Fake::start(3).await;
        records(&fake, 3, 1).await;
        let mut bodies: Vec<String> =
            fake.0.bodies.lock().unwrap().iter().map(ToString::to_string).collect();
        bodies.sort();
        asked.push(bodies);
    }
    assert_eq!(asked[0], asked[1]);
}

#[tokio::test]
async fn the_preamble_is_measured_up_to_the_first_word() {
    let fake = Fake::start(1).await;
    let client = Client::new(Duration::from_secs(10)).unwrap();
    let preamble = Arc::new(Preamble { system: "a b c d e".into(), tools: Vec::new() });
    let tokens = preamble_tokens(&client, &fake.url(0), "words", &preamble).await.unwrap();
    assert_eq!(tokens, 8); // <system> a b c d e <end> <user>
}
