//! Which path is taken, what a dead or sick peer costs, and how it comes back; in paused time.

use crate::fetch::{fetch, fetch_until, op, verified};
use crate::net::{FAIR, Net, Weather};
use crate::weather::stream;
use crate::world::{BLOCK, Cluster, PATIENCE, key, request, slot, soon, until};
use protocol::op::{FetchOp, Fetched};
use protocol::sign::Keypair;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use transfer::{TransferError, Via};

const MS: Duration = Duration::from_millis(1);
const BLOCKED: Weather = Weather { udp_blocked: true, ..FAIR };

#[tokio::test(start_paused = true)]
async fn a_udp_block_costs_its_patience_once() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    (0..3).for_each(|n| drop(b.hold(n)));
    let begun = Instant::now();
    assert_eq!(stream(&a, &b, 100).await, 100);
    let first = begun.elapsed();
    assert!(first >= 500 * MS && first < 700 * MS, "{first:?}");
    let begun = Instant::now();
    assert!(verified(&fetch(&a, &b, &[0, 1, 2]).await), "another protocol, the same path");
    assert_eq!(stream(&a, &b, 100).await, 100);
    assert!(begun.elapsed() < 200 * MS, "{:?}", begun.elapsed());
    let path = a.transfer.paths().remove(0);
    assert_eq!((path.via, path.udp_blocked, path.failures), (Some(Via::TlsTcp), 1, 0));
    assert!(path.rtt_ms.is_some() && path.bandwidth_bytes_s.is_some());
}

#[tokio::test(start_paused = true)]
async fn without_udp_nothing_is_waited_for() {
    let net = Net::new(1, FAIR);
    let cluster = Cluster::new(1);
    let config = transfer::TransferConfig { udp: false, ..cluster.config(2) };
    let (a, b) = (cluster.node_on(net.host(), config), cluster.node_in(&net, 3));
    let begun = Instant::now();
    assert_eq!(stream(&a, &b, 10).await, 10);
    assert!(begun.elapsed() < 100 * MS, "{:?}", begun.elapsed());
    assert_eq!((net.datagrams(), a.transfer.paths()[0].via), (0, Some(Via::TlsTcp)));
}

/// When UDP gets through again, a try beside the running requests finds out; no request waits.
#[tokio::test(start_paused = true)]
async fn quic_is_probed_again() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    assert_eq!(stream(&a, &b, 1).await, 1);
    // In vain twice: after 30 s and 60 s more.
    for pause in [31, 61] {
        let before = net.datagrams();
        assert_eq!(stream(&a, &b, 1).await, 1);
        assert_eq!(net.datagrams(), before, "not yet");
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let begun = Instant::now();
        assert_eq!(stream(&a, &b, 1).await, 1);
        assert!(begun.elapsed() < 100 * MS, "{:?}", begun.elapsed());
        tokio::time::sleep(2000 * MS).await;
        assert!(net.datagrams() > before, "a probe went out");
        assert_eq!(a.transfer.paths()[0].via, Some(Via::TlsTcp));
    }
    net.set(|weather| weather.udp_blocked = false);
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(stream(&a, &b, 1).await, 1);
    tokio::time::sleep(1000 * MS).await;
    assert_eq!(a.transfer.paths()[0].via, Some(Via::Quic));
    let before = net.connects();
    assert_eq!(stream(&a, &b, 1).await, 1);
    assert_eq!((net.connects(), a.transfer.paths()[0].failures), (before, 0));
}

#[tokio::test(start_paused = true)]
async fn joins_fall_back_too() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let member = cluster.node_in(&net, 2);
    let (stranger, token) = (Keypair::from_seed(&[77; 32]), cluster.token(1));
    let begun = Instant::now();
    let joined = transfer::join_over(&net.host(), member.addr, &token, &stranger, PATIENCE).await;
    assert_eq!(joined.ok().unwrap().cert.node, stranger.node());
    assert!(begun.elapsed() < 700 * MS, "{:?}", begun.elapsed());
    // A dead member costs what was given, on all paths together, and is named.
    net.darken(member.addr);
    let begun = Instant::now();
    let joined = transfer::join_over(&net.host(), member.addr, &token, &stranger, 3000 * MS).await;
    let error = joined.err().unwrap().to_string();
    assert!(error.contains(&member.addr.to_string()), "{error}");
    assert!(begun.elapsed() <= 3002 * MS, "{:?}", begun.elapsed());
}

