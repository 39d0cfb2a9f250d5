//! The door of the block manager.

use crate::buggify::Buggify;
use crate::config::{Config, ConfigError, Limits};
use crate::disk::Disk;
use crate::flight::Flights;
use crate::inbound::Inbound;
use crate::lease::Lease;
use crate::messages::{In, Out, Prefetch};
use crate::ops::Ops;
use crate::prefetch::Prefetches;
use crate::reads::Reads;
use crate::retain::Owner;
use crate::stats::{Counters, Stats};
use crate::tier::Tier;
use protocol::block::{BlockKey, StorageId, Tier as Name};
use protocol::event::{BlockEvent, EngineLoad};
use protocol::hash::{GRANULE, PrefixHash};
use protocol::id::{EngineId, Incarnation};
use protocol::machine::Machine;
use protocol::op::{EngineEvent, EngineSpec, LeaseId};
use protocol::sign::Keypair;
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// One engine as the store sees it.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) spec: EngineSpec,
    pub(crate) storage: StorageId,
    pub(crate) tier: Tier,
    pub(crate) leases: BTreeSet<LeaseId>,
    pub(crate) alive: bool,
    /// Whether its blocks fit the DRAM pool.
    pub(crate) uses_dram: bool,
    /// Its measured rates, as it told last.
    load: EngineLoad,
}

impl EngineState {
    pub(crate) fn block_tokens(&self) -> u32 {
        self.spec.storage.block_tokens
    }

    /// How long it takes to compute so many blocks; `None` until measured.
    pub(crate) fn compute(&self, blocks: u32) -> Option<Span> {
        let rate = f64::from(self.load.prefill_rate);
        let tokens = f64::from(blocks) * f64::from(self.block_tokens());
        let attention = tokens * tokens / 2.0 * f64::from(self.load.attention_ns) * 1e-6;
        (rate.is_finite() && rate > 0.0).then(|| Span::from_ms(tokens / rate * 1e3 + attention))
    }

    /// Hash granules in one of its blocks.
    pub(crate) fn granules(&self) -> usize {
        self.block_tokens() as usize / GRANULE
    }

    pub(crate) fn key(&self, prefix: PrefixHash) -> BlockKey {
        BlockKey { prefix, storage: self.storage }
    }
}

/// The block manager of one node. See the crate's documentation.
#[derive(Debug)]
pub struct Store {
    pub(crate) keypair: Keypair,
    pub(crate) incarnation: Incarnation,
    pub(crate) limits: Limits,
    pub(crate) decode_batch: u32,
    pub(crate) engines: BTreeMap<EngineId, EngineState>,
    pub(crate) dram: Tier,
    pub(crate) disk: Disk,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) flights: Flights,
    pub(crate) inbound: Inbound,
    pub(crate) ops: Ops,
    pub(crate) reads: Reads,
    pub(crate) prefetches: Prefetches,
    pub(crate) counters: Counters,
    pub(crate) buggify: Buggify,
}

