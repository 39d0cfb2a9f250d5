//! Who may talk at all, and what the first words must say.

use crate::raw;
use crate::world::{Cluster, PATIENCE, key, request, slot, soon};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use protocol::id::NodeId;
use protocol::op::{FetchOp, Fetched, OpId};
use protocol::sign::Keypair;
use protocol::time::Time;
use protocol::trust::{MemberCert, UnixTime};
use protocol::wire::encode;
use protocol::wire::handshake::{Hello, Mismatch};
use quinn::ConnectionError;
use std::sync::Arc;
use tokio::sync::mpsc;
use transfer::{TransferConfig, TransferError};

const PROTOCOLS: [&[u8]; 3] = [b"dn-serve/1", b"dn-blocks/1", b"dn-blobs/1"];

/// A stranger is turned away by TLS: it sees a handshake error, never a stream.
async fn turned_away(keypair: Option<&Keypair>, protocols: &[&[u8]], addr: std::net::SocketAddr) {
    let Ok(connection) = raw::connect(keypair, protocols, addr).await else { return };
    // In TLS 1.3 the client is done before the server has judged its certificate.
    let closed = tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
    assert!(matches!(closed, ConnectionError::ConnectionClosed(_)), "{closed}");
}

#[tokio::test]
async fn strangers_are_refused_in_the_handshake() {
    let cluster = Cluster::new(1);
    let node = cluster.node(2);
    let stranger = Keypair::from_seed(&[50; 32]);
    for protocol in PROTOCOLS {
        turned_away(Some(&stranger), &[protocol], node.addr).await;
        turned_away(None, &[protocol], node.addr).await;
        // Offering the join beside it does not help.
        turned_away(Some(&stranger), &[b"dn-join/1", protocol], node.addr).await;
        turned_away(Some(&stranger), &[protocol, b"dn-join/1"], node.addr).await;
    }
    turned_away(None, &[b"dn-join/1"], node.addr).await;
    turned_away(Some(&stranger), &[b"h3"], node.addr).await;
    turned_away(Some(&stranger), &[], node.addr).await;
}

#[tokio::test]
async fn the_peer_must_be_the_node_that_was_meant() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let meant = Keypair::from_seed(&[4; 32]).node();
    cluster.admit(meant);
    let error = a.transfer.serve(meant, &[b.addr], request("m", 1)).await.unwrap_err();
    assert!(error.to_string().contains("another node answers here"), "{error}");
    let unknown = Keypair::from_seed(&[5; 32]).node();
    let error = a.transfer.serve(unknown, &[b.addr], request("m", 1)).await.unwrap_err();
    assert!(matches!(error, TransferError::NotMember(node) if node == unknown), "{error}");
}

#[tokio::test]
async fn an_expelled_member_loses_its_connections() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    b.hold(0);
    let connection = raw::connect(Some(&a.keypair), &[b"dn-blocks/1"], b.addr).await.unwrap();
    say_hello(&connection, &cluster.hello(a.id)).await;
    cluster.expel(a.id);
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(&[0]).await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
    assert!(closed.to_string().contains("not a member any more"), "{closed}");
}

async fn say_hello(connection: &quinn::Connection, hello: &Hello) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&raw::frame(&encode(hello).unwrap())).await.unwrap();
    send.finish().unwrap();
    raw::read_frame(&mut recv).await.unwrap();
}

async fn mismatch(change: impl Fn(&mut TransferConfig)) -> TransferError {
    let cluster = Cluster::new(1);
    let mut config = cluster.config(2);
    change(&mut config);
    let (odd, even) = (cluster.node_with(config), cluster.node(3));
    // Told alike whoever calls.
    let theirs = even.transfer.warm(odd.id, &[odd.addr]).await.unwrap_err();
    let ours = odd.transfer.warm(even.id, &[even.addr]).await.unwrap_err();
    assert_eq!(
        matches!(theirs, TransferError::Mismatch { .. }),
        matches!(ours, TransferError::Mismatch { .. }),
        "{theirs} / {ours}"
    );
    theirs
}

