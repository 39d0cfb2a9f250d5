use super::{TAKEN_WITHIN, TAKEN_WITHIN_WHILE_WANTED, Untaken, give, pass_on, patience};
use protocol::hash::Token;
use protocol::prompt::StreamItem;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

fn item() -> StreamItem {
    StreamItem::Tokens(vec![Token(1)])
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_given_up() {
    let (sink, _items) = mpsc::channel(1);
    assert_eq!(pass_on(&sink, item(), TAKEN_WITHIN).await, Ok(()));
    let began = Instant::now();
    assert_eq!(pass_on(&sink, item(), TAKEN_WITHIN).await, Err(Untaken::Stuck));
    let waited = began.elapsed();
    assert!((TAKEN_WITHIN..TAKEN_WITHIN + Duration::from_secs(1)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_everything_until_it_goes() {
    let (sink, mut items) = mpsc::channel(1);
    let reading = tokio::spawn(async move {
        for _ in 0..5 {
            tokio::time::sleep(TAKEN_WITHIN / 2).await;
            assert!(items.recv().await.is_some());
        }
    });
    for _ in 0..5 {
        assert_eq!(pass_on(&sink, item(), TAKEN_WITHIN).await, Ok(()));
    }
    reading.await.unwrap();
    assert_eq!(pass_on(&sink, item(), TAKEN_WITHIN).await, Err(Untaken::Gone));
}

/// How long a reader is waited for that takes nothing.
async fn waited(others_wait: impl Fn() -> bool) -> Duration {
    let (sink, _items) = mpsc::channel(1);
    assert_eq!(give(&sink, item(), patience(&others_wait)).await, Ok(()));
    let began = Instant::now();
    assert_eq!(give(&sink, item(), patience(&others_wait)).await, Err(Untaken::Stuck));
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_given_up_sooner_while_others_wait() {
    let later = TAKEN_WITHIN / 2;
    let began = Instant::now();
    let come_later = || began.elapsed() >= later;
    for (waited, expected) in [
        (waited(come_later).await, later),
        (waited(|| true).await, TAKEN_WITHIN_WHILE_WANTED),
        (waited(|| false).await, TAKEN_WITHIN),
    ] {
        let right = expected..expected + Duration::from_secs(2);
        assert!(right.contains(&waited), "{waited:?} instead of {expected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_keeps_its_seat_while_others_wait() {
    let (sink, mut items) = mpsc::channel(1);
    let reading = tokio::spawn(async move {
        for _ in 0..5 {
            tokio::time::sleep(TAKEN_WITHIN_WHILE_WANTED / 2).await;
            assert!(items.recv().await.is_some());
        }
    });
    for _ in 0..5 {
        assert_eq!(give(&sink, item(), patience(|| true)).await, Ok(()));
    }
    reading.await.unwrap();
}
