//! All three protocols under weather, in paused time: delay, loss, reordering, duplication, paths
//! that swallow long datagrams, peers that stop in the middle. The schedule is a function of the
//! seed.

use crate::fetch::{fetch, fetch_until, verified};
use crate::net::{FAIR, Net, Weather};
use crate::world::{BLOCK, Cluster, Node, PATIENCE, request, until};
use protocol::op::Fetched;
use protocol::prompt::StreamItem;
use protocol::sign::Keypair;
use protocol::wire::serve::ServeAnswer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use transfer::Via;

const MS: Duration = Duration::from_millis(1);

/// Tokens of a stream until it ends.
pub(crate) async fn stream(from: &Node, to: &Node, tokens: u32) -> usize {
    let request = request("m", tokens);
    let mut answers = from.transfer.serve(to.id, &[to.addr], request).await.unwrap();
    let mut count = 0;
    while let Some(answer) = answers.recv().await {
        let ServeAnswer::Item(StreamItem::Tokens(more)) = answer else { panic!("{answer:?}") };
        count += more.len();
    }
    count
}

/// A join, a stream and a fetch; returns the virtual time they took.
async fn everything(net: &Net) -> Duration {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(net, 2), cluster.node_in(net, 3));
    let begun = Instant::now();
    let stranger = Keypair::from_seed(&[77; 32]);
    let token = cluster.token(1);
    let joined = transfer::join_over(&net.host(), b.addr, &token, &stranger, PATIENCE).await;
    assert_eq!(joined.ok().unwrap().cert.node, stranger.node());
    assert_eq!(stream(&a, &b, 300).await, 300);
    let held: Vec<_> = (0..4).map(|n| b.hold(n).1).collect();
    let fetched = fetch(&a, &b, &[0, 1, 2, 3]).await;
    assert!(verified(&fetched), "{fetched:?}");
    for (n, bytes) in held.iter().enumerate() {
        assert_eq!(&a.host.pool.reader(n as u32, 1).unwrap()[..], &bytes[..]);
    }
    let path = a.transfer.paths().remove(0);
    assert_eq!((path.via, path.failures), (Some(Via::Quic), 0));
    begun.elapsed()
}

fn weathers() -> [(&'static str, Weather); 8] {
    let lossy = |lost_per_mille| Weather { lost_per_mille, ..FAIR };
    [
        ("fair", FAIR),
        ("far", Weather { delay: 75 * MS, ..FAIR }),
        ("loss 0.1 %", lossy(1)),
        ("loss 1 %", lossy(10)),
        ("loss 5 %", lossy(50)),
        ("overtaking", Weather { jitter: 8 * MS, ..FAIR }),
        ("doubled", Weather { doubled_per_mille: 100, ..FAIR }),
        ("long datagrams vanish", Weather { mtu: 1252, ..FAIR }),
    ]
}

#[tokio::test(start_paused = true)]
async fn everything_works_in_any_weather() {
    for (name, weather) in weathers() {
        let took = everything(&Net::new(7, weather)).await;
        println!("{name}: {} virtual ms", took.as_millis());
        assert!(took < PATIENCE, "{name}: {took:?}");
    }
}

fn digest(seed: u64) -> (String, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let weather = Weather {
            jitter: 4 * MS,
            lost_per_mille: 10,
            doubled_per_mille: 10,
            mtu: 1400,
            ..FAIR
        };
        let net = Net::new(seed, weather);
        let took = everything(&net).await;
        (net.digest(), took)
    })
}

