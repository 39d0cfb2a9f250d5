//! Blocks between nodes.

use crate::raw;
use crate::world::{BLOCK, Cluster, Node, key, slot, soon, until};
use protocol::block::{ContentDigest, SignedDigest};
use protocol::id::{Incarnation, NodeId};
use protocol::op::{FetchOp, Fetched, OpId};
use protocol::sign::Keypair;
use protocol::time::Time;
use protocol::wire::blocks::{BlockHead, BlocksRequest};
use protocol::wire::handshake::Hello;
use protocol::wire::{decode, encode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

pub(crate) const LIFE: Incarnation = Incarnation { counter: 1, nonce: 1 };

pub(crate) fn op(from: NodeId, blocks: &[u8]) -> FetchOp {
    FetchOp {
        op: OpId(1),
        from,
        blocks: blocks.iter().map(|n| (key(*n), slot(*n, 1))).collect(),
        block_bytes: BLOCK as u64,
        deadline: Time::ZERO,
    }
}

pub(crate) async fn fetch_until(
    to: &Node,
    from: NodeId,
    addr: SocketAddr,
    blocks: &[u8],
    deadline: Instant,
) -> Vec<Fetched> {
    let (progress, _seen) = mpsc::channel(64);
    let pool = Arc::clone(&to.host.pool);
    let fetched = to.transfer.fetch(op(from, blocks), &[addr], pool, deadline, progress).await;
    assert_eq!(
        fetched.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        blocks.iter().map(|n| key(*n)).collect::<Vec<_>>()
    );
    fetched.into_iter().map(|(_, fetched)| fetched).collect()
}

pub(crate) async fn fetch(to: &Node, from: &Node, blocks: &[u8]) -> Vec<Fetched> {
    fetch_until(to, from.id, from.addr, blocks, soon()).await
}

pub(crate) fn verified(fetched: &[Fetched]) -> bool {
    fetched.iter().all(|fetched| matches!(fetched, Fetched::Verified(_)))
}

#[tokio::test]
async fn blocks_arrive_whole_and_early() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let held: Vec<_> = (0..8).map(|n| b.hold(n).1).collect();
    let blocks: Vec<u8> = (0..8).collect();
    let (progress, mut seen) = mpsc::channel(64);
    let pool = Arc::clone(&a.host.pool);
    let all = a.transfer.fetch(op(b.id, &blocks), &[b.addr], pool, soon(), progress).await;
    let results: Vec<Fetched> = all.into_iter().map(|(_, fetched)| fetched).collect();
    assert!(verified(&results), "{results:?}");
    for (n, bytes) in held.iter().enumerate() {
        assert_eq!(&a.host.pool.reader(n as u32, 1).unwrap()[..], &bytes[..]);
        let (at, fetched) = seen.recv().await.unwrap();
        assert_eq!((at, &fetched), (n, &results[n]), "told in order");
    }
    assert_eq!(seen.recv().await, None);
    let path = &a.transfer.paths()[0];
    assert_eq!((path.node, path.fetched_bytes), (b.id, 8 * BLOCK as u64));
    assert!(path.bandwidth_bytes_s.is_some_and(|rate| rate > 0.0));
    // The holder's slots are free again.
    until(|| b.host.open_leases.load(Ordering::SeqCst) == 0).await;
    assert!((0..8).all(|n| b.host.pool.writer(n, 2).is_ok()));
}

#[tokio::test]
async fn absent_blocks_are_told_and_others_still_come() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(1);
    let fetched = fetch(&a, &b, &[0, 1, 2]).await;
    assert_eq!((&fetched[0], &fetched[2]), (&Fetched::Absent, &Fetched::Absent));
    assert!(matches!(fetched[1], Fetched::Verified(_)));
    assert_eq!(a.transfer.paths()[0].failures, 0);
}

