//! Where the world shows the checkers what passes.

use super::regret::Offer;
use super::{Watch, disk};
use crate::world::World;
use kvstore::{In, Out};
use protocol::block::{BlockKey, SlotId, SlotRef, Tier};
use protocol::disk::{DiskBlock, DiskEvent, DiskOp, DiskRead};
use protocol::event::{BlockEvent, Holder, MemberView};
use protocol::hash::{GRANULE, PrefixHash, Token};
use protocol::id::{EngineId, NodeId, RequestId};
use protocol::op::{EngineEvent, EngineOp, LeaseId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, Started, StreamItem};
use protocol::time::{Span, Time};
use router::admission;
use std::collections::BTreeMap;

/// Claims of requests that are not granted yet.
pub(super) type Pending = BTreeMap<(usize, LeaseId), (EngineId, Vec<(Vec<PrefixHash>, Span)>)>;

impl Watch {
    pub(crate) fn asked(&mut self, now: Time, prompt: &Prompt) {
        self.at(now);
        self.figures.asked += 1;
        self.answers.asked(prompt);
    }

    pub(crate) fn excused(&mut self, id: RequestId) {
        self.answers.excused(&id);
    }

    pub(crate) fn refused(&mut self, id: RequestId, _refusal: &Refusal) {
        let verdict = self.answers.refused(&id);
        self.judge("answers", 0, verdict);
    }

    pub(crate) fn item(&mut self, now: Time, id: RequestId, item: &StreamItem) {
        self.at(now);
        let verdict = self.answers.item(&id, item);
        let checker = if matches!(item, StreamItem::Started(_)) { "accounts" } else { "answers" };
        self.judge(checker, 0, verdict);
    }

    pub(crate) fn answer(&mut self, id: &RequestId) -> Vec<Token> {
        self.answers.take(id)
    }

    pub(crate) fn first_token(&mut self, ttft: Span, started: &Started) {
        if let Some(histogram) = &mut self.figures.ttft_us {
            let _full = histogram.record((ttft.0 / 1000).max(1));
        }
        let p = started.prompt;
        let sources = [p.gpu, p.dram, p.nvme, p.peer, p.computed];
        self.figures.prompt.iter_mut().zip(sources).for_each(|(sum, n)| *sum += u64::from(n));
    }

    pub(crate) fn incompatible(&mut self, _host: usize, _node: NodeId, _reason: gossip::Refused) {
        self.figures.incompatible += 1;
    }

    pub(crate) fn disk_room(&mut self, host: usize, used: u64, limit: u64) {
        let verdict = disk::Disks::room(used, limit);
        self.judge("disk", host, verdict);
    }

    pub(crate) fn disk_lost(&mut self, host: usize) {
        self.disk.lost(host);
    }

    /// A process is gone with all that it had in memory.
    pub(crate) fn host_gone(&mut self, host: usize) {
        self.slots.host_gone(host);
        self.writes.host_gone(host);
        self.pins.host_gone(host);
        self.queue.host_gone(host);
        self.pending.retain(|(h, _), _| *h != host);
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.answers.open().count()
    }

    pub(crate) fn leases(&self, host: usize) -> usize {
        self.slots.leases(host)
    }

    pub(crate) fn other_private(&self, host: usize, not: LeaseId) -> Option<SlotId> {
        self.slots.other_private(host, not)
    }

    pub(crate) fn any_pinned(&self, host: usize, now: Time) -> Option<PrefixHash> {
        self.pins.any(host, now)
    }

    pub(crate) fn holders(&self, host: usize, name: &PrefixHash) -> Vec<protocol::event::Holder> {
        self.pins.holders(host, name)
    }

    fn store_in(&mut self, host: usize, input: &In, block: usize) {
        match input {
            In::Prepare(prepare) => {
                let names = |end: u32| -> Vec<PrefixHash> {
                    let each = prepare.prefix.iter().skip(block - 1).step_by(block);
                    each.take(end as usize / (block * GRANULE)).copied().collect()
                };
                let pins = prepare.claims.iter().filter(|claim| claim.start == 0);
                let pins = pins.filter_map(|claim| Some((names(claim.end), claim.claim.ttl?)));
                self.pending.insert((host, prepare.lease), (prepare.engine, pins.collect()));
            }
            In::Released(lease) => {
                self.pending.remove(&(host, *lease));
                self.slots.released(host, *lease);
            }
            In::Engine(engine, EngineEvent::Died(_)) => {
                self.slots.engine_died(host, *engine);
                self.writes.engine_died(host, *engine);
            }
            In::Engine(_, EngineEvent::Exported { op, .. }) => self.writes.end_all(host, *op),
            In::Fetched { op, index, result } => {
                self.writes.end(host, *op, *index);
                if matches!(result, protocol::op::Fetched::Corrupt) {
                    self.pins.corrupt(host);
                }
            }
            In::FetchEnded { op } => self.writes.end_all(host, *op),
            In::Disk(DiskEvent::Read { op, result }) => {
                self.writes.end_all(host, *op);
                if matches!(result, DiskRead::Corrupt) {
                    self.pins.corrupt(host);
                }
            }
            _ => {}
        }
    }

