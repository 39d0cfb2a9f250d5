//! A request's start: what of its prompt is here, what is brought up or fetched, and its slots.

use crate::inbound::{Arrival, Cause, Source as From};
use crate::lease::{Fill, Lease, LeasedBlock};
use crate::messages::{Out, Prepare};
use crate::ops::{Fetch, Wanted};
use crate::retain::Wishes;
use crate::store::{EngineState, Store};
use protocol::block::{BlockKey, SlotId, SlotRef};
use protocol::hash::{GRANULE, PrefixHash};
use protocol::id::EngineId;
use protocol::op::{Arriving, ArrivingFrom, FetchOp, Fetched, Grant, LeaseId, OpId};
use protocol::plan::Source;
use protocol::prompt::Refusal;
use protocol::time::Time;
use protocol::wire::blocks::BLOCKS_MAX;

/// What a request needs of an engine, in blocks.
struct Shape {
    /// Names of the prompt's full blocks.
    names: Vec<PrefixHash>,
    /// Most blocks that can be reused: at least one prompt token is always computed.
    usable: usize,
    /// Slots leased now.
    first: u32,
    /// Slots it can ever need.
    cap: u32,
}

impl Shape {
    fn of(prepare: &Prepare, state: &EngineState, batch: u32) -> Result<Self, Refusal> {
        let (size, slots) = (state.block_tokens(), state.spec.slots);
        let tokens = prepare.prompt_tokens;
        let limit = state.spec.context.min(slots.saturating_mul(size)).saturating_sub(1);
        if tokens > limit {
            return Err(Refusal::TooLong { tokens, limit });
        }
        if tokens == 0 || prepare.prefix.len() != tokens as usize / GRANULE {
            return Err(Refusal::Failed("the prompt and its names do not match".into()));
        }
        let names = prepare.prefix.chunks_exact(state.granules());
        let most = tokens.saturating_add(prepare.max_tokens).min(state.spec.context);
        let cap = most.div_ceil(size).min(slots);
        Ok(Self {
            names: names.filter_map(|granules| granules.last().copied()).collect(),
            usable: (tokens - 1) as usize / size as usize,
            first: tokens.div_ceil(size).saturating_add(batch).min(cap),
            cap,
        })
    }
}

/// A fetch being put together.
struct Draft {
    source: usize,
    op: FetchOp,
    wanted: Vec<Wanted>,
}

impl Store {
    /// Answers a request for slots.
    pub(crate) fn grant_or_refuse(&mut self, now: Time, prepare: &Prepare, out: &mut Vec<Out>) {
        match self.admit(now, prepare, out) {
            Ok(()) => self.counters.granted += 1,
            Err(refusal) => {
                match refusal {
                    Refusal::Busy { .. } => self.counters.refused_busy += 1,
                    _ => self.counters.refused_other += 1,
                }
                out.push(Out::Refused(prepare.lease, refusal));
            }
        }
    }