#[tokio::test]
async fn flipped_bytes_are_corrupt_and_quarantine_the_peer() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(0);
    b.hold(1);
    b.host.pool.writer(0, 1).unwrap()[BLOCK / 2] ^= 1;
    let fetched = fetch(&a, &b, &[0, 1]).await;
    assert_eq!(fetched[0], Fetched::Corrupt);
    assert!(matches!(fetched[1], Fetched::Verified(_)), "the next block is judged by itself");
    let path = a.transfer.paths().remove(0);
    assert_eq!(path.corrupt, 1);
    assert!(path.quarantined_ms.is_some());
    // In quarantine the peer is not even asked.
    let asked = b.host.asked.load(Ordering::SeqCst);
    assert_eq!(fetch(&a, &b, &[1]).await, [Fetched::Failed]);
    assert_eq!(b.host.asked.load(Ordering::SeqCst), asked);
    a.transfer.readmit(&b.id);
    assert!(verified(&fetch(&a, &b, &[1]).await));
    assert_eq!(a.transfer.paths()[0].quarantined_ms, None);
}

#[tokio::test]
async fn digests_must_be_of_the_block_and_signed_by_a_member() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let bytes = vec![5; BLOCK];
    let digest = ContentDigest::of(&bytes);
    let stranger = Keypair::from_seed(&[88; 32]);
    b.put(0, &bytes, SignedDigest::sign(&stranger, LIFE, key(0), digest));
    assert_eq!(fetch(&a, &b, &[0]).await, [Fetched::Corrupt], "producer is no member");
    assert_eq!(a.transfer.paths()[0].corrupt, 0, "the sender may not know better");
    b.put(1, &bytes, SignedDigest::sign(&b.keypair, LIFE, key(9), digest));
    assert_eq!(fetch(&a, &b, &[1]).await, [Fetched::Corrupt], "another block's digest");
    a.transfer.readmit(&b.id);
    let mut unsigned = SignedDigest::sign(&b.keypair, LIFE, key(2), digest);
    unsigned.producer = a.id;
    b.put(2, &bytes, unsigned);
    assert_eq!(fetch(&a, &b, &[2]).await, [Fetched::Corrupt], "signed by somebody else");
}

#[tokio::test]
async fn a_block_of_a_third_member_is_fine() {
    let cluster = Cluster::new(1);
    let (a, b, c) = (cluster.node(2), cluster.node(3), cluster.node(4));
    c.hold(0);
    assert!(verified(&fetch(&b, &c, &[0]).await));
    let digest = SignedDigest::sign(
        &c.keypair,
        LIFE,
        key(0),
        ContentDigest::of(&b.host.pool.reader(0, 1).unwrap()),
    );
    b.host.blocks.lock().unwrap().insert(key(0), (digest, slot(0, 1)));
    assert!(verified(&fetch(&a, &b, &[0]).await));
}

#[tokio::test]
async fn a_stalled_peer_costs_its_deadline_once() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(0);
    b.host.mute.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_millis(400);
    let fetched = fetch_until(&a, b.id, b.addr, &[0], deadline).await;
    assert_eq!(fetched, [Fetched::Failed]);
    // No write lands any more: the slot is free for its next life.
    assert!(a.host.pool.writer(0, 2).is_ok());
    assert_eq!(a.transfer.paths()[0].failures, 1);
    assert_eq!(fetch(&a, &b, &[0]).await, [Fetched::Failed], "quarantined");
    b.host.mute.store(false, Ordering::SeqCst);
    a.transfer.readmit(&b.id);
    let (progress, _seen) = mpsc::channel(1);
    let again = FetchOp { blocks: vec![(key(0), slot(1, 1))], ..op(b.id, &[]) };
    let pool = Arc::clone(&a.host.pool);
    let fetched = a.transfer.fetch(again, &[b.addr], pool, soon(), progress).await;
    assert!(matches!(fetched[0].1, Fetched::Verified(_)), "{fetched:?}");
}

