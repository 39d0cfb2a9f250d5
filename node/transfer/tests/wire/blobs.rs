//! Bytes by name between nodes.

use crate::net::{FAIR, Net, Weather};
use crate::world::{Cluster, Node};
use bytes::Bytes;
use protocol::card::BlobDigest;
use protocol::wire::blobs::BLOB_MAX;
use std::sync::atomic::Ordering;
use transfer::TransferError;

fn blob(length: usize) -> Bytes {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn keep(node: &Node, digest: BlobDigest, bytes: Bytes) {
    node.host.blobs.lock().unwrap().insert(digest, bytes);
}

async fn fetch(to: &Node, from: &Node, digest: BlobDigest) -> Result<Bytes, String> {
    let fetched = to.transfer.fetch_blob(from.id, &[from.addr], digest).await;
    fetched.map_err(|error| error.to_string())
}

/// One pair per way between nodes.
fn pairs() -> [(Node, Node); 2] {
    [false, true].map(|udp_blocked| {
        let net = Net::new(1, Weather { udp_blocked, ..FAIR });
        let cluster = Cluster::new(1);
        (cluster.node_in(&net, 2), cluster.node_in(&net, 3))
    })
}

#[tokio::test(start_paused = true)]
async fn blobs_arrive_whole() {
    for (a, b) in pairs() {
        for length in [0, 1, 65_536, 65_537, 3_000_000] {
            let bytes = blob(length);
            let digest = BlobDigest::of(&bytes);
            keep(&b, digest, bytes.clone());
            assert!(fetch(&a, &b, digest).await.as_ref() == Ok(&bytes), "{length}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_bytes_are_not_taken() {
    for (a, b) in pairs() {
        let digest = BlobDigest::of(&blob(1000));
        keep(&b, digest, blob(1001));
        let error = fetch(&a, &b, digest).await.unwrap_err();
        assert!(error.contains("other bytes"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_said() {
    for (a, b) in pairs() {
        let error = fetch(&a, &b, BlobDigest([1; 32])).await.unwrap_err();
        assert!(error.contains("no such bytes"), "{error}");
        // Nor is what is too large to be sent.
        let large = BlobDigest([2; 32]);
        keep(&b, large, Bytes::from(vec![0; BLOB_MAX as usize + 1]));
        let error = fetch(&a, &b, large).await.unwrap_err();
        assert!(error.contains("no such bytes"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_stalls_is_given_up() {
    for (a, b) in pairs() {
        b.host.mute.store(true, Ordering::SeqCst);
        let error = fetch(&a, &b, BlobDigest([1; 32])).await.unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_the_credits_are_told_to_wait() {
    let [(a, b), _] = pairs();
    b.host.mute.store(true, Ordering::SeqCst);
    let many = (0..9).map(|_| fetch(&a, &b, BlobDigest([1; 32])));
    let errors = futures::future::join_all(many).await;
    let busy = errors.iter().filter(|error| error.as_ref().unwrap_err().contains("busy"));
    assert_eq!(busy.count(), 1);
}

#[tokio::test]
async fn who_is_no_member_gets_nothing() {
    let cluster = Cluster::new(1);
    let (a, b) = (cluster.node(2), cluster.node(3));
    let bytes = blob(10);
    keep(&b, BlobDigest::of(&bytes), bytes.clone());
    cluster.expel(b.id);
    let refused = a.transfer.fetch_blob(b.id, &[b.addr], BlobDigest::of(&bytes)).await;
    assert!(matches!(refused, Err(TransferError::NotMember(node)) if node == b.id));
}
