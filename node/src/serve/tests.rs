use super::{TAKEN_WITHIN, Untaken, pass_on};
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
