//! A pool of slots: who uses each, and in which of its lives.
//!
//! A slot's state follows from three facts: how many leases name it, how many operations or reads
//! touch it, and whether it holds a named block. So no transition can be forgotten.

use protocol::block::{Generation, SlotId, SlotRef};
use protocol::op::slot_index;

#[cfg(test)]
mod tests;

/// What a slot is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    /// Can be leased.
    Free,
    /// Belongs to leases.
    Leased,
    /// Belongs to none and holds a named block.
    Cached,
    /// Belongs to none and holds nothing, but an operation still touches it.
    Draining,
}

/// Slots by state; they add up to the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotCounts {
    /// Can be leased.
    pub free: u32,
    /// In use by requests or by blocks on their way.
    pub leased: u32,
    /// Hold a block that nobody uses now.
    pub cached: u32,
    /// Wait for an operation to end.
    pub draining: u32,
}

impl SlotCounts {
    /// All slots of the pool.
    pub fn total(&self) -> u32 {
        self.free + self.leased + self.cached + self.draining
    }

    fn of(&mut self, state: SlotState) -> &mut u32 {
        match state {
            SlotState::Free => &mut self.free,
            SlotState::Leased => &mut self.leased,
            SlotState::Cached => &mut self.cached,
            SlotState::Draining => &mut self.draining,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    generation: Generation,
    leases: u32,
    holds: u32,
    named: bool,
    /// Its place among the free slots, while it is one.
    place: u32,
}

impl Slot {
    fn state(&self) -> SlotState {
        match (self.leases, self.named, self.holds) {
            (1.., _, _) => SlotState::Leased,
            (0, true, _) => SlotState::Cached,
            (0, false, 1..) => SlotState::Draining,
            (0, false, 0) => SlotState::Free,
        }
    }

    fn is_idle(&self) -> bool {
        self.leases == 0 && self.holds == 0
    }

    fn is_spare(&self) -> bool {
        self.is_idle() && self.named
    }
}

/// The slots of one tier.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// Used as a stack: recently used memory first, never-touched memory last.
    free: Vec<SlotId>,
    counts: SlotCounts,
    /// Cached slots that no operation touches.
    spare: u32,
}

impl Pool {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: (0..slots)
                .map(|slot| Slot { place: slots - 1 - slot, ..Slot::default() })
                .collect(),
            free: (0..slots).rev().map(SlotId).collect(),
            counts: SlotCounts { free: slots, ..SlotCounts::default() },
            spare: 0,
        }
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        self.counts
    }

    /// Slots that are free or could be, when nothing but order of eviction stands against it.
    pub(crate) fn available(&self) -> u32 {
        self.counts.free.saturating_add(self.spare)
    }

    fn slot(&self, slot: SlotId) -> Option<&Slot> {
        self.slots.get(slot_index(slot, self.slots.len())?)
    }

    /// The slot in its present life.
    pub(crate) fn current(&self, slot: SlotId) -> SlotRef {
        let generation = self.slot(slot).map(|s| s.generation).unwrap_or_default();
        SlotRef { slot, generation }
    }

    /// Whether neither lease nor operation uses the slot.
    pub(crate) fn is_idle(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(Slot::is_idle)
    }

    /// Whether a lease names the slot.
    pub(crate) fn is_leased(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|s| s.leases > 0)
    }

    fn change(&mut self, slot: SlotId, change: impl FnOnce(&mut Slot)) {
        let n = self.slots.len();
        let Some(entry) = slot_index(slot, n).and_then(|i| self.slots.get_mut(i)) else {
            return;
        };
        let (before, was_spare) = (entry.state(), entry.is_spare());
        change(entry);
        let (after, is_spare) = (entry.state(), entry.is_spare());
        if before != after && after == SlotState::Free {
            entry.place = u32::try_from(self.free.len()).unwrap_or(u32::MAX);
            self.free.push(slot);
        }
        *self.counts.of(before) -= 1;
        *self.counts.of(after) += 1;
        self.spare = self.spare + u32::from(is_spare) - u32::from(was_spare);
    }

    /// Leases a free slot: its next generation begins.
    pub(crate) fn take(&mut self) -> Option<SlotRef> {
        let slot = self.free.pop()?;
        Some(self.begin(slot))
    }

    /// Leases this slot, if it is free.
    pub(crate) fn take_at(&mut self, slot: SlotId) -> Option<SlotRef> {
        let place = self.slot(slot).filter(|s| s.state() == SlotState::Free)?.place;
        self.free.get(place as usize).filter(|free| **free == slot)?;
        self.free.swap_remove(place as usize);
        if let Some(moved) = self.free.get(place as usize).copied() {
            self.change(moved, |s| s.place = place);
        }
        Some(self.begin(slot))
    }

    fn begin(&mut self, slot: SlotId) -> SlotRef {
        self.change(slot, |s| {
            s.generation = Generation(s.generation.0.saturating_add(1));
            s.leases = 1;
        });
        self.current(slot)
    }

    /// One lease more.
    pub(crate) fn lease(&mut self, slot: SlotId) {
        self.change(slot, |s| s.leases += 1);
    }

    /// One lease less.
    pub(crate) fn unlease(&mut self, slot: SlotId) {
        self.change(slot, |s| {
            debug_assert!(s.leases > 0, "a lease ended twice");
            s.leases = s.leases.saturating_sub(1);
        });
    }

    /// One operation or read more.
    pub(crate) fn hold(&mut self, slot: SlotId) {
        self.change(slot, |s| s.holds += 1);
    }

    /// One operation or read less.
    pub(crate) fn unhold(&mut self, slot: SlotId) {
        self.change(slot, |s| {
            debug_assert!(s.holds > 0, "a hold ended twice");
            s.holds = s.holds.saturating_sub(1);
        });
    }

    /// Whether the slot holds a named block.
    pub(crate) fn name(&mut self, slot: SlotId, named: bool) {
        self.change(slot, |s| s.named = named);
    }

    /// Frees every slot: whoever used them is gone. Generations go on.
    pub(crate) fn reset(&mut self) {
        for index in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            self.change(SlotId(index), |s| {
                *s = Slot { generation: s.generation, place: s.place, ..Slot::default() }
            });
        }
    }
}
