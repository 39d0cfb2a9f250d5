//! A client that goes away: the engine stops and the slots come back, also over two hops. One that
//! stays and reads nothing gives way to others.

use crate::kit::{Cluster, entry_only, eventually};
use crate::models::slow;
use crate::prompts::words;
use crate::stream::{Stream, body, path};
use load::client::Dialect;
use load::fleet::NodeOptions;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

/// What the issue of a broken connection may cost the engine at most.
const ABORTED_WITHIN: Duration = Duration::from_secs(1);
/// With nobody else there a client that reads nothing has a minute.
const SOONER: Duration = Duration::from_secs(50);
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

#[tokio::test]
async fn a_client_that_reads_nothing_gives_way_to_those_who_wait() {
    let one_seat = NodeOptions {
        config: "[engine.mock]\nmax_batch = 1\nanswer_tokens = 0\nspeedup = 1000.0\n".into(),
        args: vec!["--engine".into(), "mock".into()],
        ..NodeOptions::default()
    };
    let cluster = Cluster::mixed(vec![one_seat]).await;
    let address = cluster.fleet.node(0).http().trim_start_matches("http://");
    let address: SocketAddr = address.parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // The less fits on the way, the sooner it is full.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut silent = socket.connect(address).await.unwrap();
    let ask = body(&cluster, "hello", 200_000, true).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n",
        path(Dialect::Chat),
        ask.len()
    );
    silent.write_all((head + &ask).as_bytes()).await.unwrap();
    eventually("it has the seat", async || (cluster.leases(0).await > 0.0).then_some(())).await;
    let began = Instant::now();
    cluster.answer(&cluster.call(0, "Hello")).await;
    let waited = began.elapsed();
    assert!(waited < SOONER, "the seat was free after {waited:?}");
    assert_eq!(cluster.metrics(0).await["dynamo_node_requests_broken_total"], 1.0);
    drop(silent);
}
