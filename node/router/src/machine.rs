//! The router machine: the only writer of the index and of the loads.

use crate::buggify::Buggify;
use crate::index::{IndexReader, Writer};
use crate::loads::{Flight, Loads, Path};
use crate::origin::{Agreement, Origin, granule_of};
use crate::own::Own;
use crate::{Params, snapshot};
use protocol::event::{
    BlockEvent, BucketDigests, Buckets, BucketsWanted, EventBatch, EventRun, MemberView, Seq,
    SetDigest, Snapshot,
};
use protocol::id::{Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::time::{Span, Time};
use protocol::wire;
use std::collections::BTreeMap;

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;

/// A set that differs from its origin's digest is told again after this long.
const TELL_AGAIN: Span = Span::secs(5);

/// Settings of the router.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Distinct prefixes indexed at most; later ones are dropped and counted. About 30 bytes each.
    pub max_entries: usize,
    /// Origins and members at most: a site (design: 256).
    pub max_nodes: usize,
    /// Weights and defaults of the cost.
    pub params: Params,
    /// For tests: a seed of rare bad luck inside the machine (see `buggify.rs`). Off by default.
    pub buggify: Option<u64>,
}

impl Config {
    /// Defaults for a node: 8 million prefixes (512 million tokens, 240 MB), 256 nodes.
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        let params = Params::default();
        Self { node, incarnation, max_entries: 8 << 20, max_nodes: 256, params, buggify: None }
    }
}

/// What can happen to the router.
#[derive(Clone, PartialEq, Debug)]
pub enum In {
    /// A verified batch, in the order of its origin.
    Learn(Box<EventBatch>),
    /// A set that replaces an origin's.
    LearnSnapshot(Box<Snapshot>),
    /// A life of a node is over: its entries and its membership go.
    Forget {
        /// The node.
        node: NodeId,
        /// The life; a newer one is kept.
        incarnation: Incarnation,
    },
    /// A member's state or load.
    Member(Box<MemberView>),
    /// A measurement of the way from here to a node.
    Path {
        /// The node.
        node: NodeId,
        /// Smoothed round trip, milliseconds; 0 when not measured.
        rtt_ms: f32,
        /// Smoothed bandwidth, bytes per second; 0 when not measured.
        bytes_s: f64,
        /// Whether it can be reached from here at all.
        reachable: bool,
    },
    /// A peer wants sets.
    CutSnapshot {
        /// Who; told back.
        to: NodeId,
        /// Whose; all that are known when empty.
        origins: Vec<NodeId>,
    },
    /// A peer's set of an origin is wrong somewhere: it wants the buckets that differ from ours.
    CutBuckets {
        /// Who; told back.
        to: NodeId,
        /// What it has.
        wanted: Box<BucketsWanted>,
        /// The origin's batches after `wanted.seq`, up to the last one learned here.
        later: Vec<EventBatch>,
    },
    /// Buckets that replace ours, and the batches after their watermark up to the last one learned
    /// here: they are applied again.
    LearnBuckets {
        /// All parts in one.
        buckets: Box<Buckets>,
        /// In order, without a gap.
        later: Vec<EventBatch>,
    },
    /// An event of the own store: shown to readers at once. The batch that tells the peers comes
    /// by [`In::Learn`] later and only confirms it.
    Own(BlockEvent),
}

/// What the router wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// The answer to [`In::CutSnapshot`].
    SnapshotCut {
        /// Who asked.
        to: NodeId,
        /// The sets that can be vouched for.
        snapshots: Vec<Snapshot>,
    },
    /// The answer to [`In::CutBuckets`].
    BucketsCut {
        /// Who asked.
        to: NodeId,
        /// `None` where we cannot help: our set is no better, or not of that life or place.
        buckets: Option<Box<Buckets>>,
    },
    /// Our set of an origin is not what the origin says it holds: ask for the buckets that differ.
    /// Told once, again after each repair that did not help, and every five seconds while it lasts.
    DigestMismatch {
        /// The origin.
        origin: NodeId,
        /// In which life.
        incarnation: Incarnation,
        /// After this batch.
        seq: Seq,
        /// What the origin holds.
        said: SetDigest,
        /// What we have of it.
        found: SetDigest,
        /// … by buckets.
        buckets: BucketDigests,
    },
}

/// Counters and sizes, for `status` and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Batches applied.
    pub batches: u64,
    /// Batches and snapshots ignored: another life, or older than what is known.
    pub stale: u64,
    /// Batches whose payload could not be read.
    pub malformed: u64,
    /// Snapshots applied.
    pub snapshots: u64,
    /// Repairs by buckets applied.
    pub mended: u64,
    /// Times a set differed from its origin's digest.
    pub mismatches: u64,
    /// Origins that are incomplete for want of room.
    pub partial: u64,
    /// Distinct prefixes.
    pub entries: u64,
    /// (prefix, holder) pairs.
    pub pairs: u64,
    /// Bytes of the index.
    pub bytes: u64,
    /// Holders (node, tier, storage namespace).
    pub lanes: u64,
    /// Distinct sets of holders.
    pub sets: u64,
    /// Tables built for growth, shrinking or sweeping.
    pub rebuilds: u64,
}

