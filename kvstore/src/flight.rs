//! Single-flight: of requests that need the same blocks at one time, one computes them.
//!
//! A request that would compute blocks which another one on its engine is about to compute waits
//! for them without slots, and then finds them in the engine. It does not wait where that may cost
//! more than it saves, not for one of less priority, and no longer while that one comes no further.

use crate::lease::{Fill, Lease};
use crate::messages::{Out, Prepare};
use crate::store::{EngineState, Store};
use protocol::hash::PrefixHash;
#[cfg(test)]
use protocol::id::EngineId;
use protocol::op::LeaseId;
use protocol::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What an engine may compute at one go, in tokens: so much beyond the common blocks may be done
/// before they are told of.
const CHUNK: u32 = 2048;

/// A request that waits.
#[derive(Debug)]
struct Follower {
    prepare: Box<Prepare>,
    /// Who computes what it needs.
    leader: LeaseId,
    /// Blocks that both prompts begin with.
    shared: usize,
    /// Blocks that the leader had in the engine when they were counted last.
    seen: usize,
    /// When they are counted again. If they are not more by then, it goes on by itself.
    until: Time,
}

/// The requests that wait for the prefill of another one.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    followers: BTreeMap<LeaseId, Follower>,
    /// (leader, shared blocks, follower).
    behind: BTreeSet<(LeaseId, usize, LeaseId)>,
    deadlines: BTreeSet<(Time, LeaseId)>,
    /// Those whose leader has come far enough, or has gone.
    landed: Vec<Follower>,
}

impl Flights {
    pub(crate) fn len(&self) -> usize {
        self.followers.len()
    }

