use super::*;
use proptest::prelude::*;

mod model;

impl Pool {
    /// (leases, holds, named) of a slot.
    pub(crate) fn uses(&self, slot: SlotId) -> (u32, u32, bool) {
        let slot = &self.slots[slot.0 as usize];
        (slot.leases, slot.holds, slot.named)
    }

    /// Counts and free list agree with the slots.
    pub(crate) fn audit(&self) {
        let mut counts = SlotCounts::default();
        self.slots.iter().for_each(|slot| *counts.of(slot.state()) += 1);
        assert_eq!(self.counts, counts);
        assert_eq!(self.counts.total() as usize, self.slots.len());
        let spare = self.slots.iter().filter(|slot| slot.is_spare()).count();
        assert_eq!(self.spare as usize, spare);
        let mut free = self.free.clone();
        free.sort_unstable();
        let is_free = |i: &u32| self.slots[*i as usize].state() == SlotState::Free;
        let want: Vec<SlotId> = (0..self.slots.len() as u32).filter(is_free).map(SlotId).collect();
        assert_eq!(free, want);
    }
}

#[test]
fn a_slot_walks_through_its_states() {
    let mut pool = Pool::new(1);
    let state = |pool: &Pool| pool.slots[0].state();
    let first = pool.take().unwrap();
    assert_eq!(state(&pool), SlotState::Leased);
    assert_eq!(pool.take(), None);
    pool.name(first.slot, true);
    pool.hold(first.slot);
    pool.unlease(first.slot);
    assert_eq!(state(&pool), SlotState::Cached);
    assert_eq!(pool.available(), 0, "an operation touches it");
    pool.name(first.slot, false);
    assert_eq!(state(&pool), SlotState::Draining);
    pool.unhold(first.slot);
    assert_eq!(state(&pool), SlotState::Free);
    let second = pool.take().unwrap();
    assert!(second.generation > first.generation);
}

proptest! {
    #[test]
    fn counts_agree_with_slots_whatever_happens(steps in prop::collection::vec((0..7u8, 0..5u32), 0..200)) {
        let mut pool = Pool::new(5);
        let mut generations = [0u32; 5];
        for (step, slot) in steps {
            let slot = SlotId(slot);
            let (leases, holds, _) = pool.uses(slot);
            match step {
                0 => {
                    if let Some(taken) = pool.take() {
                        let last = &mut generations[taken.slot.0 as usize];
                        prop_assert!(taken.generation.0 > *last);
                        *last = taken.generation.0;
                    }
                }
                1 if leases > 0 => pool.lease(slot),
                2 if leases > 0 => pool.unlease(slot),
                3 if leases > 0 => pool.hold(slot),
                4 if holds > 0 => pool.unhold(slot),
                5 if leases > 0 => pool.name(slot, true),
                6 => pool.name(slot, false),
                _ => {}
            }
            pool.audit();
        }
        pool.reset();
        pool.audit();
        prop_assert_eq!(pool.counts().free, 5);
    }
}
