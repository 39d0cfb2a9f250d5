//! What this node does for other nodes: admits joiners, serves prompts placed here, lends blocks.

use crate::clock::Clock;
use crate::node::Node;
use crate::run;
use crate::serve::STREAM_ITEMS;
use bytes::Bytes;
use futures::future::BoxFuture;
use protocol::card::BlobDigest;
use protocol::hash::HASH_VERSION;
use protocol::id::NodeId;
use protocol::op::ReadId;
use protocol::prompt::{Refusal, StreamItem};
use protocol::time::Span;
use protocol::trust::{JoinRole, JoinToken, LABEL_ISSUER, MemberCert};
use protocol::wire::blocks::BlocksRequest;
use protocol::wire::handshake::{VERSION, VERSION_MIN};
use protocol::wire::join::{Admission, JoinAnswer, JoinRefusal, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tokio::sync::mpsc;
use transfer::ReadBlock;
use wiring::Input;

/// The node as its transfer agent sees it.
pub(crate) struct NodeHost {
    node: OnceLock<Weak<Node>>,
    reads: AtomicU64,
    /// One admission at a time, so that the uses of a token are counted right.
    admitting: Mutex<()>,
}

impl NodeHost {
    /// A host that answers nobody until [`Self::speak_for`] is called.
    pub(crate) fn new() -> Self {
        Self { node: OnceLock::new(), reads: AtomicU64::new(0), admitting: Mutex::new(()) }
    }

    /// Speaks for `node` as long as it lives.
    pub(crate) fn speak_for(&self, node: &Arc<Node>) {
        let _ = self.node.set(Arc::downgrade(node));
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }
}

/// Ends a peer's read when dropped.
struct ReadLease {
    node: Arc<Node>,
    read: ReadId,
}

/// Counts bytes lent to a peer while it reads them.
struct Owed {
    lease: Arc<ReadLease>,
    bytes: u64,
}

impl Owed {
    fn new(lease: &Arc<ReadLease>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        lease.node.owed.fetch_add(bytes, Ordering::Relaxed);
        Self { lease: lease.clone(), bytes }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.lease.node.owed.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        self.node.board.send(Input::Store(kvstore::In::ReadDone(self.read)));
    }
}

impl transfer::Host for NodeHost {
    fn is_member(&self, node: &NodeId) -> bool {
        self.node().is_some_and(|me| me.roster.is_member(node, Clock::unix()))
    }

    fn join(
        &self,
        request: JoinRequest,
        exporter: [u8; 32],
        peer: SocketAddr,
    ) -> BoxFuture<'_, JoinAnswer> {
        Box::pin(async move {
            let Some(node) = self.node() else {
                return JoinAnswer::Refused(JoinRefusal::Busy);
            };
            let _one = self.admitting.lock().unwrap_or_else(PoisonError::into_inner);
            match admit(&node, &request, &exporter) {
                Ok(admission) => {
                    tracing::info!(node = %request.node.short(), %peer, "admitted");
                    JoinAnswer::Admitted(Box::new(admission))
                }
                Err(refusal) => {
                    tracing::warn!(%peer, %refusal, "refused a join");
                    JoinAnswer::Refused(refusal)
                }
            }
        })
    }

    fn serve(
        &self,
        from: NodeId,
        request: ServeRequest,
        answers: mpsc::Sender<ServeAnswer>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(node) = self.node() else { return };
            tracing::debug!(peer = %from.short(), request = ?request.prompt.id, "serves");
            let (sink, mut items) = mpsc::channel(STREAM_ITEMS);
            if !request.bounced
                && let Some(load) = node.overloaded(&request.placed)
            {
                let _ = answers.send(ServeAnswer::Bounced(load)).await;
                return;
            }
            if let Err(refusal) = run::start(&node, &request.prompt, &request.placed, sink).await {
                let _ = answers.send(ServeAnswer::Refused(refusal)).await;
                return;
            }
            while let Some(item) = items.recv().await {
                let last = matches!(item, StreamItem::Finished(_) | StreamItem::Failed(_));
                if answers.send(ServeAnswer::Item(item)).await.is_err() || last {
                    return;
                }
            }
            let failed = Refusal::Failed("the engine stopped".into());
            let _ = answers.send(ServeAnswer::Item(StreamItem::Failed(failed))).await;
        })
    }

    fn read_blocks(
        &self,
        from: NodeId,
        request: BlocksRequest,
    ) -> BoxFuture<'_, Vec<Option<ReadBlock>>> {
        Box::pin(async move {
            let Some((node, pool)) =
                self.node().and_then(|node| node.dram.clone().map(|pool| (node, pool)))
            else {
                return Vec::new();
            };
            let read = ReadId(self.reads.fetch_add(1, Ordering::Relaxed));
            let granted = node.board.expect_read(read);
            node.board.send(Input::Store(kvstore::In::Read {
                read,
                reader: from,
                keys: request.keys,
                within: Span::millis(u64::from(request.within_ms)),
            }));
            let lease = Arc::new(ReadLease { node, read });
            let blocks = granted.await.unwrap_or_default();
            blocks
                .into_iter()
                .map(|block| {
                    let (place, digest) = block.place?;
                    let bytes = pool.reader(place.slot.0, place.generation.0).ok()?;
                    let owed = Owed::new(&lease, bytes.len());
                    Some(ReadBlock { digest, bytes, lease: Some(Box::new(owed)) })
                })
                .collect()
        })
    }

    fn read_blob(&self, from: NodeId, digest: BlobDigest) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            let node = self.node()?;
            tracing::debug!(peer = %from.short(), ?digest, "reads");
            // It may be a file.
            tokio::task::spawn_blocking(move || node.catalog.blob(&digest)).await.ok()?
        })
    }
}