    fn admit(&mut self, now: Time, prepare: &Prepare, out: &mut Vec<Out>) -> Result<(), Refusal> {
        let id = prepare.lease;
        let busy = Refusal::Busy { retry_after: self.limits.retry_after };
        if self.leases.contains_key(&id) || self.flights.contains(&id) {
            return Err(Refusal::Failed("the lease is in use".into()));
        }
        if self.leases.len() >= self.limits.leases || self.buggify.refuses_prepare() {
            return Err(busy);
        }
        let state = self.engines.get_mut(&prepare.engine).filter(|state| state.alive);
        let state = state.ok_or(Refusal::Gone)?;
        let shape = Shape::of(prepare, state, self.decode_batch)?;
        let ready = lease_run(state, &shape);
        let Some(fresh) = lease_fresh(state, &shape, ready.len(), out) else {
            ready.iter().rev().for_each(|slot| state.tier.unlease(*slot));
            return Err(busy);
        };
        state.leases.insert(id);
        let engine_tokens = (ready.len() as u32).saturating_mul(state.block_tokens());
        let mut blocks: Vec<LeasedBlock> = Vec::new();
        let shared = ready.iter().map(|slot| (state.tier.current(*slot), Fill::Full));
        for (slot, fill) in shared.chain(fresh.into_iter().map(|slot| (slot, Fill::Open))) {
            let name = shape.names.get(blocks.len()).copied();
            blocks.push(LeasedBlock { fill, ..LeasedBlock::open(slot, name) });
        }
        let (wishes, clipped) = Wishes::read(prepare, now, &self.limits);
        self.counters.claims_clipped += clipped;
        let lease = Lease::new(prepare, wishes, shape.cap, blocks, engine_tokens);
        let slots = lease.blocks.iter().map(|block| block.slot).collect();
        self.leases.insert(id, lease);
        self.renew_claims(now, id, &shape, &ready, out);
        let (arriving, fetches) = self.onboard(now, prepare, &shape, ready.len(), out);
        let from_dram = |arriving: &Arriving| arriving.from == ArrivingFrom::Dram;
        let grows = !arriving.iter().all(from_dram);
        let ready = u32::try_from(ready.len()).unwrap_or(u32::MAX);
        out.push(Out::Granted(Grant { lease: id, slots, ready, arriving }));
        if grows {
            out.extend(fetches.into_iter().map(Out::Fetch));
            // What comes from elsewhere can stay in DRAM only on top of what the engine has before it.
            self.write_through(now, id, out);
        }
        Ok(())
    }

    /// The prompt's blocks that are here are used again: their claims are renewed.
    fn renew_claims(
        &mut self,
        now: Time,
        id: LeaseId,
        shape: &Shape,
        ready: &[SlotId],
        out: &mut Vec<Out>,
    ) {
        for (index, name) in shape.names.iter().enumerate() {
            let Some(lease) = self.leases.get(&id) else {
                return;
            };
            let Some(state) = self.engines.get_mut(&lease.engine) else {
                return;
            };
            let key = state.key(*name);
            let (engine, dram) = (ready.get(index).copied(), self.dram.find(&key));
            let nvme = self.disk.tier.find(&key);
            if dram.or(engine).or(nvme).is_none() {
                return;
            }
            let start = (index as u32).saturating_mul(state.block_tokens());
            let end = start.saturating_add(state.block_tokens());
            let stamp = lease.wishes.stamp(start, end, now, &self.limits);
            if let Some(slot) = engine {
                state.tier.claim(slot, &stamp);
            }
            if let Some(slot) = dram {
                self.dram.claim(slot, &stamp);
                self.dram.touch(slot);
            }
            match nvme {
                Some(slot) => {
                    let before = (self.disk.tier.pin(slot), self.disk.tier.age(slot));
                    self.disk.tier.claim(slot, &stamp);
                    self.disk.tier.touch(slot);
                    self.keep(now, slot, before, out);
                }
                // It was not worth a write, or the write failed: now it has come back.
                None => self.offer(key),
            }
        }
    }

    /// Finds the blocks after the ready ones: in DRAM, on their way into it, with peers where the
    /// plan says so, else on NVMe. Ends at the first that nobody has.
    fn onboard(
        &mut self,
        now: Time,
        prepare: &Prepare,
        shape: &Shape,
        ready: usize,
        out: &mut Vec<Out>,
    ) -> (Vec<Arriving>, Vec<FetchOp>) {
        let id = prepare.lease;
        let (mut arriving, mut fetches, mut draft) = (Vec::new(), Vec::new(), None);
        let mut read_until = None;
        let Some(state) = self.engines.get(&prepare.engine) else {
            return (arriving, fetches);
        };
        if !state.uses_dram {
            return (arriving, fetches);
        }
        let keys: Vec<BlockKey> = shape.names.iter().map(|name| state.key(*name)).collect();
        for (index, key) in keys.iter().enumerate().take(shape.usable).skip(ready) {
            let parent = index.checked_sub(1).and_then(|i| keys.get(i)).copied();
            let rest = keys.get(index..shape.usable).unwrap_or_default();
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let mut found = self.bring(now, id, index, key, out);
            if found.is_none() {
                let asked =
                    self.ask(now, prepare, index, (*key, parent), &mut draft, &mut fetches, out);
                let coming = asked.or_else(|| {
                    let until = read_until
                        .get_or_insert_with(|| self.read_deadline(now, prepare.engine, rest));
                    self.load(key, Cause::Lease(id), *until, out)
                });
                found = coming.and_then(|()| self.join(id, index, key, out));
            }
            let Some((from, mut deadline)) = found else { break };
            if from == ArrivingFrom::Nvme {
                // A read for somebody else may be in less of a hurry.
                let until =
                    read_until.get_or_insert_with(|| self.read_deadline(now, prepare.engine, rest));
                deadline = deadline.min(*until);
            }
            arriving.push(Arriving { index, from, deadline });
            let block = self.leases.get_mut(&id).and_then(|lease| lease.block_mut(index));
            if let Some(block) = block {
                block.fill = Fill::Arriving(from);
            }
        }
        self.send_draft(draft, &mut fetches);
        (arriving, fetches)
    }

