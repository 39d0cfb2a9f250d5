//! A small cluster in one process.

use crate::net::Net;
use bytes::Bytes;
use futures::future::BoxFuture;
use kernels::Pool;
use protocol::block::{
    BlockKey, ContentDigest, Generation, SignedDigest, SlotId, SlotRef, StorageId,
};
use protocol::card::BlobDigest;
use protocol::event::Contact;
use protocol::hash::{HASH_VERSION, PrefixHash, Token};
use protocol::id::{ClusterId, EngineId, Incarnation, NodeId, RequestId, Target, TenantId};
use protocol::plan::{Estimate, Placed, Plan};
use protocol::prompt::{Hints, Limits as PromptLimits, Prompt, Sampling, StreamItem};
use protocol::sign::Keypair;
use protocol::trust::cluster_of;
use protocol::trust::{JoinRole, JoinToken, LABEL_ISSUER, MemberCert, TokenFields, UnixTime};
use protocol::wire::blocks::BlocksRequest;
use protocol::wire::handshake::{Hello, VERSION, VERSION_MIN};
use protocol::wire::join::{Admission, JoinAnswer, JoinRefusal, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Semaphore, mpsc};
use transfer::{Host, Limits, ReadBlock, Transfer, TransferConfig};

pub(crate) const BLOCK: usize = 200_000;
pub(crate) const SLOTS: u32 = 16;

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn now() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
}

pub(crate) fn soon() -> Instant {
    tokio::time::Instant::now().into_std() + PATIENCE
}

/// Waits for a condition that must come true.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the condition never came true");
}

/// The issuing key and who has been admitted.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) issuing: Keypair,
    pub(crate) members: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Cluster {
    pub(crate) fn new(seed: u8) -> Self {
        Self { issuing: Keypair::from_seed(&[seed; 32]), members: Arc::default() }
    }

    pub(crate) fn id(&self) -> ClusterId {
        cluster_of(&self.issuing.node())
    }

    pub(crate) fn cert(&self, node: NodeId) -> MemberCert {
        MemberCert::issue(&self.issuing, self.id(), node, vec![], now())
    }

    pub(crate) fn hello(&self, node: NodeId) -> Hello {
        Hello {
            version: VERSION,
            version_min: VERSION_MIN,
            hash_version: HASH_VERSION,
            cluster: self.id(),
            node,
            incarnation: Incarnation { counter: 1, nonce: 1 },
            cert: self.cert(node),
            contact: Contact { cluster: vec![], http: String::new(), site: String::new() },
        }
    }

    pub(crate) fn token(&self, serial: u64) -> JoinToken {
        let fields = TokenFields {
            cluster: self.id(),
            issuer: self.issuing.node(),
            serial,
            expires: UnixTime(now().0 + 3600),
            uses: 1,
            labels: vec![LABEL_ISSUER.into()],
            addresses: vec![],
        };
        JoinToken::issue(&self.issuing, fields)
    }

    pub(crate) fn admit(&self, node: NodeId) {
        self.members.lock().unwrap().insert(node);
    }

    pub(crate) fn expel(&self, node: NodeId) {
        self.members.lock().unwrap().remove(&node);
    }

    pub(crate) fn config(&self, seed: u8) -> TransferConfig {
        let keypair = Keypair::from_seed(&[seed; 32]);
        TransferConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            udp: true,
            hello: self.hello(keypair.node()),
            keypair,
            issuer: self.issuing.node(),
            limits: Limits::default(),
            throttle_bytes_s: None,
        }
    }

    /// A member with defaults.
    pub(crate) fn node(&self, seed: u8) -> Node {
        self.node_with(self.config(seed))
    }

    pub(crate) fn node_with(&self, config: TransferConfig) -> Node {
        let sockets = transfer::Sockets::bind(config.listen, config.udp).unwrap();
        self.node_on(sockets, config)
    }

    /// A member on a network in memory.
    pub(crate) fn node_in(&self, net: &Net, seed: u8) -> Node {
        self.node_on(net.host(), self.config(seed))
    }

    pub(crate) fn node_on(&self, sockets: transfer::Sockets, config: TransferConfig) -> Node {
        let keypair = config.keypair.clone();
        let id = keypair.node();
        self.admit(id);
        let host = Arc::new(TestHost {
            cluster: self.clone(),
            pool: Pool::new(BLOCK, SLOTS).unwrap(),
            blocks: Mutex::default(),
            blobs: Mutex::default(),
            mute: AtomicBool::new(false),
            serving: Semaphore::new(0),
            cancelled: Semaphore::new(0),
            open_leases: Arc::default(),
            asked: AtomicUsize::new(0),
        });
        let transfer = Transfer::on(sockets, config, Arc::clone(&host) as Arc<dyn Host>).unwrap();
        let addr = transfer.local_addr().unwrap();
        Node { keypair, id, host, transfer, addr }
    }
}

pub(crate) struct Node {
    pub(crate) keypair: Keypair,
    pub(crate) id: NodeId,
    pub(crate) host: Arc<TestHost>,
    pub(crate) transfer: Arc<Transfer>,
    pub(crate) addr: SocketAddr,
}

impl Node {
    /// Puts a block into slot `n` under generation 1 and returns its key and bytes.
    pub(crate) fn hold(&self, n: u8) -> (BlockKey, Vec<u8>) {
        let bytes: Vec<u8> = (0..BLOCK).map(|i| (i * 7 + i / 251) as u8 ^ n).collect();
        let key = key(n);
        let digest = SignedDigest::sign(
            &self.keypair,
            Incarnation { counter: 1, nonce: 1 },
            key,
            ContentDigest::of(&bytes),
        );
        self.put(n, &bytes, digest);
        (key, bytes)
    }