/// One of many peers is a black hole: the batches that need it wait one timeout, then none.
#[tokio::test(start_paused = true)]
async fn a_dead_peer_costs_one_timeout_then_nothing() {
    for before in [FAIR, BLOCKED] {
        let net = Net::new(1, before);
        let cluster = Cluster::new(1);
        let (a, dead) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
        net.darken(dead.addr);
        let mut waits = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            let fetched = fetch_until(&a, dead.id, dead.addr, &[0], soon()).await;
            assert_eq!(fetched, [Fetched::Failed]);
            waits.push(begun.elapsed());
        }
        assert!(waits[0] >= 1400 * MS && waits[0] <= 1600 * MS, "{waits:?}");
        assert!(waits[1..].iter().all(|wait| wait.is_zero()), "{waits:?}");
        // Probes cost their caller one timeout each, ever more rarely: the peer is asked for ten
        // minutes, many times a second.
        let (begun, mut slow) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(600) {
            let asked = Instant::now();
            fetch_until(&a, dead.id, dead.addr, &[0], soon()).await;
            slow += u32::from(!asked.elapsed().is_zero());
            tokio::time::sleep(50 * MS).await;
        }
        assert!((10..=25).contains(&slow), "{slow} probes");
        net.lighten(dead.addr);
        dead.hold(0);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert!(verified(&fetch_until(&a, dead.id, dead.addr, &[0], soon()).await));
        let path = a.transfer.paths().remove(0);
        assert_eq!(path.quarantined_ms, None, "readmitted");
    }
}

/// A peer that was reached over TLS-TCP dies: again one timeout, then both paths are tried.
#[tokio::test(start_paused = true)]
async fn a_peer_behind_a_block_dies_and_comes_back_on_udp() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    assert_eq!(stream(&a, &b, 1).await, 1);
    net.darken(b.addr);
    a.transfer.disconnect(&b.id);
    let begun = Instant::now();
    let many =
        (0..20).map(|_| a.transfer.serve(b.id, std::slice::from_ref(&b.addr), request("m", 1)));
    for outcome in futures::future::join_all(many).await {
        assert!(matches!(outcome, Err(TransferError::Unreachable { .. })), "{outcome:?}");
    }
    assert!(begun.elapsed() <= 1510 * MS, "{:?}", begun.elapsed());
    let path = a.transfer.paths().remove(0);
    assert_eq!(path.failures, 1, "twenty who waited together are one failure");
    let refused = a.transfer.serve(b.id, &[b.addr], request("m", 1)).await;
    assert!(matches!(refused, Err(TransferError::Quarantined { .. })), "{refused:?}");
    net.lighten(b.addr);
    net.set(|weather| weather.udp_blocked = false);
    a.transfer.readmit(&b.id);
    assert_eq!(stream(&a, &b, 1).await, 1);
    assert_eq!(a.transfer.paths()[0].via, Some(Via::Quic));
}

