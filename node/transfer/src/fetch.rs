//! `dn-blocks/1`, the reader's side: blocks of one peer into DRAM slots, each verified before it
//! is reported.

use crate::alpn::Alpn;
use crate::blocks::REQUEST_MAX;
use crate::clock;
use crate::connections::{self, Open};
use crate::error::TransferError;
use crate::frame::{self, FrameError, FrameReader};
use crate::serve::STREAM_CANCELLED;
use crate::stream::Receiver;
use crate::transfer::Inner;
use kernels::Pool;
use protocol::block::{BlockKey, SignedDigest, SlotRef};
use protocol::op::{FetchOp, Fetched};
use protocol::wire::blocks::{BLOCKS_MAX, BlockHead, BlocksRequest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Longest head of a block in bytes.
const HEAD_MAX: usize = 1024;

/// A peer that says nothing until the deadline has failed only if it had at least this long.
const PATIENCE: Duration = Duration::from_millis(250);

/// One fetch in progress.
struct Fetch<'a> {
    inner: &'a Arc<Inner>,
    op: &'a FetchOp,
    pool: &'a Arc<Pool>,
    deadline: Instant,
    progress: &'a mpsc::Sender<(usize, Fetched)>,
    results: Vec<Option<Fetched>>,
    /// Bytes that arrived and were right.
    bytes: u64,
    /// When the request went out, and the path's round trip then.
    asked: Option<(Instant, Duration)>,
    /// Whether anything came back.
    heard: bool,
    /// Whether the peer sent something wrong.
    lied: bool,
}

/// Why a fetch ends before its last block.
enum Stop {
    /// No connection; the path has been marked by whoever tried.
    Unreached(TransferError),
    /// The peer is over its limits.
    Busy,
    /// What the peer sends makes no sense.
    Nonsense,
    /// The stream or the connection broke.
    Lost(FrameError),
}

impl From<FrameError> for Stop {
    fn from(e: FrameError) -> Self {
        match e {
            FrameError::TooLong(..) | FrameError::Wire(_) => Self::Nonsense,
            FrameError::Ended | FrameError::Lost(_) => Self::Lost(e),
        }
    }
}

/// See [`crate::Transfer::fetch`].
pub(crate) async fn fetch(
    inner: &Arc<Inner>,
    op: &FetchOp,
    addrs: &[SocketAddr],
    pool: &Arc<Pool>,
    deadline: Instant,
    progress: &mpsc::Sender<(usize, Fetched)>,
) -> Vec<(BlockKey, Fetched)> {
    let begun = clock::now();
    let results = vec![None; op.blocks.len()];
    let mut fetch = Fetch {
        inner,
        op,
        pool,
        deadline,
        progress,
        results,
        bytes: 0,
        asked: None,
        heard: false,
        lied: false,
    };
    if inner.paths.admit(&op.from, begun).is_ok() {
        let outcome = tokio::time::timeout_at(deadline.into(), fetch.run(addrs)).await;
        fetch.mark_path(outcome.ok(), begun);
    }
    let results = fetch.results.into_iter().map(|result| result.unwrap_or(Fetched::Failed));
    op.blocks.iter().map(|(key, _)| *key).zip(results).collect()
}