    fn store_out(&mut self, host: usize, output: &Out) {
        let now = self.now;
        match output {
            Out::Granted(grant) => {
                let Some((engine, pins)) = self.pending.remove(&(host, grant.lease)) else {
                    return self.found("slots", host, "a lease is granted that nobody asked for");
                };
                for (names, ttl) in pins {
                    self.pins.pinned(host, now, &names, ttl);
                }
                let verdict = self.slots.granted(host, engine, grant);
                self.judge("slots", host, verdict);
            }
            Out::Refused(lease, _) => {
                self.pending.remove(&(host, *lease));
            }
            Out::Engine(engine, EngineOp::Grant { lease, slots }) => {
                let verdict = self.slots.more(host, *engine, *lease, slots);
                self.judge("slots", host, verdict);
            }
            Out::Engine(engine, EngineOp::Export { op, to, .. }) => {
                let verdict = self.writes.export(host, *engine, *op, *to);
                self.judge("writes", host, verdict);
            }
            Out::Fetch(op) => {
                let slots = op.blocks.iter().map(|(_, slot)| *slot);
                let verdict = self.writes.fetch(host, op.op, slots);
                self.judge("writes", host, verdict);
            }
            Out::Disk(DiskOp::Read { op, to, .. }) => {
                let verdict = self.writes.read(host, *op, *to);
                self.judge("writes", host, verdict);
            }
            _ => {}
        }
    }
}

impl World {
    pub(crate) fn watch_store_in(&mut self, h: usize, input: &In) {
        self.watch.at(self.now);
        let block = (self.scenario.cluster.block_tokens as usize / GRANULE).max(1);
        self.watch.store_in(h, input, block);
    }

    pub(crate) fn watch_store_out(&mut self, h: usize, output: &Out) {
        self.watch.at(self.now);
        self.watch.store_out(h, output);
        if let Out::Event(event) = output
            && let Err(text) = self.watch.pins.event(h, self.now, event)
            && self.has_spare(h, event)
        {
            self.watch.found("pins", h, text);
        }
        self.remember_rumour(h, output);
        if let Out::ReadGranted { blocks, .. } = output {
            self.watch_readable(h, blocks);
        }
    }

    /// Whether the tier that lost a block had one that nobody pinned or used: pins never stop
    /// admission, so one may break where only pinned blocks are left to make room. Where memory has
    /// failed, a pinned block may leave because it is no more what it was.
    fn has_spare(&self, h: usize, event: &BlockEvent) -> bool {
        let BlockEvent::Removed { holder, .. } = event else { return false };
        let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else {
            return false;
        };
        let stats = live.store.stats();
        if stats.counters.dram_corrupt > 0 {
            return false;
        }
        let Some(tier) = stats.tiers.iter().find(|tier| Holder::from(tier.tier) == *holder) else {
            return false;
        };
        // Blocks that operations and reads hold can make no room either; they are few.
        let held = stats.operations * 64 + stats.reads * 64;
        let spare = tier.slots.cached.saturating_sub(tier.pinned) as usize;
        tier.slots.free > 0 || spare > held
    }

    /// What a peer may read is what its producer signed, unless memory fails: the peer looks too.
    fn watch_readable(&mut self, h: usize, blocks: &[protocol::op::Readable]) {
        if !self.scenario.faults.dram_is_honest() {
            return;
        }
        let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else { return };
        let wrong = blocks.iter().find(|block| {
            block.place.as_ref().is_some_and(|(slot, signed)| {
                let right = |bytes: &[u8]| {
                    signed.key == block.key
                        && signed.digest == protocol::block::ContentDigest::of(bytes)
                };
                !live.dram.reader(*slot).is_ok_and(right)
            })
        });
        if let Some(wrong) = wrong {
            let text = format!("{:?} is lent with other bytes than were signed", wrong.key);
            self.watch.found("bytes", h, text);
        }
    }

    pub(crate) fn watch_write(&mut self, h: usize, to: SlotRef) {
        self.watch.at(self.now);
        let verdict = self.watch.writes.wrote(h, to);
        self.watch.judge("writes", h, verdict);
    }

    pub(crate) fn watch_gossip(&mut self, h: usize, effect: &gossip::Out) {
        self.watch.at(self.now);
        if let gossip::Out::Forget { node, incarnation } = effect
            && self.hosts.get(h).is_some_and(|host| host.id != *node)
        {
            let verdict = self.watch.members.forgotten(node, *incarnation);
            self.watch.figures.false_removals += u64::from(verdict.is_err());
            self.watch.judge("members", h, verdict);
        }
    }

    pub(crate) fn watch_member(&mut self, _h: usize, view: &MemberView) {
        let (noticed, falsely) = self.watch.members.seen(self.now, view);
        if let (Some(after), Some(histogram)) = (noticed, &mut self.watch.figures.noticed_ms) {
            let _full = histogram.record((after.0 / 1_000_000).max(1));
        }
        self.watch.figures.false_deaths += u64::from(falsely);
    }

