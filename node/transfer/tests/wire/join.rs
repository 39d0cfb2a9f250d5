//! Strangers with and without a token.

use crate::raw;
use crate::world::{Cluster, PATIENCE, answer_join, now};
use protocol::hash::HASH_VERSION;
use protocol::sign::Keypair;
use protocol::trust::{JoinRole, JoinToken, MemberCert, UnixTime};
use protocol::wire::handshake::VERSION;
use protocol::wire::join::{
    Admission, EXPORTER_LABEL, JoinAnswer, JoinRefusal, JoinRequest, REQUEST_MAX,
};
use protocol::wire::{decode, encode};
use quinn::{Connection, ConnectionError};
use std::net::SocketAddr;
use std::time::Duration;
use transfer::JoinError;

const JOIN: &[u8] = b"dn-join/1";

fn stranger() -> Keypair {
    Keypair::from_seed(&[77; 32])
}

async fn join(
    addr: SocketAddr,
    token: &JoinToken,
    keypair: &Keypair,
) -> Result<Admission, JoinError> {
    transfer::join_within(addr, token, keypair, PATIENCE).await
}

fn exporter(connection: &Connection) -> [u8; 32] {
    let mut bytes = [0u8; 32];
    connection.export_keying_material(&mut bytes, EXPORTER_LABEL, b"").unwrap();
    bytes
}

#[tokio::test]
async fn a_stranger_with_a_token_becomes_a_member() {
    let cluster = Cluster::new(1);
    let member = cluster.node(2);
    let admission = join(member.addr, &cluster.token(1), &stranger()).await.ok().unwrap();
    assert_eq!(admission.cert.node, stranger().node());
    assert_eq!(admission.issuing_seed, Some(cluster.issuing.seed()));
    let newcomer = cluster.node(77);
    newcomer.transfer.warm(member.id, &[member.addr]).await.unwrap();
}

#[tokio::test]
async fn wrong_and_expired_tokens_are_refused() {
    let cluster = Cluster::new(1);
    let member = cluster.node(2);
    // The right cluster's fields under a secret that somebody made up.
    let fields = cluster.token(1).fields;
    let forged = JoinToken::issue(&Keypair::from_seed(&[66; 32]), fields.clone());
    let refused = join(member.addr, &forged, &stranger()).await.err().unwrap();
    assert!(matches!(refused, JoinError::Refused(JoinRefusal::BadToken)), "{refused}");
    // Fields changed after the token was issued.
    let stretched = stretch(&cluster.token(1));
    let refused = join(member.addr, &stretched, &stranger()).await.err().unwrap();
    assert!(matches!(refused, JoinError::Refused(JoinRefusal::BadToken)), "{refused}");
    let old = protocol::trust::TokenFields { expires: UnixTime(now().0 - 10), ..fields };
    let expired = JoinToken::issue(&cluster.issuing, old);
    let refused = join(member.addr, &expired, &stranger()).await.err().unwrap();
    assert!(matches!(refused, JoinError::Refused(JoinRefusal::Expired)), "{refused}");
}

/// The token with its own secret and a thousand uses.
fn stretch(token: &JoinToken) -> JoinToken {
    let text = token.to_text();
    let mut bytes: Vec<u8> = (4..4 + 64)
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect();
    let fields = protocol::trust::TokenFields { uses: 1000, ..token.fields.clone() };
    bytes.extend(encode(&fields).unwrap());
    bytes.extend(blake3::hash(&bytes).as_bytes()[..4].to_vec());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let stretched = JoinToken::parse(&format!("dn1-{hex}")).unwrap();
    assert_eq!(stretched.fields.uses, 1000);
    stretched
}

#[tokio::test]
async fn nobody_there_is_told_with_the_address() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    let (token, within) = (Cluster::new(1).token(1), Duration::from_millis(50));
    let error = transfer::join_within(addr, &token, &stranger(), within).await.err().unwrap();
    assert!(matches!(error, JoinError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}

/// Answers joins at a raw server: `forge` sees the request and the exporter of its own session.
fn fake_member(
    forge: impl Fn(JoinRequest, [u8; 32]) -> JoinAnswer + Send + Sync + 'static,
) -> SocketAddr {
    let endpoint = raw::server(&Keypair::from_seed(&[99; 32]), &[JOIN]);
    let addr = endpoint.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let connection = incoming.await.unwrap();
            let (mut send, mut recv) = connection.accept_bi().await.unwrap();
            let request = decode(&raw::read_frame(&mut recv).await.unwrap()).unwrap();
            let answer = forge(request, exporter(&connection));
            send.write_all(&raw::frame(&encode(&answer).unwrap())).await.unwrap();
            send.finish().unwrap();
            connection.closed().await;
        }
    });
    addr
}