/// See the module's documentation.
pub struct Router {
    pub(crate) config: Config,
    pub(crate) writer: Writer,
    reader: IndexReader,
    loads: Loads,
    pub(crate) origins: BTreeMap<NodeId, Origin>,
    paths: BTreeMap<NodeId, Path>,
    own: Own,
    pub(crate) stats: Stats,
    pub(crate) luck: Buggify,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("node", &self.config.node).finish_non_exhaustive()
    }
}

impl Router {
    /// The machine and what request tasks read.
    pub fn new(config: Config) -> (Self, IndexReader, Loads) {
        let (writer, reader) = Writer::new(config.max_entries);
        let loads = Loads::new(config.params);
        let router = Self {
            luck: Buggify::new(config.buggify),
            config,
            writer,
            reader: reader.clone(),
            loads: loads.clone(),
            origins: BTreeMap::new(),
            paths: BTreeMap::new(),
            own: Own::default(),
            stats: Stats::default(),
        };
        (router, reader, loads)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let (index, (lanes, sets)) = (self.reader.stats(), self.writer.sizes());
        let partial = self.origins.values().filter(|o| o.agreement == Agreement::Partial).count();
        Stats {
            partial: partial as u64,
            entries: index.entries,
            pairs: index.pairs,
            bytes: index.bytes,
            lanes: lanes as u64,
            sets: sets as u64,
            rebuilds: self.writer.rebuilds(),
            ..self.stats
        }
    }

    /// What is kept of an origin: its life, its last batch and the digest of our set.
    pub fn origin(&self, node: &NodeId) -> Option<(Incarnation, Seq, SetDigest)> {
        self.origins.get(node).map(|origin| (origin.incarnation, origin.seq, origin.digest()))
    }

    /// Makes room for `incarnation` of a node: an older life goes. `None` when the node is in a
    /// newer one (or in another with an equal counter), or there are too many nodes.
    fn live_in(&mut self, node: NodeId, incarnation: Incarnation) -> Option<()> {
        let own = node == self.config.node;
        if own && incarnation != self.config.incarnation {
            return None;
        }
        let member = self.loads.node(&node).map(|known| known.view.incarnation);
        if member.is_some_and(|known| known.counter > incarnation.counter) {
            return None;
        }
        match self.origins.get(&node).map(|origin| origin.incarnation) {
            Some(known) if known == incarnation => return Some(()),
            Some(known) if known.counter >= incarnation.counter => return None,
            Some(_) => self.drop_origin(&node),
            None if self.origins.len() >= self.config.max_nodes => return None,
            None => {}
        }
        self.origins.insert(node, Origin::new(incarnation));
        Some(())
    }

    fn drop_origin(&mut self, node: &NodeId) {
        if let Some(origin) = self.origins.remove(node) {
            origin.retire(&mut self.writer);
            self.loads.drop_flights(node, origin.incarnation);
        }
    }

    fn learn(&mut self, now: Time, batch: &EventBatch, outbox: &mut Vec<Out>) {
        let node = batch.origin;
        if self.live_in(node, batch.incarnation).is_none() {
            self.stats.stale += 1;
            return;
        }
        let Some(origin) = self.origins.get_mut(&node) else {
            return;
        };
        // A gap is no reason to wait: the index is a hint, and the digest tells what is missing.
        if batch.seq <= origin.seq {
            self.stats.stale += 1;
            return;
        }
        let Ok(runs) = wire::decode::<Vec<EventRun>>(&batch.payload) else {
            self.stats.malformed += 1;
            return;
        };
        let confirms = node == self.config.node && self.own.is_live();
        let mut lanes = false;
        for run in &runs {
            if confirms {
                self.own.batched(origin, &self.writer, run);
            } else {
                lanes |= origin.apply(&mut self.writer, &node, run);
            }
        }
        if lanes {
            origin.publish(&mut self.writer, node);
        }
        origin.seq = batch.seq;
        origin.link = batch.link();
        origin.said = batch.digest;
        self.stats.batches += 1;
        for run in &runs {
            self.announce(now, node, batch.incarnation, run);
        }
        if !confirms {
            self.compare(now, node, outbox);
        }
    }

    /// Remembers a prefill under way.
    fn announce(&self, now: Time, node: NodeId, incarnation: Incarnation, run: &EventRun) {
        let EventRun::Computing { storage, engine, eta, first, hashes } = run else {
            return;
        };
        let Some(granule) = granule_of(*first) else {
            return;
        };
        let params = self.loads.params();
        let done = now + Span(eta.0.min(params.forgotten_after.0));
        let flight = Flight {
            node,
            incarnation,
            engine: *engine,
            storage: Some(*storage),
            skipped: usize::from(granule) - 1,
            granules: hashes.as_slice().into(),
            tokens: 0,
            placed: now,
            done,
            expires: done + params.linger,
            own: false,
        };
        self.loads.add_flight(now, flight);
    }

