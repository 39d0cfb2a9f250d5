//! Placed requests and their streams.

use crate::world::{Cluster, Node, PATIENCE, request, until};
use protocol::hash::{PrefixHash, Token};
use protocol::prompt::StreamItem;
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use tokio::time::timeout;
use transfer::TransferConfig;

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

/// A request whose prompt is long enough to be kept at the server.
fn long(tokens: u32) -> ServeRequest {
    let mut request = request("m", tokens);
    request.prompt.prefix =
        (1..=u128::from(tokens) / 16).map(PrefixHash).collect::<Vec<_>>().into();
    request
}

/// What the server made of the request, as the tokens that it sends back.
async fn echoed(a: &Node, b: &Node, request: ServeRequest) -> usize {
    let mut answers = a.transfer.serve(b.id, &[b.addr], request).await.unwrap();
    let mut count = 0;
    while let Some(answer) = timeout(PATIENCE, answers.recv()).await.unwrap() {
        let expected = vec![Token(u32::try_from(count).unwrap())];
        assert_eq!(answer, ServeAnswer::Item(StreamItem::Tokens(expected)));
        count += 1;
    }
    count
}

#[tokio::test]
async fn prompts_that_go_on_arrive_whole_over_both_transports() {
    for udp in [true, false] {
        let cluster = Cluster::new(1);
        let config = |seed| TransferConfig { udp, ..cluster.config(seed) };
        let (a, b) = (cluster.node_with(config(2)), cluster.node_with(config(3)));
        for tokens in [2000, 2100, 2100, 1500, 3000, 100] {
            assert_eq!(echoed(&a, &b, long(tokens)).await, tokens as usize);
        }
        assert_eq!(a.transfer.paths()[0].failures, 0);
    }
}

#[tokio::test]
async fn a_server_that_keeps_nothing_is_sent_all() {
    for udp in [true, false] {
        let cluster = Cluster::new(1);
        let mut config = TransferConfig { udp, ..cluster.config(3) };
        config.limits.prompts_kept = 0;
        let a = cluster.node_with(TransferConfig { udp, ..cluster.config(2) });
        let b = cluster.node_with(config);
        for tokens in [2000, 2100, 2200] {
            assert_eq!(echoed(&a, &b, long(tokens)).await, tokens as usize);
        }
        assert_eq!(a.transfer.paths()[0].failures, 0);
    }
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
    let again = cluster.node_with(TransferConfig { listen: addr, ..config(3) });
    let mut lost = a.transfer.serve(id, &[addr], request("m", 1)).await.unwrap();
    assert_eq!(timeout(PATIENCE, lost.recv()).await.unwrap(), None, "the old connection");
    let mut answers = a.transfer.serve(id, &[addr], request("m", 1)).await.unwrap();
    assert!(timeout(PATIENCE, answers.recv()).await.unwrap().is_some());
    drop(again);
}