    /// Puts any bytes under any digest.
    pub(crate) fn put(&self, n: u8, bytes: &[u8], digest: SignedDigest) {
        self.host.pool.writer(n.into(), 1).unwrap()[..bytes.len()].copy_from_slice(bytes);
        self.host.blocks.lock().unwrap().insert(key(n), (digest, slot(n, 1)));
    }
}

pub(crate) fn key(n: u8) -> BlockKey {
    BlockKey { prefix: PrefixHash(1000 + u128::from(n)), storage: StorageId(1) }
}

pub(crate) fn slot(n: u8, generation: u32) -> SlotRef {
    SlotRef { slot: SlotId(n.into()), generation: Generation(generation) }
}

/// Counts live leases.
struct Lease(Arc<AtomicUsize>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) struct TestHost {
    cluster: Cluster,
    pub(crate) pool: Arc<Pool>,
    pub(crate) blocks: Mutex<BTreeMap<BlockKey, (SignedDigest, SlotRef)>>,
    /// What is given for a name, right or wrong.
    pub(crate) blobs: Mutex<BTreeMap<BlobDigest, Bytes>>,
    /// Answers nothing: reads of blocks hang.
    pub(crate) mute: AtomicBool,
    /// One permit per request that began to be served.
    pub(crate) serving: Semaphore,
    /// One permit per request that was dropped before its end.
    pub(crate) cancelled: Semaphore,
    pub(crate) open_leases: Arc<AtomicUsize>,
    /// Requests for blocks.
    pub(crate) asked: AtomicUsize,
}

struct Cancelled<'a>(&'a Semaphore, bool);

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.add_permits(1);
        }
    }
}

impl Host for TestHost {
    fn is_member(&self, node: &NodeId) -> bool {
        self.cluster.members.lock().unwrap().contains(node)
    }

    fn join(
        &self,
        request: JoinRequest,
        exporter: [u8; 32],
        _peer: SocketAddr,
    ) -> BoxFuture<'_, JoinAnswer> {
        Box::pin(async move { answer_join(&self.cluster, request, &exporter) })
    }

    /// Sends one `Tokens` per token of the prompt, then hangs when the prompt's model is `hang`.
    fn serve(
        &self,
        _from: NodeId,
        request: ServeRequest,
        answers: mpsc::Sender<ServeAnswer>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.serving.add_permits(1);
            let mut cancelled = Cancelled(&self.cancelled, false);
            for token in request.prompt.tokens.iter() {
                let item = ServeAnswer::Item(StreamItem::Tokens(vec![*token]));
                if answers.send(item).await.is_err() {
                    return;
                }
            }
            if request.prompt.model == "hang" {
                std::future::pending::<()>().await;
            }
            cancelled.1 = true;
        })
    }

    fn read_blocks(
        &self,
        _from: NodeId,
        request: BlocksRequest,
    ) -> BoxFuture<'_, Vec<Option<ReadBlock>>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.mute.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let blocks = self.blocks.lock().unwrap();
            let read = request.keys.iter().map(|key| {
                let (digest, place) = blocks.get(key)?;
                let bytes = self.pool.reader(place.slot.0, place.generation.0).ok()?;
                self.open_leases.fetch_add(1, Ordering::SeqCst);
                let lease = Box::new(Lease(Arc::clone(&self.open_leases)));
                Some(ReadBlock { digest: digest.clone(), bytes, lease: Some(lease) })
            });
            read.collect()
        })
    }

    fn read_blob(&self, _from: NodeId, digest: BlobDigest) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            if self.mute.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.blobs.lock().unwrap().get(&digest).cloned()
        })
    }
}

/// What an honest member answers.
pub(crate) fn answer_join(
    cluster: &Cluster,
    request: JoinRequest,
    exporter: &[u8; 32],
) -> JoinAnswer {
    let token = JoinToken::issue(&cluster.issuing, request.token.clone());
    if !token.accepts(JoinRole::Joiner, exporter, &request.proof) {
        return JoinAnswer::Refused(JoinRefusal::BadToken);
    }
    if request.token.expires < now() {
        return JoinAnswer::Refused(JoinRefusal::Expired);
    }
    cluster.admit(request.node);
    JoinAnswer::Admitted(Box::new(Admission {
        proof: token.prove(JoinRole::Member, exporter),
        cert: cluster.cert(request.node),
        swarm_key: [9; 32],
        salt_root: (1, [8; 32]),
        issuing_seed: Some(cluster.issuing.seed()),
        members: vec![],
    }))
}

pub(crate) fn request(model: &str, tokens: u32) -> ServeRequest {
    let nobody = Target {
        node: NodeId([0; 32]),
        incarnation: Incarnation::default(),
        engine: EngineId(0),
        dp_rank: 0,
    };
    ServeRequest {
        prompt: Prompt {
            id: RequestId(1),
            model: model.into(),
            tenant: TenantId::local(),
            session: None,
            tokens: (0..tokens).map(Token).collect::<Vec<_>>().into(),
            prefix: Vec::new().into(),
            salt: None,
            sampling: Sampling::GREEDY,
            limits: PromptLimits { max_tokens: 1, stop_tokens: vec![] },
            constraint: None,
            hints: Hints::default(),
        },
        placed: Placed {
            plan: Plan {
                prefill: nobody,
                decode: nobody,
                sources: vec![],
                estimate: Estimate::default(),
            },
            outcome: String::new(),
        },
        bounced: false,
    }
}