/// A sick store that fails every read is excluded, probed, and readmitted when it is well.
#[tokio::test(start_paused = true)]
async fn a_sick_peer_is_excluded_probed_and_readmitted() {
    for weather in [FAIR, BLOCKED] {
        let net = Net::new(1, weather);
        let cluster = Cluster::new(1);
        let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
        b.hold(0);
        b.host.pool.writer(0, 1).unwrap()[7] ^= 1;
        assert_eq!(fetch(&a, &b, &[0]).await, [Fetched::Corrupt]);
        let asked = || b.host.asked.load(Ordering::SeqCst);
        let mut pauses = vec![1000, 2000, 4000];
        pauses.reverse();
        while let Some(pause) = pauses.pop() {
            let before = asked();
            for _ in 0..30 {
                assert_eq!(fetch(&a, &b, &[0]).await, [Fetched::Failed]);
            }
            assert_eq!(asked(), before, "not asked in quarantine");
            tokio::time::sleep(pause * MS).await;
            assert_eq!(fetch(&a, &b, &[0]).await, [Fetched::Corrupt], "the probe after {pause}");
            assert_eq!(asked(), before + 1);
        }
        until(|| b.host.pool.writer(0, 1).is_ok()).await;
        b.host.pool.writer(0, 1).unwrap()[7] ^= 1;
        tokio::time::sleep(8000 * MS).await;
        assert!(verified(&fetch(&a, &b, &[0]).await));
        assert!(verified(&fetch(&a, &b, &[0]).await), "readmitted");
    }
}

/// A batch that takes longer than its time: what was in time is used, the rest has failed, and the
/// holder's leases end with the transfer, not before and not much later.
#[tokio::test(start_paused = true)]
async fn leases_follow_a_slow_transfer() {
    for weather in [FAIR, BLOCKED] {
        let net = Net::new(1, weather);
        let cluster = Cluster::new(1);
        let config =
            transfer::TransferConfig { throttle_bytes_s: Some(BLOCK as u64), ..cluster.config(3) };
        let (a, b) = (cluster.node_in(&net, 2), cluster.node_on(net.host(), config));
        (0..10).for_each(|n| drop(b.hold(n)));
        a.transfer.warm(b.id, &[b.addr]).await.unwrap();
        // Ten blocks of a second each.
        let all: Vec<u8> = (0..10).collect();
        let (progress, mut seen) = mpsc::channel(16);
        let pool = Arc::clone(&a.host.pool);
        let begun = Instant::now();
        let deadline = (begun + 5500 * MS).into_std();
        let work = a.transfer.fetch(
            op(b.id, &all),
            std::slice::from_ref(&b.addr),
            pool,
            deadline,
            progress,
        );
        let watching = async {
            tokio::time::sleep(4000 * MS).await;
            b.host.open_leases.load(Ordering::SeqCst)
        };
        let (fetched, held) = tokio::join!(work, watching);
        assert!(held >= 5, "{held} of the last blocks are still lent");
        let results: Vec<Fetched> = fetched.into_iter().map(|(_, fetched)| fetched).collect();
        let good = results.iter().take_while(|f| matches!(f, Fetched::Verified(_))).count();
        assert!((4..=6).contains(&good), "{results:?}");
        assert!(results[good..].iter().all(|f| *f == Fetched::Failed));
        let mut told = 0;
        while seen.recv().await.is_some() {
            told += 1;
        }
        assert_eq!(told, good, "each was told when it came");
        until(|| b.host.open_leases.load(Ordering::SeqCst) == 0).await;
        assert!(begun.elapsed() < 6000 * MS, "{:?}", begun.elapsed());
        assert_eq!(a.transfer.paths()[0].failures, 0, "slow is not dead");
    }
}

/// A peer known under many addresses, one of which works, and that over TLS-TCP only.
#[tokio::test(start_paused = true)]
async fn further_addresses_are_tried_on_both_paths() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    let nowhere = |n: u8| std::net::SocketAddr::from(([10, 9, 9, n], 7600));
    let addrs = [nowhere(1), nowhere(2), b.addr];
    a.transfer.warm(b.id, &addrs).await.unwrap();
    let path = a.transfer.paths().remove(0);
    assert_eq!((path.via, path.failures), (Some(Via::TlsTcp), 0));
    let missing = a.transfer.warm(b.id, &[]).await;
    assert!(missing.is_ok(), "a kept connection needs no address");
    let many = FetchOp { blocks: vec![(key(0), slot(0, 1))], ..op(b.id, &[]) };
    let (progress, _seen) = mpsc::channel(1);
    let pool = Arc::clone(&a.host.pool);
    let fetched = a.transfer.fetch(many, &addrs, pool, soon(), progress).await;
    assert_eq!(fetched[0].1, Fetched::Absent);
}
