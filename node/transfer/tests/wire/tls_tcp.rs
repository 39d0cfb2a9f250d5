//! What QUIC promises, TLS-TCP promises too.

use crate::fetch::{LIFE, fetch, op, verified};
use crate::net::{FAIR, Net, Weather};
use crate::weather::stream;
use crate::world::{BLOCK, Cluster, Node, PATIENCE, key, request, soon, until};
use protocol::block::{ContentDigest, SignedDigest};
use protocol::op::Fetched;
use protocol::sign::Keypair;
use protocol::trust::JoinToken;
use protocol::wire::handshake::Mismatch;
use protocol::wire::join::JoinRefusal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use transfer::{JoinError, TransferConfig, TransferError};

const BLOCKED: Weather = Weather { udp_blocked: true, ..FAIR };

fn pair() -> (Net, Cluster, Node, Node) {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_in(&net, 3));
    (net, cluster, a, b)
}

#[tokio::test(start_paused = true)]
async fn connections_are_used_again() {
    let (net, _cluster, a, b) = pair();
    b.hold(0);
    for _ in 0..10 {
        assert_eq!(stream(&a, &b, 50).await, 50);
        assert!(verified(&fetch(&a, &b, &[0]).await));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(net.connects(), 2, "one for each protocol");
    let many = (0..40).map(|_| stream(&a, &b, 50));
    assert!(futures::future::join_all(many).await.iter().all(|tokens| *tokens == 50));
    let most = net.connects();
    assert!((20..=2 + 39).contains(&most), "{most}");
    let many = (0..8).map(|_| stream(&a, &b, 50));
    futures::future::join_all(many).await;
    assert_eq!(net.connects(), most, "idle ones were kept");
    // Old ones are not trusted.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(stream(&a, &b, 50).await, 50);
    assert_eq!(net.connects(), most + 1);
    assert_eq!(a.transfer.paths()[0].failures, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelling_reaches_the_server() {
    let (_net, _cluster, a, b) = pair();
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    answers.recv().await.unwrap();
    drop(answers);
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
    // Also while the server is held back by a reader that does not read.
    let answers = a.transfer.serve(b.id, &[b.addr], request("hang", 300_000)).await.unwrap();
    timeout(PATIENCE, b.host.serving.acquire_many(2)).await.unwrap().unwrap().forget();
    drop(answers);
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
    assert_eq!(stream(&a, &b, 5).await, 5, "the next one is not harmed");
}

#[tokio::test(start_paused = true)]
async fn closing_either_end_ends_the_streams() {
    let (_net, _cluster, a, b) = pair();
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    answers.recv().await.unwrap();
    a.transfer.disconnect(&b.id);
    assert_eq!(answers.recv().await, None, "a peer known to be dead is cut at once");
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    answers.recv().await.unwrap();
    b.transfer.close().await;
    assert_eq!(timeout(PATIENCE, answers.recv()).await.unwrap(), None);
    let (_net, _cluster, a, b) = pair();
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    answers.recv().await.unwrap();
    a.transfer.close().await;
    assert_eq!(timeout(PATIENCE, answers.recv()).await.unwrap(), None);
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
}

#[tokio::test(start_paused = true)]
async fn a_restarted_peer_is_found_behind_a_kept_connection() {
    let (net, cluster, a, b) = pair();
    assert_eq!(stream(&a, &b, 5).await, 5);
    let addr = b.addr;
    drop(b);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = cluster.node_on(net.bind(addr), cluster.config(3));
    assert_eq!(stream(&a, &again, 5).await, 5, "the closed connection was not used");
}

#[tokio::test(start_paused = true)]
async fn wrong_bytes_are_refused() {
    let (_net, cluster, a, b) = pair();
    b.hold(0);
    b.hold(1);
    b.host.pool.writer(0, 1).unwrap()[BLOCK / 2] ^= 1;
    let fetched = fetch(&a, &b, &[0, 1]).await;
    assert_eq!(fetched[0], Fetched::Corrupt);
    assert!(matches!(fetched[1], Fetched::Verified(_)));
    a.transfer.readmit(&b.id);
    let bytes = vec![5; BLOCK];
    let stranger = Keypair::from_seed(&[88; 32]);
    b.put(2, &bytes, SignedDigest::sign(&stranger, LIFE, key(2), ContentDigest::of(&bytes)));
    assert_eq!(fetch(&a, &b, &[2]).await, [Fetched::Corrupt], "the producer is no member");
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn over_its_limits_the_holder_says_busy() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let mut config = cluster.config(3);
    config.limits.block_streams_per_peer = 1;
    let (a, b) = (cluster.node_in(&net, 2), cluster.node_on(net.host(), config));
    b.hold(0);
    b.host.mute.store(true, Ordering::SeqCst);
    let (progress, _seen) = mpsc::channel(1);
    let (addrs, pool) = ([b.addr], Arc::clone(&a.host.pool));
    let first = a.transfer.fetch(op(b.id, &[1]), &addrs, pool, soon(), progress);
    let second = async {
        until(|| b.host.asked.load(Ordering::SeqCst) == 1).await;
        fetch(&a, &b, &[0]).await
    };
    tokio::select! {
        biased;
        _ = first => panic!("the first is not answered"),
        fetched = second => assert_eq!(fetched, [Fetched::Failed]),
    }
    assert_eq!(a.transfer.paths()[0].failures, 0, "busy is no failure");
    b.host.mute.store(false, Ordering::SeqCst);
    let fetched = timeout(PATIENCE, async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let fetched = fetch(&a, &b, &[0]).await;
            if fetched != [Fetched::Failed] {
                return fetched;
            }
        }
    });
    let fetched = fetched.await.unwrap();
    assert!(verified(&fetched), "the dropped one gave its credit back");
}

#[tokio::test(start_paused = true)]
async fn strangers_and_expelled_members_get_nothing() {
    let (_net, cluster, a, b) = pair();
    assert_eq!(stream(&a, &b, 5).await, 5);
    cluster.expel(a.id);
    let mut answers = match a.transfer.serve(b.id, &[b.addr], request("m", 5)).await {
        Ok(answers) => answers,
        Err(error) => panic!("{error}: the connection was kept"),
    };
    assert_eq!(answers.recv().await, None, "closed at its next request");
    let error = a.transfer.serve(b.id, &[b.addr], request("m", 5)).await.unwrap_err();
    assert!(error.to_string().contains("refused this node"), "{error}");
    cluster.expel(b.id);
    let error = a.transfer.warm(b.id, &[b.addr]).await.unwrap_err();
    assert!(matches!(error, TransferError::NotMember(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_peer_must_be_the_node_that_was_meant() {
    let (_net, cluster, a, b) = pair();
    let meant = Keypair::from_seed(&[4; 32]).node();
    cluster.admit(meant);
    let error = a.transfer.serve(meant, &[b.addr], request("m", 1)).await.unwrap_err();
    assert!(error.to_string().contains("another node answers here"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_differing_field_is_named() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let mut config: TransferConfig = cluster.config(2);
    config.hello.hash_version = 7;
    let (odd, even) = (cluster.node_on(net.host(), config), cluster.node_in(&net, 3));
    for (from, to) in [(&odd, &even), (&even, &odd)] {
        let error = from.transfer.warm(to.id, &[to.addr]).await.unwrap_err();
        assert!(
            matches!(error, TransferError::Mismatch { mismatch: Mismatch::HashVersion { .. }, .. }),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn joins_are_refused_as_on_quic() {
    let net = Net::new(1, BLOCKED);
    let cluster = Cluster::new(1);
    let mut config = cluster.config(2);
    config.limits.joins = 0;
    let (member, full) = (cluster.node_in(&net, 3), cluster.node_on(net.host(), config));
    let stranger = Keypair::from_seed(&[77; 32]);
    let forged = JoinToken::issue(&Keypair::from_seed(&[66; 32]), cluster.token(1).fields);
    for (node, token, refusal) in
        [(&member, forged, JoinRefusal::BadToken), (&full, cluster.token(1), JoinRefusal::Busy)]
    {
        let joined = transfer::join_over(&net.host(), node.addr, &token, &stranger, PATIENCE).await;
        let error = joined.err().unwrap();
        assert!(matches!(&error, JoinError::Refused(r) if *r == refusal), "{error}");
    }
}

/// On the real port: whatever comes instead of TLS costs its sender the connection.
#[tokio::test]
async fn nonsense_closes_the_connection() {
    let cluster = Cluster::new(1);
    let node = cluster.node(2);
    let port = transfer::tls_addr(node.addr).unwrap();
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 300]] {
        let mut tcp = tokio::net::TcpStream::connect(port).await.unwrap();
        tcp.write_all(nonsense).await.unwrap();
        let _ = tcp.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, tcp.read_to_end(&mut answer)).await.unwrap();
        assert!(answer.len() < 64, "{answer:?}");
    }
    let idle = tokio::net::TcpStream::connect(port).await.unwrap();
    let config = TransferConfig { udp: false, ..cluster.config(3) };
    let other = cluster.node_with(config);
    assert_eq!(stream(&other, &node, 20).await, 20, "over real TCP");
    node.hold(0);
    assert!(verified(&fetch(&other, &node, &[0]).await));
    drop(idle);
}