#[tokio::test]
async fn a_differing_field_is_named() {
    let error = mismatch(|config| {
        (config.hello.version, config.hello.version_min) = (9, 8);
    });
    let error = error.await;
    assert!(
        matches!(error, TransferError::Mismatch { mismatch: Mismatch::Version { .. }, .. }),
        "{error}"
    );
    let error = mismatch(|config| config.hello.hash_version = 7).await;
    assert!(error.to_string().contains("`hash_version`"), "{error}");
    let error = mismatch(|config| config.hello.cluster.0[0] ^= 1).await;
    assert!(error.to_string().contains("`cluster`"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_does_not_hold_is_named() {
    let error = mismatch(|config| {
        let cluster = config.hello.cluster;
        let issuing = Keypair::from_seed(&[1; 32]);
        config.hello.cert =
            MemberCert::issue(&issuing, cluster, config.hello.node, vec![], UnixTime(1));
    });
    let error = error.await;
    assert!(error.to_string().contains("`cert.expires`"), "{error}");
    let error = mismatch(|config| config.hello.cert.labels.push("issuer".into())).await;
    assert!(error.to_string().contains("`cert.signature`"), "{error}");
    let error = mismatch(|config| config.hello.cert.node = NodeId([1; 32])).await;
    assert!(error.to_string().contains("`cert.node`"), "{error}");
    let error = mismatch(|config| config.hello.node = NodeId([1; 32])).await;
    assert!(error.to_string().contains("`node`"), "{error}");
}

#[tokio::test]
async fn a_taken_port_is_told() {
    let cluster = Cluster::new(1);
    let node = cluster.node(2);
    let config = TransferConfig { listen: node.addr, ..cluster.config(3) };
    let error = transfer::Transfer::bind(config, Arc::clone(&node.host) as _).unwrap_err();
    assert!(matches!(error, TransferError::InUse(addr) if addr == node.addr), "{error}");
    assert!(error.to_string().contains(&node.addr.to_string()), "{error}");
}

#[tokio::test]
async fn further_addresses_are_tried() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addrs = ["[::1]:9".parse().unwrap(), silent.local_addr().unwrap(), b.addr];
    a.transfer.warm(b.id, &addrs).await.unwrap();
    let paths = a.transfer.paths();
    assert!(paths[0].rtt_ms.is_some() && paths[0].failures == 0, "{paths:?}");
}

#[tokio::test]
async fn random_datagrams_do_no_harm() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bytes = prop::collection::vec(any::<u8>(), 0..1500);
    for round in 0..400 {
        let mut bytes = bytes.new_tree(&mut runner).unwrap().current();
        // Half of them look like the first packet of a QUIC connection.
        if let (0, Some(head)) = (round % 2, bytes.get_mut(..6)) {
            head.copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        }
        socket.send_to(&bytes, b.addr).unwrap();
    }
    b.hold(0);
    let op = FetchOp {
        op: OpId(1),
        from: b.id,
        blocks: vec![(key(0), slot(0, 1))],
        block_bytes: crate::world::BLOCK as u64,
        deadline: Time::ZERO,
    };
    let (progress, _seen) = mpsc::channel(4);
    let pool = Arc::clone(&a.host.pool);
    let fetched = a.transfer.fetch(op, &[b.addr], pool, soon(), progress).await;
    assert!(matches!(fetched[0].1, Fetched::Verified(_)), "{fetched:?}");
}

/// Members may send nonsense too: it costs them their stream, nobody else anything.
#[tokio::test]
async fn nonsense_of_a_member_ends_its_stream_only() {
    let cluster = Cluster::new(1);
    let node = cluster.node(2);
    let member = Keypair::from_seed(&[60; 32]);
    cluster.admit(member.node());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bodies = prop::collection::vec(any::<u8>(), 0..400);
    for protocol in PROTOCOLS {
        let connection = raw::connect(Some(&member), &[protocol], node.addr).await.unwrap();
        say_hello(&connection, &cluster.hello(member.node())).await;
        for round in 0..60 {
            let body = bodies.new_tree(&mut runner).unwrap().current();
            let bytes = if round % 3 == 0 { body } else { raw::frame(&body) };
            let (mut send, mut recv) = connection.open_bi().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            send.finish().unwrap();
            let _ = tokio::time::timeout(PATIENCE, recv.read_to_end(1 << 20)).await.unwrap();
        }
        assert!(connection.close_reason().is_none());
    }
    assert_eq!(node.host.serving.available_permits(), 0);
}
