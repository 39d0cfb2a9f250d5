//! A client that goes away: the engine stops and the slots come back, also over two hops.

use crate::kit::{Cluster, entry_only, eventually};
use crate::models::slow;
use crate::prompts::words;
use crate::stream::{Stream, body, path};
use load::client::Dialect;
use load::fleet::NodeOptions;
use std::time::{Duration, Instant};

/// What the issue of a broken connection may cost the engine at most.
const ABORTED_WITHIN: Duration = Duration::from_secs(1);
/// A busy machine may delay this test itself: the best of so many tries counts.
const TRIES: usize = 3;

/// Waits until node 1 has (or has no more) leases.
async fn leased(cluster: &Cluster, some: bool) {
    eventually(if some { "a lease" } else { "no lease" }, async || {
        ((cluster.leases(1).await > 0.0) == some).then_some(())
    })
    .await;
}

/// Opens a stream through a node, reads some of it and hangs up; returns how long the lease lived
/// on.
async fn hang_up(cluster: &Cluster, entry: usize, dialect: Dialect) -> Duration {
    let mut stream =
        Stream::open(cluster, entry, dialect, &body(cluster, &words(1, 10), 3000, true)).await;
    stream.content().await;
    leased(cluster, true).await;
    drop(stream);
    let hung_up = Instant::now();
    leased(cluster, false).await;
    hung_up.elapsed()
}

/// Sends a request for a whole answer and hangs up while it waits.
async fn give_up(cluster: &Cluster, entry: usize) -> Duration {
    let url = cluster.url(entry, path(Dialect::Chat));
    let request = cluster.http.post(url).json(&body(cluster, &words(2, 10), 3000, false));
    let waiting = tokio::spawn(request.send());
    leased(cluster, true).await;
    waiting.abort();
    let _ = waiting.await;
    let hung_up = Instant::now();
    leased(cluster, false).await;
    hung_up.elapsed()
}

#[tokio::test]
async fn the_engine_stops_within_a_second() {
    let cluster = Cluster::start(slow(), vec![entry_only(), NodeOptions::default()]).await;
    for entry in [0, 1] {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        while !times.iter().all(|times| times.iter().any(|time| *time < ABORTED_WITHIN)) {
            assert!(times[0].len() < TRIES, "slots came back after {times:?} through n{entry}");
            times[0].push(hang_up(&cluster, entry, Dialect::Chat).await);
            times[1].push(hang_up(&cluster, entry, Dialect::Messages).await);
            times[2].push(give_up(&cluster, entry).await);
        }
        println!("slots came back after {times:?} through n{entry}");
    }
    eventually("the engine reports that nothing runs", async || {
        let view = cluster.view(1, &cluster.id(1)).await;
        let load = &view["engines"][0]["load"];
        (load["running"] == 0 && load["waiting"] == 0 && load["active_blocks"] == 0).then_some(())
    })
    .await;
    assert_eq!(cluster.answer(&cluster.call(0, "Hello")).await.completion_tokens, 32);
}
