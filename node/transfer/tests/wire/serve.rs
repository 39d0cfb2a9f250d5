//! Placed requests and their streams.

use crate::world::{Cluster, PATIENCE, request, until};
use protocol::hash::Token;
use protocol::prompt::StreamItem;
use protocol::wire::serve::ServeAnswer;
use tokio::time::timeout;

#[tokio::test]
async fn a_stream_comes_back_in_order_and_whole() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("m", 500)).await.unwrap();
    let mut tokens = Vec::new();
    while let Some(answer) = timeout(PATIENCE, answers.recv()).await.unwrap() {
        let ServeAnswer::Item(StreamItem::Tokens(more)) = answer else { panic!("{answer:?}") };
        tokens.extend(more);
    }
    assert_eq!(tokens, (0..500).map(Token).collect::<Vec<_>>());
    assert_eq!(b.host.cancelled.available_permits(), 0);
    assert!(a.transfer.paths()[0].rtt_ms.is_some());
}

#[tokio::test]
async fn dropping_the_receiver_cancels_at_the_server() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    drop(answers);
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
    // Also while the server is held back by a reader that does not read.
    let answers = a.transfer.serve(b.id, &[b.addr], request("hang", 300_000)).await.unwrap();
    timeout(PATIENCE, b.host.serving.acquire_many(2)).await.unwrap().unwrap().forget();
    drop(answers);
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_streams() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let _answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    timeout(PATIENCE, b.host.serving.acquire()).await.unwrap().unwrap().forget();
    a.transfer.close().await;
    timeout(PATIENCE, b.host.cancelled.acquire()).await.unwrap().unwrap().forget();
}

#[tokio::test]
async fn a_server_that_goes_down_ends_the_stream() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    b.transfer.close().await;
    assert_eq!(timeout(PATIENCE, answers.recv()).await.unwrap(), None);
}

#[tokio::test]
async fn a_peer_known_to_be_dead_is_cut_at_once() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    a.transfer.disconnect(&b.id);
    assert_eq!(timeout(PATIENCE, answers.recv()).await.unwrap(), None);
}

/// A restarted node has lost the keys of its old connections, but answers their packets with a
/// reset, so that its peers need not wait for the idle timeout.
#[tokio::test]
async fn a_restarted_node_is_reached_without_waiting() {
    let cluster = Cluster::new(1);
    let config = |seed| {
        let mut config = cluster.config(seed);
        config.limits.idle = PATIENCE * 3;
        config
    };
    let a = cluster.node_with(config(2));
    // In a runtime of its own, which is killed without a word to anybody.
    let life = tokio::runtime::Runtime::new().unwrap();
    let b = {
        let _inside = life.enter();
        cluster.node_with(config(3))
    };
    let mut answers = a.transfer.serve(b.id, &[b.addr], request("hang", 1)).await.unwrap();
    timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    tokio::task::spawn_blocking(|| life.shutdown_timeout(PATIENCE)).await.unwrap();
    let (id, addr) = (b.id, b.addr);
    // Its tasks are gone, so nobody is told of the closing here.
    drop(b);
    until(|| std::net::UdpSocket::bind(addr).is_ok()).await;
    let again = cluster.node_with(transfer::TransferConfig { listen: addr, ..config(3) });
    let mut lost = a.transfer.serve(id, &[addr], request("m", 1)).await.unwrap();
    assert_eq!(timeout(PATIENCE, lost.recv()).await.unwrap(), None, "the old connection");
    let mut answers = a.transfer.serve(id, &[addr], request("m", 1)).await.unwrap();
    assert!(timeout(PATIENCE, answers.recv()).await.unwrap().is_some());
    drop(again);
}
