//! What the disk says of itself: the blocks it holds, and that it fails.

use crate::durable;
use crate::messages::Out;
use crate::retain::Owner;
use crate::store::Store;
use crate::tier::{NewBlock, Registered};
use protocol::block::SlotId;
use protocol::disk::{DiskBlock, DiskEvent, DiskOp};
use protocol::hash::GRANULE;
use protocol::time::{Span, Time};

/// A pin is told to the disk again when its end has moved by this much.
const KEEP_STEP: Span = Span::secs(60);

impl Store {
    /// The NVMe tier's word.
    pub(crate) fn disk_event(&mut self, now: Time, event: DiskEvent, out: &mut Vec<Out>) {
        match event {
            DiskEvent::Found(blocks) => {
                self.disk.online = self.disk.tier.counts().total() > 0;
                for (slot, block) in blocks {
                    self.found(now, slot, block, out);
                }
            }
            DiskEvent::Written { op, durable } => self.written(now, op, durable, out),
            DiskEvent::Read { op, result } => self.disk_read(op, result, out),
            DiskEvent::Quarantined { reason: _ } => {
                self.disk.online = false;
                self.counters.nvme_quarantined += 1;
                self.fail_reads(out);
                self.fail_writes(out);
                self.disk.tier.reset(out);
                self.disk.keep_crossed();
            }
        }
    }

    /// A block of an earlier life. What cannot be used is forgotten on disk too.
    fn found(&mut self, now: Time, slot: SlotId, block: DiskBlock, out: &mut Vec<Out>) {
        let key = block.key;
        if self.restore(now, slot, block, out).is_some() {
            self.counters.nvme_found += 1;
        } else {
            self.counters.nvme_dropped += 1;
            out.push(Out::Disk(DiskOp::Forget { slot, key }));
        }
    }

    fn restore(
        &mut self,
        now: Time,
        slot: SlotId,
        block: DiskBlock,
        out: &mut Vec<Out>,
    ) -> Option<()> {
        let DiskBlock { key, parent, tokens, signed, claims } = block;
        let state = self.engines.values().find(|state| state.storage == key.storage)?;
        let above = parent.map(|parent| {
            let slot = self.disk.tier.find(&parent)?;
            self.disk.tier.tokens(slot)
        });
        let above = match above {
            None => 0,
            Some(tokens) => tokens?,
        };
        let sound = state.uses_dram && signed.key == key && tokens > above;
        if !sound || !(tokens as usize).is_multiple_of(GRANULE) {
            return None;
        }
        let stamp = durable::from_disk(&claims, now, &self.limits)?;
        if self.disk.tier.find(&key).is_some() || self.disk.writing.contains_key(&key) {
            return None;
        }
        self.disk.tier.take_at(slot)?;
        let new = NewBlock { key, parent, tokens, signed: Some(Box::new(signed)), stamp };
        let registered = self.disk.tier.register(slot, new, out);
        self.disk.tier.unlease(slot);
        (registered == Registered::New).then_some(())
    }

    /// Tells the disk of a block's claims, if what it should remember has changed from `before`:
    /// its pin and its legal end. Other claims lapse in minutes.
    pub(crate) fn keep(
        &mut self,
        now: Time,
        slot: SlotId,
        before: (Option<Time>, Option<Time>),
        out: &mut Vec<Out>,
    ) {
        let Some(block) = self.disk.tier.copy(slot) else {
            return;
        };
        // In steps, so that what the disk was told is never further from the truth than one step.
        let step = |pin: Option<Time>| pin.map(|until| until.0 / KEEP_STEP.0);
        let moved = step(before.0) != step(self.disk.tier.pin(slot));
        if moved || before.1 != block.stamp.age {
            let claims = durable::to_disk(&block.stamp, now);
            out.push(Out::Disk(DiskOp::Keep { slot, key: block.key, claims }));
        }
    }

    /// A session's claims end, wherever they are.
    pub(crate) fn session_final(&mut self, now: Time, owner: &Owner, out: &mut Vec<Out>) {
        for state in self.engines.values_mut() {
            state.tier.finish(owner);
        }
        self.dram.finish(owner);
        self.inbound.finish(owner);
        for writing in self.disk.writing.values_mut() {
            writing.block.stamp.end(owner);
        }
        let before: Vec<(SlotId, Option<Time>, Option<Time>)> = self
            .disk
            .tier
            .of_session(owner)
            .map(|slot| (slot, self.disk.tier.pin(slot), self.disk.tier.age(slot)))
            .collect();
        self.disk.tier.finish(owner);
        for (slot, pin, age) in before {
            self.keep(now, slot, (pin, age), out);
        }
    }
}