    pub(crate) fn watch_engine(&mut self, h: usize, engine: EngineId) {
        self.watch.at(self.now);
        let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else { return };
        let Some(found) = live.engines.get(&engine) else { return };
        let stats = found.machine.stats();
        let wrong = [
            (stats.wrong_bytes, "a block was copied in that is not what its tokens imply"),
            (stats.wrong_slots, "a block was reused that is not what its tokens imply"),
            (stats.overwritten, "a slot was written by another sequence"),
        ];
        if let Some((_, text)) = wrong.into_iter().find(|(count, _)| *count > 0) {
            return self.watch.found("bytes", h, text);
        }
        // After a restart the block manager may ask for what went with the old pool.
        if stats.violations > 0 && found.life == 0 {
            self.watch.found("slots", h, "the engine was asked for what the contract forbids");
        }
    }

    pub(crate) fn watch_admission_in(&mut self, h: usize, input: &admission::In) {
        self.watch.at(self.now);
        self.watch.queue.input(h, self.now, input);
    }

    pub(crate) fn watch_admission_out(&mut self, h: usize, output: &admission::Out) {
        let verdict = self.watch.queue.output(h, output);
        self.watch.judge("queue", h, verdict);
    }

    pub(crate) fn watch_disk_op(&mut self, h: usize, op: &DiskOp) {
        self.watch.at(self.now);
        self.watch.disk.op(h, op);
    }

    pub(crate) fn watch_disk_event(&mut self, h: usize, event: &DiskEvent) {
        self.watch.disk.event(h, event);
    }

    pub(crate) fn watch_found(&mut self, h: usize, found: &[(SlotId, DiskBlock)], trusted: bool) {
        self.watch.at(self.now);
        match self.watch.disk.found(h, found, trusted) {
            Ok((owed, there)) => {
                self.watch.figures.warm_expected += owed;
                self.watch.figures.warm_found += there;
            }
            Err(text) => self.watch.found("disk", h, text),
        }
    }

    /// A choice is compared with what an all-knowing router would see.
    pub(crate) fn watch_placed(&mut self, h: usize, id: RequestId, placed: &Placed) {
        self.watch.at(self.now);
        self.watch.figures.placed += 1;
        let nodes = self.hosts.len() as u64;
        // On large clusters only some choices are looked at: each looks at every node.
        if !self.watch.figures.placed.is_multiple_of(nodes.div_ceil(8).max(1)) {
            return;
        }
        let Some(live) = self.hosts.get(h).and_then(|host| host.live.as_ref()) else { return };
        let Some(prefix) = live.prefix_of(&id) else { return };
        let (keys, tokens) = (self.block_keys(&prefix.0), prefix.1);
        let offers: Vec<(NodeId, u16, Offer)> = self.offers(&keys);
        let target = placed.plan.prefill;
        let chosen = offers.iter().find(|(n, e, _)| (*n, *e) == (target.node, target.engine.0));
        let Some((_, _, chosen)) = chosen else {
            self.watch.figures.stale_routes += 1; // it is down, and nobody here knows yet
            return;
        };
        let believed = placed.plan.estimate.local_tokens;
        self.watch.figures.stale_routes += u64::from(chosen.local < believed);
        let best = offers.iter().map(|(_, _, offer)| offer.cost_ms(tokens));
        let best = best.fold(f64::INFINITY, f64::min);
        self.watch.regret.add(chosen.cost_ms(tokens), best);
    }

    /// Keys of the whole blocks of a prompt.
    fn block_keys(&self, prefix: &[PrefixHash]) -> Vec<BlockKey> {
        let block = (self.scenario.cluster.block_tokens as usize / GRANULE).max(1);
        let storage = crate::host::spec(&self.scenario, EngineId(0)).storage.id();
        let names = prefix.iter().skip(block - 1).step_by(block);
        names.map(|prefix| BlockKey { prefix: *prefix, storage }).collect()
    }

    fn offers(&mut self, keys: &[BlockKey]) -> Vec<(NodeId, u16, Offer)> {
        let block = self.scenario.cluster.block_tokens;
        let bytes_per_token =
            f64::from(self.scenario.cluster.block_bytes) / f64::from(block.max(1));
        let bytes_s = self.scenario.network.bytes_s;
        let tokens = |run: usize| u32::try_from(run).unwrap_or(u32::MAX).saturating_mul(block);
        let mut offers = Vec::new();
        let mut most = 0;
        for h in self.up() {
            let reports = self.engine_reports(h);
            let Some(host) = self.hosts.get(h) else { continue };
            let Some(live) = host.live.as_ref() else { continue };
            let dram = tokens(live.store.longest_run(Tier::Dram, keys));
            most = most.max(dram);
            for report in reports {
                let engine = live.store.longest_run(Tier::Engine(report.engine), keys);
                let offer = Offer {
                    local: dram.max(tokens(engine)),
                    anywhere: 0,
                    bytes_per_token,
                    bytes_s,
                    load: report.load,
                };
                offers.push((host.id, report.engine.0, offer));
            }
        }
        for (_, _, offer) in &mut offers {
            offer.anywhere = most.max(offer.local);
        }
        offers
    }
}
