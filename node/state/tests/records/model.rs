//! Random calls under random faults, against what may be read by the promises.

use crate::world::{World, id};
use proptest::prelude::*;
use protocol::event::MemberState;
use protocol::state::Kept;
use protocol::time::Span;
use state::Deleted;
use std::collections::{BTreeMap, BTreeSet};

/// What may be read under a name: what the last safe call left there, and what calls left open.
#[derive(Default, Debug)]
struct May {
    last: Option<Vec<u8>>,
    open: BTreeSet<Option<Vec<u8>>>,
}

impl May {
    fn allows(&self, found: &Option<Vec<u8>>) -> bool {
        self.last == *found || self.open.contains(found)
    }
}

struct Run {
    world: World,
    may: BTreeMap<u8, May>,
    down: Option<usize>,
    lost_disk: bool,
    writes: u32,
}

impl Run {
    fn up(&mut self) -> usize {
        loop {
            let h = self.world.below(self.world.hosts.len() as u64) as usize;
            if self.down != Some(h) {
                return h;
            }
        }
    }

    /// What is promised through a change of members holds once it was mended (with lost frames
    /// that takes some comparisons), and where nothing is lost at any time; but a lost disk is
    /// filled again before the next fault.
    fn settle(&mut self) {
        let fault_free = self.world.loss == 0 && !self.lost_disk;
        let wait = if fault_free { self.world.below(2000) } else { 40_000 };
        self.lost_disk = false;
        self.world.pass(Span::millis(wait));
    }

    fn act(&mut self) {
        let h = self.up();
        let name = self.world.below(6) as u8;
        let (what, id) = (self.world.below(100), id(name % 3, name));
        let may = self.may.entry(name).or_default();
        match what {
            0..40 => {
                self.writes += 1;
                let value = self.writes.to_le_bytes().to_vec();
                match self.world.put(h, id, &value) {
                    Ok(Kept::Safe) => may.last = Some(value),
                    Ok(Kept::Degraded { .. }) | Err(_) => {
                        may.open.insert(Some(value));
                    }
                }
            }
            40..80 => {
                if let Ok(found) = self.world.get(h, id)
                    && found.confirmed
                {
                    assert!(may.allows(&found.value), "{name}: {:?} of {may:?}", found.value);
                }
            }
            80..90 => match self.world.delete(h, id) {
                Ok(Deleted::Gone(Kept::Safe)) => may.last = None,
                Ok(Deleted::Gone(Kept::Degraded { .. })) => {
                    may.open.insert(None);
                }
                Ok(Deleted::Absent) => assert!(may.allows(&None), "{name}: absent of {may:?}"),
                // It may have begun.
                Err(_) => {
                    may.open.insert(None);
                }
            },
            90..95 => match self.down.take() {
                Some(h) => {
                    self.world.restart(h);
                    self.settle();
                }
                None => {
                    let with_disk = self.world.below(2) == 0;
                    self.world.crash(h, with_disk);
                    self.lost_disk |= with_disk;
                    self.down = Some(h);
                    if self.world.below(2) == 0 {
                        self.world.all_see(h, MemberState::Suspect);
                        let wait = self.world.below(2000);
                        self.world.pass(Span::millis(wait));
                        self.world.all_see(h, MemberState::Dead);
                        self.settle();
                    }
                }
            },
            _ => {
                let wait = self.world.below(500);
                self.world.pass(Span::millis(wait));
            }
        }
    }

    fn end(&mut self) {
        (self.world.loss, self.world.twice) = (0, 0);
        if let Some(h) = self.down.take() {
            self.world.restart(h);
        }
        self.world.pass(Span::secs(25));
        for (name, may) in std::mem::take(&mut self.may) {
            let id = id(name % 3, name);
            let nodes = 0..self.world.hosts.len();
            let found: Vec<_> = nodes.map(|h| self.world.get(h, id).unwrap()).collect();
            assert!(found.iter().all(|one| one == &found[0]), "{name}: {found:?}");
            assert!(may.allows(&found[0].value), "{name}: {:?} of {may:?}", found[0]);
            let held = self.world.on_disk(&id);
            assert!(held.len() >= 3 || found[0].value.is_none(), "{name}: on {held:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_read(
        nodes in 3usize..6,
        seed in any::<u64>(),
        loss in prop_oneof![Just(0u64), 1u64..20],
        twice in 0u64..20,
    ) {
        let mut world = World::new(nodes, seed);
        (world.loss, world.twice) = (loss, twice);
        let mut run = Run { world, may: BTreeMap::new(), down: None, lost_disk: false, writes: 0 };
        (0..150).for_each(|_| run.act());
        run.end();
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let trace = |seed| {
        let mut world = World::new(4, seed);
        (world.loss, world.twice) = (10, 10);
        let mut run = Run { world, may: BTreeMap::new(), down: None, lost_disk: false, writes: 0 };
        (0..100).for_each(|_| run.act());
        let each = run.world.hosts.iter().filter_map(|host| host.machine.as_ref());
        (each.map(|m| *m.counters()).collect::<Vec<_>>(), run.world.now)
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