#[test]
fn the_schedule_is_a_function_of_the_seed() {
    let first = digest(1);
    assert_eq!(digest(1), first);
    assert_ne!(digest(2).0, first.0);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_grows_narrow_is_noticed() {
    let net = Net::new(3, FAIR);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    (0..8).for_each(|n| drop(b.hold(n)));
    assert!(verified(&fetch(&a, &b, &[0, 1, 2]).await));
    // By now the connection sends long datagrams.
    let (before, blocks) = (net.datagrams(), [3, 4, 5]);
    assert!(verified(&fetch(&a, &b, &blocks).await));
    let datagrams = net.datagrams() - before;
    assert!(datagrams < (3 * BLOCK / 1200) as u64, "{datagrams} datagrams for three blocks");
    net.set(|weather| weather.mtu = 1252);
    assert!(verified(&fetch(&a, &b, &[6, 7]).await));
    assert_eq!(a.transfer.paths()[0].failures, 0);
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_kept_to_the_millisecond() {
    for blocked in [false, true] {
        let net = Net::new(4, Weather { udp_blocked: blocked, ..FAIR });
        let cluster = Cluster::new(1);
        let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
        b.hold(0);
        a.transfer.warm(b.id, &[b.addr]).await.unwrap();
        b.host.mute.store(true, Ordering::SeqCst);
        let (begun, within) = (Instant::now(), 777 * MS);
        let fetched = fetch_until(&a, b.id, b.addr, &[0], (begun + within).into_std()).await;
        assert_eq!(fetched, [Fetched::Failed]);
        let took = begun.elapsed();
        assert!(took >= within && took <= within + 2 * MS, "{took:?}, UDP blocked: {blocked}");
        assert!(a.host.pool.writer(0, 2).is_ok(), "no write lands any more");
    }
}

/// A peer that stops in the middle of a batch costs the deadline, once, and nobody else anything;
/// what it had delivered before is kept.
#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_in_the_middle_fails_its_own_blocks_only() {
    for blocked in [false, true] {
        let net = Net::new(5, Weather { udp_blocked: blocked, ..FAIR });
        let cluster = Cluster::new(1);
        let (a, c) = (cluster.node_in(&net, 2), cluster.node_in(&net, 4));
        let slow = Some(2 * BLOCK as u64);
        let config = transfer::TransferConfig { throttle_bytes_s: slow, ..cluster.config(3) };
        let b = cluster.node_on(net.host(), config);
        (0..4).for_each(|n| drop(b.hold(n)));
        (4..8).for_each(|n| drop(c.hold(n)));
        a.transfer.warm(b.id, &[b.addr]).await.unwrap();
        let begun = Instant::now();
        let stopping = async {
            tokio::time::sleep(1200 * MS).await;
            net.darken(b.addr);
        };
        let deadline = (begun + 3000 * MS).into_std();
        let (fetched, (), others) = tokio::join!(
            fetch_until(&a, b.id, b.addr, &[0, 1, 2, 3], deadline),
            stopping,
            fetch_until(&a, c.id, c.addr, &[4, 5, 6, 7], deadline),
        );
        assert!(verified(&fetched[..2]), "{fetched:?}");
        assert_eq!(fetched[2..], [Fetched::Failed, Fetched::Failed]);
        assert!(verified(&others), "{others:?}");
        assert!(a.host.pool.writer(2, 2).is_ok() && a.host.pool.writer(3, 2).is_ok());
        assert!(begun.elapsed() <= 3002 * MS, "{:?}", begun.elapsed());
        // The holder lets go of what it lent, though it hears nothing.
        until(|| b.host.open_leases.load(Ordering::SeqCst) == 0).await;
    }
}

/// The reader is killed in the middle: its state is freed and the next reader is served.
#[tokio::test(start_paused = true)]
async fn a_reader_that_dies_leaves_nothing_behind() {
    for blocked in [false, true] {
        let net = Net::new(6, Weather { udp_blocked: blocked, ..FAIR });
        let cluster = Cluster::new(1);
        let mut config = cluster.config(3);
        config.throttle_bytes_s = Some(2 * BLOCK as u64);
        config.limits.block_streams = 1;
        let b = cluster.node_on(net.host(), config);
        let (a, c) = (cluster.node_in(&net, 2), cluster.node_in(&net, 4));
        (0..4).for_each(|n| drop(b.hold(n)));
        c.transfer.warm(b.id, &[b.addr]).await.unwrap();
        let within = (Instant::now() + 10_000 * MS).into_std();
        let reading = fetch_until(&a, b.id, b.addr, &[0, 1, 2, 3], within);
        tokio::select! {
            biased;
            fetched = reading => panic!("{fetched:?} although slow"),
            () = tokio::time::sleep(1000 * MS) => net.darken(a.addr),
        }
        let died = Instant::now();
        let mut fetched = vec![Fetched::Failed];
        while !verified(&fetched) {
            tokio::time::sleep(100 * MS).await;
            fetched = fetch(&c, &b, &[0]).await;
            assert!(died.elapsed() < 16_000 * MS, "the lost reader's credit never came back");
        }
        until(|| b.host.open_leases.load(Ordering::SeqCst) == 0).await;
        drop(Arc::clone(&a.transfer));
    }
}

/// A served stream whose other end dies: both ends notice within the idle timeout.
#[tokio::test(start_paused = true)]
async fn both_ends_of_a_stream_notice_a_death() {
    for blocked in [false, true] {
        for client_dies in [false, true] {
            let net = Net::new(8, Weather { udp_blocked: blocked, ..FAIR });
            let cluster = Cluster::new(1);
            let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
            let request = request("hang", 1);
            let mut answers = a.transfer.serve(b.id, &[b.addr], request).await.unwrap();
            answers.recv().await.unwrap();
            // Quiet, but alive: far beyond the idle timeout.
            let quiet = tokio::time::timeout(60_000 * MS, answers.recv()).await;
            assert!(quiet.is_err(), "{quiet:?}, UDP blocked: {blocked}");
            net.darken(if client_dies { a.addr } else { b.addr });
            let died = Instant::now();
            assert_eq!(tokio::time::timeout(PATIENCE, answers.recv()).await, Ok(None));
            tokio::time::timeout(PATIENCE, b.host.cancelled.acquire())
                .await
                .unwrap()
                .unwrap()
                .forget();
            assert!(died.elapsed() < 21_000 * MS, "{:?}, blocked: {blocked}", died.elapsed());
        }
    }
}