#[tokio::test]
async fn a_slow_peer_delivers_what_it_can_before_the_deadline() {
    let cluster = Cluster::new(1);
    let a = cluster.node(2);
    let b = cluster.node_with(transfer::TransferConfig {
        throttle_bytes_s: Some(4 * BLOCK as u64),
        ..cluster.config(3)
    });
    (0..4).for_each(|n| drop(b.hold(n)));
    a.transfer.warm(b.id, &[b.addr]).await.unwrap();
    // The end of the last of four blocks is not sent before most of a second has passed.
    let deadline = Instant::now() + Duration::from_millis(450);
    let fetched = fetch_until(&a, b.id, b.addr, &[0, 1, 2, 3], deadline).await;
    assert_eq!(fetched[3], Fetched::Failed);
    // The holder lets go of the rest with the same deadline.
    until(|| b.host.open_leases.load(Ordering::SeqCst) == 0).await;
    until(|| b.host.pool.writer(3, 2).is_ok()).await;
}

#[tokio::test]
async fn a_dead_peer_fails_within_the_connect_timeout() {
    let cluster = Cluster::new(1);
    let mut config = cluster.config(2);
    config.limits.connect = Duration::from_millis(200);
    let a = cluster.node_with(config);
    let dead = Keypair::from_seed(&[3; 32]).node();
    cluster.admit(dead);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    // Many at once wait for the same attempt, not one after another.
    let (op, many) = (op(dead, &[0]), 50);
    let fetches = (0..many).map(|_| {
        let (progress, _seen) = mpsc::channel(1);
        let pool = Arc::clone(&a.host.pool);
        a.transfer.fetch(op.clone(), std::slice::from_ref(&addr), pool, soon(), progress)
    });
    for fetched in futures::future::join_all(fetches).await {
        assert_eq!(fetched[0].1, Fetched::Failed);
    }
    let path = a.transfer.paths().remove(0);
    assert_eq!(path.failures, 1);
    assert!(path.quarantined_ms.is_some());
    assert_eq!(fetch_until(&a, dead, addr, &[0], soon()).await, [Fetched::Failed]);
    assert_eq!(a.transfer.paths()[0].failures, 1, "not tried again");
}

#[tokio::test]
async fn a_lost_lease_keeps_the_slot_untouched() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(0);
    b.hold(1);
    // Slot 0 has begun its next life while the fetch was under way.
    a.host.pool.writer(0, 2).unwrap().fill(9);
    let fetched = fetch(&a, &b, &[0, 1]).await;
    assert_eq!(fetched[0], Fetched::Failed);
    assert!(matches!(fetched[1], Fetched::Verified(_)));
    assert!(a.host.pool.reader(0, 2).unwrap().iter().all(|byte| *byte == 9));
}

#[tokio::test]
async fn over_its_limits_the_holder_says_busy() {
    let cluster = Cluster::new(1);
    let a = cluster.node(2);
    let mut config = cluster.config(3);
    config.limits.block_streams_per_peer = 1;
    let b = cluster.node_with(config);
    b.hold(0);
    b.host.mute.store(true, Ordering::SeqCst);
    let pool = Arc::clone(&a.host.pool);
    let (progress, _seen) = mpsc::channel(1);
    let (addrs, blocks) = ([b.addr], op(b.id, &[1]));
    let first = a.transfer.fetch(blocks, &addrs, pool, soon(), progress);
    let second = async {
        until(|| b.host.asked.load(Ordering::SeqCst) == 1).await;
        fetch(&a, &b, &[0]).await
    };
    tokio::select! {
        _ = first => panic!("the first is not answered"),
        fetched = second => assert_eq!(fetched, [Fetched::Failed]),
    }
    let path = a.transfer.paths().remove(0);
    assert_eq!((path.failures, path.quarantined_ms), (0, None), "busy is no failure");
    // The first was dropped, which frees its credit.
    b.host.mute.store(false, Ordering::SeqCst);
    let mut fetched = vec![Fetched::Failed];
    while fetched == [Fetched::Failed] {
        fetched = fetch(&a, &b, &[0]).await;
    }
    assert!(verified(&fetched));
}

