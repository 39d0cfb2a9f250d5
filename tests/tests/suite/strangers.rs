//! A stranger with a key of his own: no handshake, and the node goes on.

use crate::kit::Cluster;
use crate::models::tiny;
use futures::future::BoxFuture;
use protocol::event::Contact;
use protocol::hash::HASH_VERSION;
use protocol::id::{Incarnation, NodeId};
use protocol::sign::Keypair;
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use protocol::wire::blocks::BlocksRequest;
use protocol::wire::handshake::{Hello, VERSION, VERSION_MIN};
use protocol::wire::join::{JoinAnswer, JoinRefusal, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use transfer::{Host, Limits, ReadBlock, Transfer, TransferConfig};

/// Trusts everybody and serves nobody.
struct Anybody;

impl Host for Anybody {
    fn is_member(&self, _: &NodeId) -> bool {
        true
    }

    fn join(&self, _: JoinRequest, _: [u8; 32], _: SocketAddr) -> BoxFuture<'_, JoinAnswer> {
        Box::pin(async { JoinAnswer::Refused(JoinRefusal::Busy) })
    }

    fn serve(&self, _: NodeId, _: ServeRequest, _: mpsc::Sender<ServeAnswer>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn read_blocks(&self, _: NodeId, _: BlocksRequest) -> BoxFuture<'_, Vec<Option<ReadBlock>>> {
        Box::pin(async { Vec::new() })
    }
}

/// An endpoint whose certificate is signed by a forged issuer but names the real cluster.
fn stranger(cluster: &Cluster) -> Arc<Transfer> {
    let (keypair, forged) = (Keypair::from_seed(&[7; 32]), Keypair::from_seed(&[8; 32]));
    let cluster = protocol::id::parse_hex::<16>(cluster.fleet.node(0).cluster_id()).unwrap();
    let cluster = protocol::id::ClusterId(cluster);
    assert_ne!(cluster, cluster_of(&forged.node()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let cert = MemberCert::issue(&forged, cluster, keypair.node(), Vec::new(), UnixTime(now));
    let hello = Hello {
        version: VERSION,
        version_min: VERSION_MIN,
        hash_version: HASH_VERSION,
        cluster,
        node: keypair.node(),
        incarnation: Incarnation { counter: 1, nonce: 1 },
        cert,
        contact: Contact::default(),
    };
    let config = TransferConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        udp: true,
        keypair,
        hello,
        issuer: forged.node(),
        limits: Limits::default(),
        throttle_bytes_s: None,
    };
    Transfer::bind(config, Arc::new(Anybody)).unwrap()
}

#[tokio::test]
async fn a_stranger_gets_no_connection() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let transfer = stranger(&cluster);
    let node = NodeId::parse(&cluster.id(0)).unwrap();
    let member = cluster.fleet.node(0).cluster_addr();
    let error = transfer.warm(node, &[member]).await.unwrap_err().to_string();
    println!("the stranger is told: {error}");
    let status = cluster.get(0, "/admin/v1/status").await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 1, "{status}");
    cluster.answer(&cluster.call(0, "Hello")).await;
}