/// Checks a join request and makes the newcomer a member.
fn admit(
    node: &Arc<Node>,
    request: &JoinRequest,
    exporter: &[u8; 32],
) -> Result<Admission, JoinRefusal> {
    if !(VERSION_MIN..=VERSION).contains(&request.version) {
        return Err(JoinRefusal::Version("version".into()));
    }
    if request.hash_version != HASH_VERSION {
        return Err(JoinRefusal::Version("hash_version".into()));
    }
    let membership = node.membership();
    let issuing = membership.issuing().ok_or(JoinRefusal::NotIssuer)?;
    if request.token.cluster != membership.cluster() || request.token.issuer != membership.issuer {
        return Err(JoinRefusal::BadToken);
    }
    let token = JoinToken::issue(&issuing, request.token.clone());
    if !token.accepts(JoinRole::Joiner, exporter, &request.proof) {
        return Err(JoinRefusal::BadToken);
    }
    let now = Clock::unix();
    if now > request.token.expires {
        return Err(JoinRefusal::Expired);
    }
    if request.node == node.id || node.is_alive(&request.node) {
        return Err(JoinRefusal::Twin);
    }
    node.count_token_use(&request.token)?;
    let labels = request.token.labels.clone();
    let as_issuer = labels.iter().any(|label| label == LABEL_ISSUER);
    let cert = MemberCert::issue(&issuing, membership.cluster(), request.node, labels, now);
    let mut members: Vec<_> =
        node.roster.all().into_iter().map(|known| (known.cert, known.contact)).collect();
    members.retain(|(cert, _)| cert.node != request.node && cert.node != node.id);
    members.insert(0, (membership.cert.clone(), node.contact()));
    node.board.send(Input::Gossip(gossip::In::Admitted(cert.clone())));
    Ok(Admission {
        proof: token.prove(JoinRole::Member, exporter),
        cert,
        swarm_key: membership.swarm_key,
        salt_root: membership.salt_root,
        issuing_seed: membership.issuing_seed().filter(|_| as_issuer),
        members,
    })
}