/// A member's certificate and key, and a server that answers fetches with whatever `answer` says.
async fn liar(
    cluster: &Cluster,
    answer: impl Fn(&BlocksRequest) -> Vec<u8> + Send + 'static,
) -> (NodeId, SocketAddr) {
    let keypair = Keypair::from_seed(&[70; 32]);
    cluster.admit(keypair.node());
    let endpoint = raw::server(&keypair, &[b"dn-blocks/1"]);
    let (addr, hello) = (endpoint.local_addr().unwrap(), cluster.hello(keypair.node()));
    tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let (mut send, mut recv) = connection.accept_bi().await.unwrap();
        let _: Hello = decode(&raw::read_frame(&mut recv).await.unwrap()).unwrap();
        send.write_all(&raw::frame(&encode(&hello).unwrap())).await.unwrap();
        send.finish().unwrap();
        while let Ok((mut send, mut recv)) = connection.accept_bi().await {
            let request = decode(&raw::read_frame(&mut recv).await.unwrap()).unwrap();
            let _ = send.write_all(&answer(&request)).await;
            let _ = send.finish();
        }
    });
    (keypair.node(), addr)
}

fn present(n: u8, bytes: &[u8], length: u64) -> Vec<u8> {
    let keypair = Keypair::from_seed(&[70; 32]);
    let digest = Box::new(SignedDigest::sign(&keypair, LIFE, key(n), ContentDigest::of(bytes)));
    let mut out = raw::frame(&encode(&BlockHead::Present { digest, length }).unwrap());
    out.extend(bytes);
    out
}

#[tokio::test]
async fn wrong_lengths_are_corrupt() {
    for length in [0, 1, BLOCK as u64 - 1, BLOCK as u64 + 1, u64::MAX] {
        let cluster = Cluster::new(1);
        let a = cluster.node(2);
        let (liar, addr) = liar(&cluster, move |_| present(0, &[1; 1000], length)).await;
        let fetched = fetch_until(&a, liar, addr, &[0, 1], soon()).await;
        assert_eq!(fetched, [Fetched::Corrupt, Fetched::Failed], "length {length}");
        assert_eq!(a.transfer.paths()[0].corrupt, 1);
    }
}

#[tokio::test]
async fn a_block_that_breaks_off_has_failed() {
    let cluster = Cluster::new(1);
    let a = cluster.node(2);
    let (liar, addr) = liar(&cluster, |_| present(0, &[1; 1000], BLOCK as u64)).await;
    let fetched = fetch_until(&a, liar, addr, &[0, 1], soon()).await;
    assert_eq!(fetched, [Fetched::Failed, Fetched::Failed]);
    assert_eq!(a.transfer.paths()[0].failures, 1);
    assert!(a.host.pool.writer(0, 2).is_ok());
}

#[tokio::test]
async fn a_head_that_is_none_is_corrupt() {
    for nonsense in [raw::frame(&[0xff; 40]), raw::frame(&[]), raw::frame(&[0; 4000])] {
        let cluster = Cluster::new(1);
        let a = cluster.node(2);
        let (liar, addr) = liar(&cluster, move |_| nonsense.clone()).await;
        let fetched = fetch_until(&a, liar, addr, &[0], soon()).await;
        assert_eq!(fetched, [Fetched::Corrupt]);
    }
}

#[tokio::test]
async fn requests_are_cut_to_what_the_protocol_allows() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(3);
    // More blocks than one request may name; only one of them is there.
    let mut many = op(b.id, &[]);
    many.blocks = (0..2500).map(|_| (key(9), slot(9, 1))).collect();
    many.blocks.push((key(3), slot(3, 1)));
    let (progress, mut seen) = mpsc::channel(4000);
    let pool = Arc::clone(&a.host.pool);
    let fetched = a.transfer.fetch(many, &[b.addr], pool, soon(), progress).await;
    assert_eq!(fetched.iter().filter(|(_, f)| *f == Fetched::Absent).count(), 2500);
    assert!(matches!(fetched[2500].1, Fetched::Verified(_)));
    assert_eq!(b.host.asked.load(Ordering::SeqCst), 3);
    let mut places = Vec::new();
    while let Some((at, _)) = seen.recv().await {
        places.push(at);
    }
    assert_eq!(places, (0..2501).collect::<Vec<_>>());
}
