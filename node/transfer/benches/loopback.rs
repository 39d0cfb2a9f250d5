//! Blocks over loopback: verified fetches over QUIC and TLS-TCP beside plain tokio TCP, interleaved
//! in one run.
//!
//! `cargo bench -p transfer` prints GB/s (lowest, median, highest round), CPU seconds per GB of
//! both ends together, and the ratio of the medians. `-- ROUNDS` sets the number of rounds.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures real time
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // not a product

use futures::future::BoxFuture;
use kernels::Pool;
use protocol::block::{BlockKey, ContentDigest, Generation, SignedDigest};
use protocol::block::{SlotId, SlotRef, StorageId};
use protocol::event::Contact;
use protocol::hash::{HASH_VERSION, PrefixHash};
use protocol::id::{Incarnation, NodeId};
use protocol::op::{FetchOp, Fetched, OpId};
use protocol::sign::Keypair;
use protocol::time::Time;
use protocol::trust::{MemberCert, UnixTime, cluster_of};
use protocol::wire::blocks::BlocksRequest;
use protocol::wire::handshake::{Hello, VERSION, VERSION_MIN};
use protocol::wire::join::{JoinAnswer, JoinRefusal, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeRequest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use transfer::{Host, Limits, ReadBlock, Transfer, TransferConfig};

const BLOCK: usize = 1 << 20;
const BLOCKS: u32 = 128;

struct Holder {
    pool: Arc<Pool>,
    digests: Vec<SignedDigest>,
}

impl Host for Holder {
    fn is_member(&self, _node: &NodeId) -> bool {
        true
    }

    fn join(&self, _: JoinRequest, _: [u8; 32], _: SocketAddr) -> BoxFuture<'_, JoinAnswer> {
        Box::pin(async { JoinAnswer::Refused(JoinRefusal::NotIssuer) })
    }

    fn serve(&self, _: NodeId, _: ServeRequest, _: mpsc::Sender<ServeAnswer>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn read_blocks(
        &self,
        _: NodeId,
        request: BlocksRequest,
    ) -> BoxFuture<'_, Vec<Option<ReadBlock>>> {
        Box::pin(async move {
            let read = request.keys.iter().map(|key| {
                let at = key.prefix.0 as usize;
                let bytes = self.pool.reader(at as u32, 1).ok()?;
                Some(ReadBlock { digest: self.digests[at].clone(), bytes, lease: None })
            });
            read.collect()
        })
    }
}

fn key(n: u32) -> BlockKey {
    BlockKey { prefix: PrefixHash(n.into()), storage: StorageId(1) }
}

fn node(seed: u8, udp: bool, holder: Arc<Holder>) -> (NodeId, Arc<Transfer>) {
    let issuing = Keypair::from_seed(&[1; 32]);
    let keypair = Keypair::from_seed(&[seed; 32]);
    let (node, cluster) = (keypair.node(), cluster_of(&issuing.node()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let hello = Hello {
        version: VERSION,
        version_min: VERSION_MIN,
        hash_version: HASH_VERSION,
        cluster,
        node,
        incarnation: Incarnation { counter: 1, nonce: 1 },
        cert: MemberCert::issue(&issuing, cluster, node, vec![], UnixTime(now.as_secs())),
        contact: Contact { cluster: vec![], http: String::new(), site: String::new() },
    };
    let config = TransferConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        udp,
        keypair,
        hello,
        issuer: issuing.node(),
        limits: Limits::default(),
        throttle_bytes_s: None,
    };
    (node, Transfer::bind(config, holder).unwrap())
}

fn holder() -> Arc<Holder> {
    let keypair = Keypair::from_seed(&[2; 32]);
    let pool = Pool::new(BLOCK, BLOCKS).unwrap();
    let life = Incarnation { counter: 1, nonce: 1 };
    let digests = (0..BLOCKS).map(|n| {
        let mut slot = pool.writer(n, 1).unwrap();
        slot.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u32 * 31 + n) as u8);
        SignedDigest::sign(&keypair, life, key(n), ContentDigest::of(&slot))
    });
    let digests = digests.collect();
    Arc::new(Holder { pool, digests })
}

/// CPU seconds of this process so far, in ticks of 10 ms.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[derive(Default)]
struct Arm {
    gb_s: Vec<f64>,
    cpu_s: f64,
}

