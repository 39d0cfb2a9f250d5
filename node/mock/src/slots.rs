//! The engine's pool: what each slot holds.

#[cfg(test)]
mod tests;

use crate::{Pattern, Stats};
use protocol::block::{Generation, SlotRef};
use protocol::op::LeaseId;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Empty,
    /// A block that this lease's sequence is filling.
    Begun(LeaseId),
    Full(Pattern),
}

#[derive(Clone, Copy)]
struct Slot {
    generation: Generation,
    content: Content,
    /// Running sequences whose lease holds it.
    users: u32,
}

/// All slots. Like memory it lets everybody write; it counts who should not have.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// Slots with users.
    active: u32,
}

impl Slots {
    pub(crate) fn new(slots: u32) -> Self {
        let empty = Slot { generation: Generation(0), content: Content::Empty, users: 0 };
        Self { slots: vec![empty; slots as usize], active: 0 }
    }

    fn get(&self, slot: SlotRef) -> Option<&Slot> {
        self.slots.get(slot.slot.0 as usize)
    }

    fn get_mut(&mut self, slot: SlotRef) -> Option<&mut Slot> {
        self.slots.get_mut(slot.slot.0 as usize)
    }

    pub(crate) fn contains(&self, slot: SlotRef) -> bool {
        self.get(slot).is_some()
    }

    /// The pattern of a full slot.
    pub(crate) fn pattern(&self, slot: SlotRef) -> Option<Pattern> {
        match self.get(slot)?.content {
            Content::Full(pattern) => Some(pattern),
            Content::Empty | Content::Begun(_) => None,
        }
    }

    /// A sequence begins to fill a slot, or goes on.
    pub(crate) fn begin(&mut self, slot: SlotRef, lease: LeaseId, stats: &mut Stats) {
        let Some(place) = self.get_mut(slot) else { return };
        if place.content == Content::Begun(lease) {
            return;
        }
        let shared = place.generation == slot.generation && place.content != Content::Empty;
        if shared || slot.generation < place.generation {
            stats.violations += 1;
        }
        place.generation = place.generation.max(slot.generation);
        place.content = Content::Begun(lease);
    }

    /// A sequence has filled a slot.
    pub(crate) fn seal(
        &mut self,
        slot: SlotRef,
        lease: LeaseId,
        pattern: Pattern,
        stats: &mut Stats,
    ) {
        let Some(place) = self.get_mut(slot) else { return };
        if place.content != Content::Begun(lease) {
            stats.overwritten += 1;
        }
        place.content = Content::Full(pattern);
    }

    /// A block is copied in.
    pub(crate) fn import(&mut self, slot: SlotRef, pattern: Pattern, stats: &mut Stats) {
        let Some(place) = self.get_mut(slot) else { return };
        let shared = place.generation == slot.generation && place.content != Content::Empty;
        if shared || slot.generation < place.generation {
            stats.violations += 1;
        }
        place.generation = place.generation.max(slot.generation);
        place.content = Content::Full(pattern);
    }

    /// A running sequence holds these.
    pub(crate) fn hold(&mut self, slots: &[SlotRef]) {
        for slot in slots {
            if let Some(place) = self.get_mut(*slot) {
                place.users += 1;
                self.active += u32::from(self.get(*slot).is_some_and(|place| place.users == 1));
            }
        }
    }

    /// A running sequence holds these no more.
    pub(crate) fn let_go(&mut self, slots: &[SlotRef]) {
        for slot in slots {
            if let Some(place) = self.get_mut(*slot)
                && place.users > 0
            {
                place.users -= 1;
                self.active -= u32::from(self.get(*slot).is_some_and(|place| place.users == 0));
            }
        }
    }

    /// Slots that running sequences hold.
    pub(crate) fn active(&self) -> u32 {
        self.active
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The memory is lost; generations stay known, as those of the leases that come are newer.
    pub(crate) fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.content = Content::Empty;
            slot.users = 0;
        }
        self.active = 0;
    }
}