impl Store {
    /// A store over empty pools.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let mut engines = BTreeMap::new();
        for spec in config.engines {
            let state = EngineState {
                storage: spec.storage.id(),
                tier: Tier::new(Name::Engine(spec.engine), spec.slots),
                leases: BTreeSet::new(),
                alive: true,
                uses_dram: spec.storage.block_bytes == config.dram_slot_bytes,
                load: EngineLoad::default(),
                spec,
            };
            engines.insert(state.spec.engine, state);
        }
        Ok(Self {
            keypair: config.keypair,
            incarnation: config.incarnation,
            limits: config.limits,
            decode_batch: config.decode_batch,
            engines,
            dram: Tier::new(Name::Dram, config.dram_slots),
            disk: Disk::new(config.nvme_slots, &config.limits),
            leases: BTreeMap::new(),
            flights: Flights::default(),
            inbound: Inbound::default(),
            ops: Ops::default(),
            reads: Reads::default(),
            prefetches: Prefetches::default(),
            counters: Counters::default(),
            buggify: Buggify::new(config.buggify),
        })
    }

    fn tier(&self, tier: Name) -> Option<&Tier> {
        match tier {
            Name::Engine(engine) => self.engines.get(&engine).map(|state| &state.tier),
            Name::Dram => Some(&self.dram),
            Name::Nvme => Some(&self.disk.tier),
        }
    }

    /// Whether a tier holds a block, usable now.
    pub fn contains(&self, tier: Name, key: &BlockKey) -> bool {
        self.tier(tier).is_some_and(|tier| tier.find(key).is_some())
    }

    /// How many of `keys` a tier holds, counted from the first without a gap.
    pub fn longest_run(&self, tier: Name, keys: &[BlockKey]) -> usize {
        keys.iter().take_while(|key| self.contains(tier, key)).count()
    }

    /// Everything this node holds, as the events that would tell a new listener.
    pub fn held(&self) -> impl Iterator<Item = BlockEvent> + '_ {
        let engines = self.engines.values().flat_map(|state| state.tier.held());
        engines.chain(self.dram.held()).chain(self.disk.tier.held())
    }

    /// Counters and the state of the tiers.
    pub fn stats(&self) -> Stats {
        let engines = self.engines.values().map(|state| state.tier.stats());
        let nvme = Some(self.disk.tier.stats()).filter(|stats| stats.slots.total() > 0);
        Stats {
            counters: self.counters,
            tiers: engines.chain([self.dram.stats()]).chain(nvme).collect(),
            leases: self.leases.len(),
            prefill_waiting: self.flights.len(),
            operations: self.ops.len() + self.disk.len(),
            reads: self.reads.len(),
            nvme_waiting: self.disk.waiting(),
            nvme_online: self.disk.is_online(),
            mischief: self.buggify.done(),
        }
    }

    fn expire(&mut self, now: Time, out: &mut Vec<Out>) {
        self.expire_reads(now, out);
        self.expire_prefetches(now);
        for state in self.engines.values_mut() {
            state.tier.expire(now, out);
        }
        self.dram.expire(now, out);
        self.disk.tier.expire(now, out);
    }

    fn engine_event(&mut self, now: Time, id: EngineId, event: EngineEvent, out: &mut Vec<Out>) {
        match event {
            EngineEvent::Sealed { lease, index, tokens } => {
                self.sealed(now, id, lease, index, &tokens, out);
            }
            EngineEvent::NeedSlots { lease, blocks } => self.top_up(id, lease, blocks, out),
            EngineEvent::Imported { op, copied } => self.imported(now, id, op, copied, out),
            EngineEvent::Exported { op, digest } => self.exported(id, op, digest, out),
            EngineEvent::Load(load) => {
                if let Some(state) = self.engines.get_mut(&id) {
                    state.load = load;
                }
            }
            EngineEvent::Died(_) => self.engine_died(id, out),
        }
    }

    fn engine_up(&mut self, id: EngineId) {
        match self.engines.get_mut(&id) {
            Some(state) => state.alive = true,
            None => self.counters.stale += 1,
        }
    }

    /// The engine of `lease` when it is `id`; counts a stale input otherwise.
    pub(crate) fn lease_of(&mut self, id: EngineId, lease: LeaseId) -> Option<&mut Lease> {
        let found = self.leases.get_mut(&lease).filter(|lease| lease.engine == id);
        if found.is_none() {
            self.counters.stale += 1;
        }
        found
    }
}

impl Machine for Store {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        self.expire(now, outbox);
        self.disturb(outbox);
        match input {
            In::Prepare(prepare) => self.prepare(now, prepare, outbox),
            In::Submitted(lease) => self.submitted(lease, outbox),
            In::Engine(engine, event) => self.engine_event(now, engine, event, outbox),
            In::EngineUp(engine) => self.engine_up(engine),
            In::Fetched { op, index, result } => self.fetched(op, index, result, outbox),
            In::FetchEnded { op } => self.fetch_ended(op, outbox),
            In::Released(lease) => self.release(lease, outbox),
            In::Read { read, keys, within, reader: _ } => {
                self.read(now, read, keys, within, outbox);
            }
            In::ReadDone(read) => self.read_done(read, outbox),
            In::Prefetch(Prefetch { id, keys, within }) => self.prefetch(now, id, keys, within),
            In::PrefetchEnd(id) => self.end_prefetch(id),
            In::Disk(event) => self.disk_event(now, event, outbox),
            In::SessionFinal { tenant, session } => {
                let owner = Owner { tenant, session: Some(session) };
                self.session_final(now, &owner, outbox);
            }
        }
        self.land(now, outbox);
        self.prefetch_on(now, outbox);
        self.write_on(now, outbox);
    }

    fn tick(&mut self, now: Time, outbox: &mut Vec<Out>) {
        self.expire(now, outbox);
        self.land(now, outbox);
        // Whoever was granted now may have brought a legal end that is over.
        self.expire(now, outbox);
    }

    fn deadline(&self) -> Option<Time> {
        let engines = self.engines.values().filter_map(|state| state.tier.deadline());
        let tiers = engines.chain(self.dram.deadline()).chain(self.disk.tier.deadline());
        let waits = self.flights.deadline().into_iter().chain(self.reads.deadline());
        tiers.chain(waits).chain(self.prefetches.deadline()).min()
    }
}