    /// Compares our set of an origin with what it says it holds.
    pub(crate) fn compare(&mut self, now: Time, node: NodeId, outbox: &mut Vec<Out>) {
        let needless = self.luck.strikes(200);
        let Some(origin) = self.origins.get_mut(&node) else {
            return;
        };
        let (said, found) = (origin.said, origin.digest());
        let told = match origin.agreement {
            Agreement::Partial => return,
            _ if said == found && !needless => {
                origin.agreement = Agreement::Agrees;
                return;
            }
            Agreement::Agrees => None,
            Agreement::Differs(told) => Some(told),
        };
        if told.is_some_and(|told| now.since(told) < TELL_AGAIN) {
            return;
        }
        if said != found {
            origin.agreement = Agreement::Differs(now);
            self.stats.mismatches += 1;
        }
        let (incarnation, seq, buckets) = (origin.incarnation, origin.seq, origin.buckets());
        outbox.push(Out::DigestMismatch { origin: node, incarnation, seq, said, found, buckets });
    }

    /// Replaces an origin's set. It is built in lanes that readers do not see yet, then shown whole.
    fn learn_snapshot(&mut self, now: Time, snapshot: &Snapshot, outbox: &mut Vec<Out>) {
        let node = snapshot.origin;
        let own = node == self.config.node;
        if own || self.live_in(node, snapshot.incarnation).is_none() {
            self.stats.stale += 1;
            return;
        }
        let mut fresh = Origin {
            seq: snapshot.watermark,
            link: snapshot.link,
            said: snapshot.digest,
            ..Origin::new(snapshot.incarnation)
        };
        for run in &snapshot.runs {
            fresh.apply(&mut self.writer, &node, run);
        }
        fresh.publish(&mut self.writer, node);
        if let Some(old) = self.origins.insert(node, fresh) {
            old.retire(&mut self.writer);
        }
        self.stats.snapshots += 1;
        self.compare(now, node, outbox);
    }

    fn forget(&mut self, node: NodeId, incarnation: Incarnation) {
        let over = |known: Incarnation| known.counter <= incarnation.counter;
        if self.origins.get(&node).is_some_and(|origin| over(origin.incarnation)) {
            self.drop_origin(&node);
        }
        if self.loads.node(&node).is_some_and(|known| over(known.view.incarnation)) {
            self.loads.forget(&node);
            self.paths.remove(&node);
        }
    }

    fn member(&mut self, now: Time, view: MemberView) {
        let known = self.loads.node(&view.node).map(|known| known.view.incarnation);
        if known.is_some_and(|known| known.counter > view.incarnation.counter) {
            self.stats.stale += 1;
            return;
        }
        if known.is_none() && self.loads.nodes().len() >= self.config.max_nodes {
            return;
        }
        let origin = self.origins.get(&view.node).map(|origin| origin.incarnation);
        if origin.is_some_and(|known| known.counter < view.incarnation.counter) {
            self.drop_origin(&view.node);
        }
        let path = self.paths.get(&view.node).copied();
        self.loads.member(now, view, path);
    }

    fn path(&mut self, node: NodeId, path: Path) {
        if self.paths.len() >= self.config.max_nodes * 2 && !self.paths.contains_key(&node) {
            self.paths.pop_first();
        }
        self.paths.insert(node, path);
        self.loads.path(&node, path);
    }

    fn own_event(&mut self, event: &BlockEvent) {
        let Config { node, incarnation, .. } = self.config;
        if self.live_in(node, incarnation).is_some()
            && let Some(origin) = self.origins.get_mut(&node)
        {
            self.own.event(origin, &mut self.writer, &node, event);
        }
    }
}

impl Machine for Router {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        match input {
            In::Learn(batch) => self.learn(now, &batch, outbox),
            In::LearnSnapshot(snapshot) => self.learn_snapshot(now, &snapshot, outbox),
            In::Forget { node, incarnation } => self.forget(node, incarnation),
            In::Member(view) => self.member(now, *view),
            In::Path { node, rtt_ms, bytes_s, reachable } => {
                self.path(node, Path { rtt_ms, bytes_s, reachable });
                return;
            }
            In::CutSnapshot { to, origins } => {
                let own = (&self.config.node, &self.own);
                let snapshots = snapshot::cut(&self.writer, &self.origins, own, &origins);
                outbox.push(Out::SnapshotCut { to, snapshots });
                return;
            }
            In::CutBuckets { to, wanted, later } => {
                let buckets = self.cut_buckets(&wanted, &later).map(Box::new);
                outbox.push(Out::BucketsCut { to, buckets });
                return;
            }
            In::LearnBuckets { buckets, later } => {
                self.learn_buckets(now, &buckets, &later, outbox);
            }
            In::Own(event) => self.own_event(&event),
        }
        self.writer.report();
    }

    fn tick(&mut self, _now: Time, _outbox: &mut Vec<Out>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}