impl Arm {
    async fn round(&mut self, work: impl Future<Output = ()>) {
        let (begun, before) = (Instant::now(), cpu());
        work.await;
        let gb = f64::from(BLOCKS) * BLOCK as f64 / 1e9;
        self.gb_s.push(gb / begun.elapsed().as_secs_f64());
        self.cpu_s += (cpu() - before) / gb;
    }

    fn median(&mut self) -> f64 {
        self.gb_s.sort_by(f64::total_cmp);
        self.gb_s[self.gb_s.len() / 2]
    }

    fn print(&mut self, name: &str) -> f64 {
        let (median, rounds) = (self.median(), self.gb_s.len());
        let (low, high, cpu) = (self.gb_s[0], self.gb_s[rounds - 1], self.cpu_s / rounds as f64);
        println!("{name:<24} {low:>5.2} {median:>5.2} {high:>5.2} GB/s   {cpu:.3} CPU s/GB");
        median
    }
}

async fn fetch(to: &Transfer, from: NodeId, addr: SocketAddr, pool: &Arc<Pool>, round: u32) {
    let slot = |n| SlotRef { slot: SlotId(n), generation: Generation(round) };
    let op = FetchOp {
        op: OpId(round.into()),
        from,
        blocks: (0..BLOCKS).map(|n| (key(n), slot(n))).collect(),
        block_bytes: BLOCK as u64,
        deadline: Time::ZERO,
    };
    let (progress, _seen) = mpsc::channel(BLOCKS as usize);
    let deadline = Instant::now() + Duration::from_secs(120);
    let fetched = to.fetch(op, &[addr], Arc::clone(pool), deadline, progress).await;
    assert!(fetched.iter().all(|(_, fetched)| matches!(fetched, Fetched::Verified(_))));
}

async fn tcp(addr: SocketAddr, pool: &Arc<Pool>, round: u32, verify: Option<&[SignedDigest]>) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    for n in 0..BLOCKS {
        let mut slot = pool.writer(n, round).unwrap();
        stream.read_exact(&mut slot).await.unwrap();
        assert!(verify.is_none_or(|digests| digests[n as usize].covers(&key(n), &slot)));
    }
}

#[tokio::main]
async fn main() {
    let rounds = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(5u32);
    let holder = holder();
    let (from, sender) = node(2, true, Arc::clone(&holder));
    let (_, reader) = node(3, true, Arc::clone(&holder));
    let (_, without_udp) = node(4, false, Arc::clone(&holder));
    let addr = sender.local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp_addr = listener.local_addr().unwrap();
    let source = Arc::clone(&holder.pool);
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for n in 0..BLOCKS {
                let slot = source.reader(n, 1).unwrap();
                stream.write_all(&slot).await.unwrap();
            }
        }
    });
    let pool = Pool::new(BLOCK, BLOCKS).unwrap();
    fetch(&reader, from, addr, &pool, 1).await; // also probes the MTU
    fetch(&without_udp, from, addr, &pool, 2).await;
    tcp(tcp_addr, &pool, 3, None).await;
    let (mut over_quic, mut over_tls) = (Arm::default(), Arm::default());
    let (mut over_tcp, mut checked) = (Arm::default(), Arm::default());
    for round in 1..=rounds {
        let first = round * 4;
        over_quic.round(fetch(&reader, from, addr, &pool, first)).await;
        over_tls.round(fetch(&without_udp, from, addr, &pool, first + 1)).await;
        over_tcp.round(tcp(tcp_addr, &pool, first + 2, None)).await;
        let digests = Some(holder.digests.as_slice());
        checked.round(tcp(tcp_addr, &pool, first + 3, digests)).await;
    }
    println!("{BLOCKS} blocks of 1 MiB over loopback, {rounds} rounds: lowest, median, highest");
    let quic = over_quic.print("QUIC, verified");
    let tls = over_tls.print("TLS-TCP, verified");
    let tcp = over_tcp.print("tokio TCP, plain");
    let checked = checked.print("tokio TCP, verified");
    println!("QUIC / TCP plain {:.2}, QUIC / TCP verified {:.2}", quic / tcp, quic / checked);
    println!("TLS-TCP / QUIC {:.2}", tls / quic);
    server.abort();
}
