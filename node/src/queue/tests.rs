use super::*;
use protocol::id::{EngineId, Incarnation, NodeId, Target, TenantId};
use protocol::plan::{Estimate, Plan};
use protocol::prompt::{Hints, Limits, Sampling};
use std::time::Duration;

fn prompt(id: u128, priority: i32) -> Prompt {
    Prompt {
        id: RequestId(id),
        model: "m".into(),
        tenant: TenantId::local(),
        session: None,
        tokens: Vec::new().into(),
        prefix: Vec::new().into(),
        salt: None,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: 1, stop_tokens: vec![] },
        constraint: None,
        hints: Hints { priority, ..Hints::default() },
    }
}

fn placed(computed_tokens: u32) -> Placed {
    let target = Target {
        node: NodeId([1; 32]),
        incarnation: Incarnation::default(),
        engine: EngineId(0),
        dp_rank: 0,
    };
    let estimate = Estimate { computed_tokens, ..Estimate::default() };
    let plan = Plan { prefill: target, decode: target, sources: vec![], estimate };
    Placed { plan, outcome: String::new() }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

async fn queue(window: usize) -> Arc<Queue> {
    Arc::new(Queue::start(window, Clock::start()).await.ok().unwrap())
}

/// Enters in a task; notes when it was admitted.
fn enter(
    queue: &Arc<Queue>,
    order: &Arc<Mutex<Vec<u128>>>,
    (id, priority, tokens): (u128, i32, u32),
) -> tokio::task::JoinHandle<Result<Ticket, Refusal>> {
    let (queue, order) = (queue.clone(), order.clone());
    tokio::spawn(async move {
        let ticket = queue.enter(&prompt(id, priority), &placed(tokens)).await;
        order.lock().unwrap().push(id);
        ticket
    })
}

#[tokio::test(start_paused = true)]
async fn leaving_lets_the_next_one_in() {
    let queue = queue(2).await;
    let first = queue.enter(&prompt(1, 0), &placed(10)).await.ok().unwrap();
    let _second = queue.enter(&prompt(2, 0), &placed(10)).await.ok().unwrap();
    let order = Arc::default();
    let third = enter(&queue, &order, (3, 0, 10));
    let fourth = enter(&queue, &order, (4, 5, 20));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*order.lock().unwrap(), []);
    let waiting = queue.waiting();
    assert_eq!((waiting.requests, waiting.tokens), (2, 30));
    drop(first);
    settle().await;
    assert_eq!(*order.lock().unwrap(), [4], "the more urgent one");
    let fourth = fourth.await.unwrap();
    assert!(fourth.is_ok());
    drop(fourth);
    assert!(third.await.unwrap().is_ok());
    assert_eq!(queue.waiting().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_gives_its_place_up() {
    let queue = queue(1).await;
    let first = queue.enter(&prompt(1, 0), &placed(1)).await.ok().unwrap();
    let order = Arc::default();
    let waiting = enter(&queue, &order, (2, 0, 1));
    settle().await;
    assert_eq!(queue.waiting().requests, 1);
    waiting.abort();
    settle().await;
    assert_eq!(queue.waiting().requests, 0);
    assert!(queue.waiting.lock().unwrap().is_empty(), "nobody is waited for any more");
    // One that goes away in the very moment of its admission, too.
    let late = enter(&queue, &order, (3, 0, 1));
    settle().await;
    drop(first);
    late.abort();
    settle().await;
    let (prompt, placed) = (prompt(4, 0), placed(1));
    let next = tokio::time::timeout(Duration::from_secs(1), queue.enter(&prompt, &placed)).await;
    assert!(next.unwrap().is_ok(), "its place in the window is free");
}

#[tokio::test(start_paused = true)]
async fn beyond_its_limit_the_queue_refuses_at_once() {
    let queue = queue(1).await;
    let _running = queue.enter(&prompt(0, 0), &placed(1)).await.ok().unwrap();
    let order = Arc::default();
    let most = admission::Config::default().max_waiting as u128;
    let waiting: Vec<_> = (1..=most).map(|id| enter(&queue, &order, (id, 0, 1))).collect();
    settle().await;
    let refused = queue.enter(&prompt(most + 1, 0), &placed(1)).await;
    assert!(matches!(refused.err(), Some(Refusal::Busy { .. })));
    assert_eq!(queue.waiting().requests as u128, most);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