impl Fetch<'_> {
    /// Asks for all blocks, in as few requests as the protocol allows.
    async fn run(&mut self, addrs: &[SocketAddr]) -> Result<(), Stop> {
        let op = self.op;
        for (n, blocks) in op.blocks.chunks(BLOCKS_MAX).enumerate() {
            let keys = blocks.iter().map(|(key, _)| *key).collect();
            let mut open = self.ask(keys, addrs).await?;
            let outcome = self.blocks(&mut open, n * BLOCKS_MAX, blocks).await;
            if outcome.is_err() {
                open.stream.recv.stop(STREAM_CANCELLED);
            } else {
                open.give_back(self.inner.limits.connect).await;
            }
            outcome?;
        }
        Ok(())
    }

    /// Receives the blocks of one request, of which the first has place `first` in the operation.
    async fn blocks(
        &mut self,
        open: &mut Open,
        first: usize,
        blocks: &[(BlockKey, SlotRef)],
    ) -> Result<(), Stop> {
        let mut reader = FrameReader::new(&mut open.stream.recv);
        for (at, (key, slot)) in blocks.iter().enumerate() {
            match self.block(&mut reader, key, *slot).await {
                Ok(fetched) => self.report(first + at, fetched).await,
                Err(Stop::Nonsense) => {
                    self.report(first + at, Fetched::Corrupt).await;
                    return Err(Stop::Nonsense);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    async fn ask(&mut self, keys: Vec<BlockKey>, addrs: &[SocketAddr]) -> Result<Open, Stop> {
        let mut open = connections::open(self.inner, self.op.from, Alpn::Blocks, addrs)
            .await
            .map_err(Stop::Unreached)?;
        let left = self.deadline.saturating_duration_since(clock::now()).as_millis();
        let within_ms = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        let request = BlocksRequest { keys, within_ms };
        debug_assert!(protocol::wire::encode(&request).is_ok_and(|b| b.len() <= REQUEST_MAX));
        frame::write(&mut open.stream.send, &request).await?;
        open.stream.send.finish().await;
        self.asked.get_or_insert((clock::now(), open.link.rtt()));
        Ok(open)
    }

    /// Receives one block.
    async fn block(
        &mut self,
        reader: &mut FrameReader<&mut Receiver>,
        key: &BlockKey,
        slot: SlotRef,
    ) -> Result<Fetched, Stop> {
        let head = reader.frame::<BlockHead>(HEAD_MAX).await?;
        self.heard = true;
        let (digest, length) = match head {
            BlockHead::Absent => return Ok(Fetched::Absent),
            BlockHead::Busy => return Err(Stop::Busy),
            BlockHead::Present { digest, length } => (digest, length),
        };
        if length != self.op.block_bytes {
            return Err(Stop::Nonsense);
        }
        let Ok(mut writer) = self.pool.writer(slot.slot.0, slot.generation.0) else {
            // The lease has ended meanwhile; the blocks after this one may still be wanted.
            reader.skip(length).await?;
            return Ok(Fetched::Failed);
        };
        let Some(place) = usize::try_from(length).ok().and_then(|n| writer.get_mut(..n)) else {
            reader.skip(length).await?;
            return Ok(Fetched::Failed);
        };
        reader.read_exact(place).await?;
        Ok(self.verify(digest, key, place))
    }

    fn verify(&mut self, digest: Box<SignedDigest>, key: &BlockKey, bytes: &[u8]) -> Fetched {
        if !digest.covers(key, bytes) {
            tracing::warn!("{:?} sent wrong bytes for a block", self.op.from);
            self.lied = true;
            return Fetched::Corrupt;
        }
        if !self.inner.host.is_member(&digest.producer) {
            // Not the sender's lie: it may not know yet that the producer has left.
            tracing::info!("a block of {:?}, which is no member, is not used", digest.producer);
            return Fetched::Corrupt;
        }
        self.bytes += bytes.len() as u64;
        Fetched::Verified(digest)
    }

    async fn report(&mut self, at: usize, fetched: Fetched) {
        if let Some(place) = self.results.get_mut(at) {
            *place = Some(fetched.clone());
        }
        let _ = self.progress.send((at, fetched)).await;
    }

    /// Notes what the fetch says about the path. `outcome` is `None` after the deadline.
    fn mark_path(&self, outcome: Option<Result<(), Stop>>, begun: Instant) {
        let (paths, node, now) = (&self.inner.paths, &self.op.from, clock::now());
        let lied = self.lied || matches!(outcome, Some(Err(Stop::Nonsense)));
        let silent = !self.heard && now.saturating_duration_since(begun) >= PATIENCE;
        match (&outcome, self.asked) {
            _ if lied => paths.sent_corrupt(node, now),
            (Some(Err(Stop::Unreached(e))), _) => tracing::debug!("fetch: {e}"),
            (Some(Err(Stop::Lost(e))), _) => {
                tracing::info!("fetch from {node:?}: {e}");
                paths.failed(node, now);
            }
            (None, Some(_)) if silent => paths.failed(node, now),
            (_, Some((asked, rtt))) if self.heard => {
                paths.answered(node, rtt);
                paths.fetched(node, self.bytes, now.saturating_duration_since(asked), rtt);
            }
            _ => {}
        }
    }
}