    /// A block that is in DRAM or on its way into it.
    fn bring(
        &mut self,
        now: Time,
        id: LeaseId,
        index: u32,
        key: &BlockKey,
        out: &mut Vec<Out>,
    ) -> Option<(ArrivingFrom, Time)> {
        let Some(slot) = self.dram.find(key) else {
            return self.join(id, index, key, out);
        };
        let signed = Box::new(self.dram.signed(slot)?.clone());
        self.counters.prefetch_used += u64::from(self.prefetches.used(key));
        self.import(id, index, slot, signed, self.dram.age(slot), out);
        Some((ArrivingFrom::Dram, now + self.limits.import))
    }

    /// Until when reading from NVMe is better than computing: the whole run that begins `keys` is
    /// read at once, so each of its blocks has as long as computing all of them would take.
    fn read_deadline(&self, now: Time, engine: EngineId, keys: &[BlockKey]) -> Time {
        let run = keys.iter().take_while(|key| self.disk.tier.find(key).is_some()).count();
        let blocks = u32::try_from(run).unwrap_or(u32::MAX);
        let compute = self.engines.get(&engine).and_then(|state| state.compute(blocks));
        let limits = &self.limits;
        let span = compute.unwrap_or(limits.disk_read).max(limits.disk_read_min);
        now + span.min(limits.fetch)
    }

    /// Adds a block to the fetch from the peer that has it; `None` when none has, or without room.
    #[allow(clippy::too_many_arguments)] // one call; a struct would only rename them
    fn ask(
        &mut self,
        now: Time,
        prepare: &Prepare,
        index: u32,
        (key, parent): (BlockKey, Option<BlockKey>),
        draft: &mut Option<Draft>,
        fetches: &mut Vec<FetchOp>,
        out: &mut Vec<Out>,
    ) -> Option<()> {
        let state = self.engines.get(&prepare.engine)?;
        let block_bytes = state.spec.storage.block_bytes;
        let source = self.source_of(prepare, state, index as usize)?;
        let start = index.saturating_mul(state.block_tokens());
        let tokens = start.saturating_add(state.block_tokens());
        let full = |d: &Draft| d.source != source || d.wanted.len() >= BLOCKS_MAX;
        if draft.as_ref().is_none_or(full) {
            self.send_draft(draft.take(), fetches);
            let Source { node, deadline, .. } = prepare.sources.get(source)?;
            let deadline = now + (*deadline).min(self.limits.fetch);
            let (op, blocks) = (self.ops.next(), Vec::new());
            let op = FetchOp { op, from: *node, blocks, block_bytes, deadline };
            *draft = Some(Draft { source, op, wanted: Vec::new() });
        }
        let draft = draft.as_mut()?;
        let lease = self.leases.get(&prepare.lease)?;
        let stamp = lease.wishes.stamp(start, tokens, now, &self.limits);
        let (from, deadline, op) = (From::Peer(draft.op.from), draft.op.deadline, draft.op.op);
        let cause = Cause::Lease(prepare.lease);
        let arrival = Arrival { key, parent, tokens, cause, from, deadline, stamp, op };
        let slot = self.expect(arrival, out)?;
        draft.op.blocks.push((key, slot));
        draft.wanted.push(Wanted { key, to: slot.slot, decided: false });
        Some(())
    }