    pub(crate) fn contains(&self, follower: &LeaseId) -> bool {
        self.followers.contains_key(follower)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    fn insert(&mut self, follower: Follower) {
        let id = follower.prepare.lease;
        self.behind.insert((follower.leader, follower.shared, id));
        self.deadlines.insert((follower.until, id));
        self.followers.insert(id, follower);
    }

    fn take(&mut self, id: LeaseId) -> Option<Follower> {
        let follower = self.followers.remove(&id)?;
        self.behind.remove(&(follower.leader, follower.shared, id));
        self.deadlines.remove(&(follower.until, id));
        Some(follower)
    }

    /// A follower has gone away; false when there is none.
    pub(crate) fn leave(&mut self, id: LeaseId) -> bool {
        self.take(id).is_some()
    }

    /// `leader` has its first `blocks` blocks in the engine.
    pub(crate) fn reached(&mut self, leader: LeaseId, blocks: usize) {
        let first = (leader, 0, LeaseId(0));
        while let Some((_, _, id)) =
            self.behind.range(first..=(leader, blocks, LeaseId(u64::MAX))).next().copied()
        {
            let landed = self.take(id);
            self.landed.extend(landed);
        }
    }

    /// Nothing more comes of `leader`.
    pub(crate) fn ended(&mut self, leader: LeaseId) {
        self.reached(leader, usize::MAX);
    }
}

/// How many names two prompts begin with: equal names have equal pasts, so they are bisected.
fn common(a: &[PrefixHash], b: &[PrefixHash]) -> usize {
    let (mut low, mut high) = (0, a.len().min(b.len()));
    while low < high {
        let middle = low.midpoint(high);
        match a.get(middle) == b.get(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

impl Lease {
    /// How many blocks of its prompt this sequence will share with `prepare`, and the first of them
    /// that it has yet to compute; `None` when waiting for it is not worth it.
    fn leads(&self, prepare: &Prepare, state: &EngineState) -> Option<(usize, usize)> {
        let size = state.block_tokens();
        let begun = (self.prompt_tokens / size) as usize > self.frontier;
        if !begun || !self.naming || self.priority < prepare.priority {
            return None;
        }
        let usable = prepare.prompt_tokens.saturating_sub(1) / size;
        let shared = common(&self.prefix, &prepare.prefix) / state.granules();
        let shared = shared.min(usable as usize);
        let blocks = self.blocks.get(self.frontier..shared)?;
        let open = self.frontier + blocks.iter().position(|block| block.fill == Fill::Open)?;
        let tokens = |blocks: usize| u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(size);
        let beyond = self.prompt_tokens.saturating_sub(tokens(shared)).min(CHUNK);
        (tokens(shared - open).saturating_mul(2) >= beyond).then_some((shared, open))
    }
}

impl Store {
    /// A request asks for slots: it is answered, or waits for another's prefill.
    pub(crate) fn prepare(&mut self, now: Time, prepare: Box<Prepare>, out: &mut Vec<Out>) {
        match self.follow(now, prepare) {
            Ok(()) => self.counters.prefill_waits += 1,
            Err(prepare) => self.grant_or_refuse(now, &prepare, out),
        }
    }

    /// Lets a request wait, if there is what it should wait for.
    fn follow(&mut self, now: Time, prepare: Box<Prepare>) -> Result<(), Box<Prepare>> {
        let Some((leader, shared, seen)) = self.leader(&prepare) else {
            return Err(prepare);
        };
        let until = now + self.limits.prefill_wait;
        self.flights.insert(Follower { prepare, leader, shared, seen, until });
        Ok(())
    }

    /// Answers those that need not wait any more, in the order in which they came. What the next
    /// one needs may be what the one before it is about to compute.
    pub(crate) fn land(&mut self, now: Time, out: &mut Vec<Out>) {
        while let Some((until, id)) = self.flights.deadlines.first().copied()
            && until <= now
            && let Some(late) = self.flights.take(id)
        {
            let has = self.leases.get(&late.leader).map_or(0, |lease| lease.frontier);
            if has > late.seen {
                let until = now + self.limits.prefill_wait;
                self.flights.insert(Follower { seen: has, until, ..late });
                continue;
            }
            self.counters.prefill_waits_late += 1;
            self.grant_or_refuse(now, &late.prepare, out);
        }
        let mut landed = std::mem::take(&mut self.flights.landed);
        landed.sort_unstable_by_key(|follower| follower.prepare.lease);
        for Follower { prepare, .. } in landed {
            if let Err(prepare) = self.follow(now, prepare) {
                self.grant_or_refuse(now, &prepare, out);
            }
        }
    }

    /// Whose prefill a request should wait for: how many blocks they share, and how many of its blocks
    /// are in the engine.
    fn leader(&self, prepare: &Prepare) -> Option<(LeaseId, usize, usize)> {
        let id = &prepare.lease;
        let full = self.leases.len() + self.flights.len() >= self.limits.leases;
        if full || self.leases.contains_key(id) || self.flights.contains(id) {
            return None;
        }
        let state = self.engines.get(&prepare.engine).filter(|state| state.alive)?;
        let leads = |id: &LeaseId| {
            let (shared, open) = self.leases.get(id)?.leads(prepare, state)?;
            Some((shared, Reverse(*id), open))
        };
        let (shared, Reverse(leader), open) = state.leases.iter().filter_map(leads).max()?;
        let lease = self.leases.get(&leader)?;
        if self.is_elsewhere(prepare, state, lease.block(open as u32)?.name?, open) {
            return None;
        }
        Some((leader, shared, lease.frontier))
    }

    /// Whether block `index` need not be computed: the engine has it, or it can be brought in.
    fn is_elsewhere(
        &self,
        prepare: &Prepare,
        state: &EngineState,
        name: PrefixHash,
        index: usize,
    ) -> bool {
        let key = state.key(name);
        let in_dram = self.dram.find(&key).is_some() || self.inbound.contains(&key);
        let below = in_dram || self.disk.tier.find(&key).is_some();
        state.tier.find(&key).is_some()
            || state.uses_dram && (below || self.source_of(prepare, state, index).is_some())
    }
}

#[cfg(test)]
impl Flights {
    /// Whoever waits, waits for what another one is about to compute.
    pub(crate) fn audit(
        &self,
        leases: &BTreeMap<LeaseId, Lease>,
        engines: &BTreeMap<EngineId, EngineState>,
    ) {
        assert!(self.landed.is_empty());
        assert_eq!(self.behind.len(), self.followers.len());
        assert_eq!(self.deadlines.len(), self.followers.len());
        for (id, follower) in &self.followers {
            assert!(self.behind.contains(&(follower.leader, follower.shared, *id)));
            assert!(self.deadlines.contains(&(follower.until, *id)));
            let (leader, prepare) = (&leases[&follower.leader], &follower.prepare);
            assert_eq!(leader.engine, prepare.engine);
            assert!(leader.naming && leader.frontier < follower.shared);
            let granules = follower.shared * engines[&leader.engine].granules();
            assert_eq!(leader.prefix[..granules], prepare.prefix[..granules]);
        }
    }
}