async fn fake(what: &str, forge: impl Fn(&mut Admission, &Cluster) + Send + Sync + 'static) {
    let cluster = Cluster::new(1);
    let token = cluster.token(1);
    let addr = fake_member(move |request, exporter| {
        let JoinAnswer::Admitted(mut admission) = answer_join(&cluster, request, &exporter) else {
            panic!("the request itself was right");
        };
        forge(&mut admission, &cluster);
        JoinAnswer::Admitted(admission)
    });
    let error = join(addr, &token, &stranger()).await.err().unwrap();
    assert!(matches!(error, JoinError::FakeMember { .. }), "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

#[tokio::test]
async fn a_fake_member_is_not_believed() {
    fake("proof", |admission, _| admission.proof[0] ^= 1).await;
    fake("node", |admission, cluster| admission.cert = cluster.cert(cluster.issuing.node())).await;
    fake("issuing key", |admission, _| admission.issuing_seed = Some([3; 32])).await;
    fake("certificate", |admission, cluster| {
        let other = Keypair::from_seed(&[4; 32]);
        let node = admission.cert.node;
        admission.cert = MemberCert::issue(&other, cluster.id(), node, vec![], now());
    })
    .await;
    fake("certificate", |admission, cluster| {
        let (node, long_ago) = (admission.cert.node, UnixTime(1));
        admission.cert = MemberCert::issue(&cluster.issuing, cluster.id(), node, vec![], long_ago);
    })
    .await;
}

#[tokio::test]
async fn a_man_in_the_middle_gains_nothing() {
    let cluster = Cluster::new(1);
    let member = cluster.node(2);
    let (seen, mut relayed) = tokio::sync::mpsc::unbounded_channel();
    // He answers with what a member would say to this request, but he has no secret: all he can
    // do is to pass the joiner's proof on.
    let addr = fake_member(move |request, exporter| {
        seen.send((request, exporter)).unwrap();
        JoinAnswer::Refused(JoinRefusal::Busy)
    });
    let refused = join(addr, &cluster.token(1), &stranger()).await.err().unwrap();
    assert!(matches!(refused, JoinError::Refused(JoinRefusal::Busy)), "{refused}");
    let (request, _) = relayed.recv().await.unwrap();
    // In the joiner's name, without its key: the request is not even shown to the node.
    let in_the_middle = Keypair::from_seed(&[99; 32]);
    let connection = raw::connect(Some(&in_the_middle), &[JOIN], member.addr).await.unwrap();
    assert!(exchange(&connection, &request).await.is_err());
    // In his own name: the proof is over another session.
    let connection = raw::connect(Some(&in_the_middle), &[JOIN], member.addr).await.unwrap();
    let own = JoinRequest { node: in_the_middle.node(), ..request };
    let answer = exchange(&connection, &own).await.unwrap();
    assert!(matches!(answer, JoinAnswer::Refused(JoinRefusal::BadToken)));
    assert!(!cluster.members.lock().unwrap().contains(&in_the_middle.node()));
}

async fn exchange(connection: &Connection, request: &JoinRequest) -> Result<JoinAnswer, String> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(|e| e.to_string())?;
    send.write_all(&raw::frame(&encode(request).unwrap())).await.map_err(|e| e.to_string())?;
    decode(&raw::read_frame(&mut recv).await?).map_err(|e| e.to_string())
}

#[tokio::test]
async fn no_more_than_the_join_frame_is_taken() {
    let cluster = Cluster::new(1);
    let member = cluster.node(2);
    let garbage = raw::frame(&[0xff; 64]);
    let too_long = raw::frame(&vec![0; REQUEST_MAX + 1]);
    let lying_length = u32::MAX.to_le_bytes().to_vec();
    for bytes in [garbage, too_long, lying_length] {
        let connection = raw::connect(Some(&stranger()), &[JOIN], member.addr).await.unwrap();
        let (mut send, _recv) = connection.open_bi().await.unwrap();
        send.write_all(&bytes).await.unwrap();
        let closed = tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
        assert!(matches!(closed, ConnectionError::ApplicationClosed(_)), "{closed}");
    }
    // A second stream is never granted.
    let connection = raw::connect(Some(&stranger()), &[JOIN], member.addr).await.unwrap();
    let _first = connection.open_bi().await.unwrap();
    let second = tokio::time::timeout(Duration::from_millis(100), connection.open_bi()).await;
    assert!(second.is_err());
}

#[tokio::test]
async fn joins_are_limited_in_number_and_time() {
    let cluster = Cluster::new(1);
    let mut config = cluster.config(2);
    config.limits.joins = 2;
    config.limits.first_frame = Duration::from_millis(400);
    let member = cluster.node_with(config);
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(raw::connect(Some(&stranger()), &[JOIN], member.addr).await.unwrap());
    }
    let third = join(member.addr, &cluster.token(1), &stranger()).await.err().unwrap();
    assert!(matches!(third, JoinError::Refused(JoinRefusal::Busy)), "{third}");
    for connection in silent {
        let closed = tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
        assert!(matches!(closed, ConnectionError::ApplicationClosed(_)), "{closed}");
    }
    assert!(join(member.addr, &cluster.token(1), &stranger()).await.is_ok());
}

#[tokio::test]
async fn the_proof_is_bound_to_its_session_and_role() {
    let cluster = Cluster::new(1);
    let member = cluster.node(2);
    let token = cluster.token(1);
    let connection = raw::connect(Some(&stranger()), &[JOIN], member.addr).await.unwrap();
    let request = JoinRequest {
        version: VERSION,
        hash_version: HASH_VERSION,
        token: token.fields.clone(),
        proof: token.prove(JoinRole::Member, &exporter(&connection)),
        node: stranger().node(),
    };
    let answer = exchange(&connection, &request).await.unwrap();
    assert!(matches!(answer, JoinAnswer::Refused(JoinRefusal::BadToken)));
}