    /// The first of a plan's sources that has block `index`.
    pub(crate) fn source_of(
        &self,
        prepare: &Prepare,
        state: &EngineState,
        index: usize,
    ) -> Option<usize> {
        let size = state.block_tokens();
        let start = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(size);
        let end = start.saturating_add(size);
        let own = self.keypair.node();
        let covers = |s: &Source| s.start <= start && end <= s.end && s.node != own;
        prepare.sources.iter().position(covers)
    }

    fn send_draft(&mut self, draft: Option<Draft>, fetches: &mut Vec<FetchOp>) {
        let Some(Draft { op, wanted, .. }) = draft.filter(|draft| !draft.wanted.is_empty()) else {
            return;
        };
        self.counters.fetch_asked += wanted.len() as u64;
        self.ops.fetch(op.op, Fetch { blocks: wanted, cancelled: false });
        fetches.push(op);
    }

    /// One block of a fetch is decided.
    pub(crate) fn fetched(&mut self, id: OpId, index: usize, result: Fetched, out: &mut Vec<Out>) {
        let wanted = self.ops.fetching(id).and_then(|fetch| fetch.blocks.get_mut(index));
        let Some(wanted) = wanted.filter(|wanted| !wanted.decided) else {
            self.counters.stale += 1;
            return;
        };
        wanted.decided = true;
        let (key, slot) = (wanted.key, wanted.to);
        self.dram.unhold(slot);
        match result {
            Fetched::Verified(signed) if signed.key == key => {
                self.counters.fetch_verified += 1;
                return self.arrived(&key, id, signed, out);
            }
            Fetched::Verified(_) | Fetched::Corrupt => self.counters.fetch_corrupt += 1,
            Fetched::Absent => self.counters.fetch_absent += 1,
            Fetched::Failed => self.counters.fetch_failed += 1,
        }
        self.not_arrived(&key, id, out);
    }

    /// A fetch is over.
    pub(crate) fn fetch_ended(&mut self, id: OpId, out: &mut Vec<Out>) {
        let blocks = self.ops.fetching(id).map_or(0, |fetch| fetch.blocks.len());
        for index in 0..blocks {
            let fetch = self.ops.fetching(id);
            if fetch.and_then(|f| f.blocks.get(index)).is_some_and(|wanted| !wanted.decided) {
                self.fetched(id, index, Fetched::Failed, out);
            }
        }
        let ended = self.ops.end_fetch(id);
        self.counters.stale += u64::from(ended.is_none());
    }
}

/// Leases the longest run of the prompt's blocks that the engine has.
fn lease_run(state: &mut EngineState, shape: &Shape) -> Vec<SlotId> {
    let mut run = Vec::new();
    for name in shape.names.iter().take(shape.usable) {
        let key = state.key(*name);
        let Some(slot) = state.tier.find(&key) else {
            break;
        };
        state.tier.lease(slot);
        run.push(slot);
    }
    run
}

/// Leases the slots beyond the run; `None` without room. One slot per running sequence is left
/// free, so that those who decode are not starved by those who begin.
fn lease_fresh(
    state: &mut EngineState,
    shape: &Shape,
    ready: usize,
    out: &mut Vec<Out>,
) -> Option<Vec<SlotRef>> {
    let need = shape.first.saturating_sub(u32::try_from(ready).ok()?);
    let running = u32::try_from(state.leases.len()).unwrap_or(u32::MAX);
    let headroom = running.min(state.spec.slots / 8);
    if state.tier.available() < need.saturating_add(headroom) {
        return None;
    }
    let mut fresh = Vec::new();
    while fresh.len() < need as usize {
        let Some(slot) = state.tier.take(out) else {
            // Blocks under an operation keep their ancestors from going.
            fresh.iter().for_each(|slot: &SlotRef| state.tier.unlease(slot.slot));
            return None;
        };
        fresh.push(slot);
    }
    Some(fresh)
}
