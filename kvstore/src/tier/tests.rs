use super::*;
use crate::retain::{Held, Level};
use proptest::prelude::*;
use protocol::block::{BlockClass, StorageId};
use protocol::hash::PrefixHash;
use protocol::id::{SessionId, TenantId};
use protocol::time::Span;

mod model;

impl Tier {
    /// Every structure agrees with every other.
    pub(crate) fn audit(&self) {
        self.pool.audit();
        let nodes = || {
            let numbered = self.nodes.iter().enumerate();
            numbered.filter_map(|(i, node)| Some((SlotId(i as u32), node.as_ref()?)))
        };
        assert_eq!(self.slots.len(), nodes().count());
        let (mut edges, mut victims) = (BTreeSet::new(), BTreeSet::new());
        let (mut alarms, mut ages, mut pinned) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut sessions: BTreeMap<Arc<Owner>, BTreeSet<SlotId>> = BTreeMap::new();
        for (slot, node) in nodes() {
            assert_eq!(self.slots.get(&node.key), Some(slot));
            let (leases, holds, named) = self.pool.uses(slot);
            assert!(named);
            if let Some(parent) = node.parent {
                let above = self.node(parent).expect("the parent is resident");
                assert!(above.tokens < node.tokens);
                edges.insert((parent, slot));
            }
            let children = nodes().filter(|(_, child)| child.parent == Some(slot)).count();
            assert_eq!(node.children as usize, children);
            if leases == 0 && holds == 0 && children == 0 {
                victims.insert((node.claims.rank(node.used), slot));
            }
            node.alarm.map(|time| alarms.insert((time, slot)));
            let next = node.claims.next_lapse();
            assert!(next.is_none_or(|next| node.alarm.is_some_and(|alarm| alarm <= next)));
            node.age.map(|time| ages.insert((time, slot)));
            pinned += u32::from(node.claims.pin().is_some());
            for owner in node.claims.owners().filter(|owner| owner.session.is_some()) {
                sessions.entry(Arc::clone(owner)).or_default().insert(slot);
            }
        }
        for index in 0..self.nodes.len() as u32 {
            let named = self.pool.uses(SlotId(index)).2;
            assert_eq!(named, self.node(SlotId(index)).is_some());
        }
        assert_eq!(self.edges, edges);
        assert_eq!(self.victims, victims);
        assert_eq!(self.alarms, alarms);
        assert_eq!(self.ages, ages);
        assert_eq!(self.pinned, pinned);
        assert_eq!(self.sessions, sessions);
    }

    pub(crate) fn uses(&self, slot: SlotId) -> (u32, u32) {
        let (leases, holds, _) = self.pool.uses(slot);
        (leases, holds)
    }

    fn is_pinned(&self, slot: SlotId) -> bool {
        self.node(slot).is_some_and(|node| node.pinned)
    }
}

fn key(n: u32) -> BlockKey {
    BlockKey { prefix: PrefixHash(u128::from(n)), storage: StorageId(1) }
}

fn at(s: u64) -> Time {
    Time::ZERO + Span::secs(s)
}

fn owner(session: u32) -> Owner {
    Owner { tenant: TenantId::local(), session: SessionId::new(&format!("s{session}")) }
}

fn stamp(session: u32, priority: i32, pin: Option<u64>, lapse: u64) -> Stamp {
    let level = Level::new(priority, BlockClass::Context);
    let owner = Arc::new(owner(session));
    Stamp { held: vec![Held { pin: pin.map(at), level, lapse: at(lapse), owner }], age: None }
}

/// Fills a slot with block `n` (parent 0 is none) and lets it go.
fn put(tier: &mut Tier, n: u32, parent: u32, stamp: Stamp) -> SlotId {
    let out = &mut Vec::new();
    let slot = tier.take(out).unwrap().slot;
    let parent = (parent > 0).then(|| key(parent));
    let block = NewBlock { key: key(n), parent, tokens: n * 16, signed: None, stamp };
    assert_eq!(tier.register(slot, block, out), Registered::New);
    tier.unlease(slot);
    tier.audit();
    slot
}

/// Takes slots until none is left; the blocks that went, in order.
fn drain(tier: &mut Tier) -> Vec<u32> {
    let mut out = Vec::new();
    while tier.take(&mut out).is_some() {}
    removed(&out)
}

fn removed(out: &[Out]) -> Vec<u32> {
    let number = |out: &Out| match out {
        Out::Event(BlockEvent::Removed { prefix, .. }) => Some(prefix.0 as u32),
        _ => None,
    };
    out.iter().filter_map(number).collect()
}

#[test]
fn leaves_go_first_then_the_least_recently_used() {
    let mut tier = Tier::new(Name::Dram, 5);
    for (n, parent) in [(1, 0), (2, 1), (3, 2), (4, 1), (5, 0)] {
        put(&mut tier, n, parent, Stamp::default());
    }
    tier.touch(tier.find(&key(3)).unwrap());
    assert_eq!(drain(&mut tier), [4, 5, 3, 2, 1]);
    assert_eq!(tier.stats().evicted, 5);
}

#[test]
fn used_blocks_and_their_ancestors_stay() {
    let mut tier = Tier::new(Name::Dram, 4);
    for (n, parent) in [(1, 0), (2, 1), (3, 2), (4, 1)] {
        put(&mut tier, n, parent, Stamp::default());
    }
    let two = tier.find(&key(2)).unwrap();
    tier.hold(two);
    assert_eq!(drain(&mut tier), [3, 4]);
    tier.unhold(two);
    assert_eq!(drain(&mut tier), [2, 1]);
}

#[test]
fn pins_last_until_their_time_and_go_last_oldest_first() {
    let mut tier = Tier::new(Name::Dram, 6);
    put(&mut tier, 1, 0, stamp(1, 0, Some(90), 10));
    put(&mut tier, 2, 0, stamp(1, 0, Some(50), 10));
    put(&mut tier, 3, 0, stamp(1, 0, Some(20), 10));
    put(&mut tier, 4, 0, stamp(1, 9, Some(99), 100));
    put(&mut tier, 5, 0, stamp(2, 1, None, 100));
    put(&mut tier, 6, 0, stamp(3, 0, None, 100));
    let stats = tier.stats();
    assert_eq!((stats.pinned, stats.pins_refused), (3, 1), "half of the tier at most");
    tier.expire(at(20), &mut Vec::new());
    tier.audit();
    assert_eq!(drain(&mut tier), [3, 6, 5, 4, 2, 1]);
    assert_eq!(tier.stats().pins_broken, 2);
}

#[test]
fn a_sessions_end_drops_its_claim_and_not_the_block() {
    let mut tier = Tier::new(Name::Dram, 3);
    put(&mut tier, 1, 0, stamp(1, 5, None, 100));
    put(&mut tier, 2, 0, stamp(2, 5, None, 100));
    put(&mut tier, 3, 0, stamp(1, 9, None, 100));
    tier.claim(tier.find(&key(3)).unwrap(), &stamp(2, 6, None, 100));
    tier.finish(&owner(1));
    tier.audit();
    assert_eq!(tier.stats().blocks, 3);
    assert_eq!(drain(&mut tier), [1, 2, 3]);
}

#[test]
fn at_its_legal_end_a_block_goes_with_all_that_was_built_on_it() {
    let mut tier = Tier::new(Name::Dram, 4);
    put(&mut tier, 1, 0, Stamp::default());
    put(&mut tier, 2, 1, Stamp::default().not_beyond(Some(at(9))));
    put(&mut tier, 3, 2, Stamp::default());
    let used = put(&mut tier, 4, 3, Stamp::default());
    tier.lease(used);
    assert_eq!(tier.deadline(), Some(at(9)));
    let mut out = Vec::new();
    tier.expire(at(8), &mut out);
    assert!(out.is_empty());
    tier.expire(at(9), &mut out);
    assert_eq!(removed(&out), [4, 3, 2]);
    tier.audit();
    assert_eq!((tier.counts().leased, tier.counts().free), (1, 2));
    tier.unlease(used);
    assert_eq!(tier.counts().free, 3);
}

#[test]
fn the_first_copy_stays_and_orphans_are_refused() {
    let mut tier = Tier::new(Name::Dram, 3);
    let first = put(&mut tier, 1, 0, Stamp::default());
    let out = &mut Vec::new();
    let slot = tier.take(out).unwrap().slot;
    let again = |n, parent| NewBlock {
        key: key(n),
        parent,
        tokens: 16,
        signed: None,
        stamp: Stamp::default(),
    };
    assert_eq!(tier.register(slot, again(1, None), out), Registered::Duplicate(first));
    assert_eq!(tier.register(slot, again(3, Some(key(2))), out), Registered::Orphan);
    assert!(out.is_empty());
    tier.unlease(slot);
    assert_eq!(tier.counts().free, 2);
}

/// What the tier must do, written plainly: the victim is the lowest of the leaves nobody uses.
#[derive(Default)]
struct Naive {
    blocks: Vec<Plain>,
}

struct Plain {
    n: u32,
    parent: u32,
    leases: u32,
    used: u64,
    /// session → (pin, priority, lapse)
    claims: BTreeMap<u32, (Option<u64>, i32, u64)>,
}

impl Naive {
    fn victim(&self) -> Option<u32> {
        let leaf = |b: &&Plain| b.leases == 0 && self.blocks.iter().all(|c| c.parent != b.n);
        let rank = |b: &&Plain| {
            let pin = b.claims.values().filter_map(|c| c.0).max();
            (pin, b.claims.values().map(|c| c.1).max(), b.used)
        };
        self.blocks.iter().filter(leaf).min_by_key(rank).map(|b| b.n)
    }

    fn expire(&mut self, now: u64) {
        for block in &mut self.blocks {
            block.claims.values_mut().for_each(|c| c.0 = c.0.filter(|pin| *pin > now));
            block.claims.retain(|_, c| c.0.is_some() || c.2 > now);
        }
    }

    fn pick(&mut self, n: usize) -> Option<&mut Plain> {
        let len = self.blocks.len();
        self.blocks.get_mut(n.checked_rem(len)?)
    }

    fn claim(&mut self, n: u32, session: u32, pin: Option<u64>, priority: i32, lapse: u64) {
        let block = self.blocks.iter_mut().find(|b| b.n == n).unwrap();
        let old = block.claims.get(&session).and_then(|c| c.0);
        block.claims.insert(session, (old.max(pin), priority, lapse));
    }
}

/// The tier beside the naive model.
struct Both {
    tier: Tier,
    naive: Naive,
    now: u64,
    next: u32,
    uses: u64,
}

impl Both {
    fn put(&mut self, pick: usize, session: u32, span: u64) {
        let full = self.naive.blocks.len() == 8;
        let mut out = Vec::new();
        let Some(slot) = self.tier.take(&mut out) else {
            assert_eq!(self.naive.victim(), None);
            return;
        };
        let want = self.naive.victim().filter(|_| full);
        assert_eq!(removed(&out), Vec::from_iter(want));
        self.naive.blocks.retain(|b| Some(b.n) != want);
        let parent = self.naive.pick(pick).filter(|_| session > 0).map_or(0, |b| b.n);
        let (n, lapse, priority) = (self.next, self.now + span, session as i32 - 2);
        let new = NewBlock {
            key: key(n),
            parent: (parent > 0).then(|| key(parent)),
            tokens: n * 16,
            signed: None,
            stamp: stamp(session, priority, None, lapse),
        };
        assert_eq!(self.tier.register(slot.slot, new, &mut out), Registered::New);
        self.tier.unlease(slot.slot);
        self.uses += 2;
        let (used, claims) = (self.uses, BTreeMap::from([(session, (None, priority, lapse))]));
        self.naive.blocks.push(Plain { n, parent, leases: 0, used, claims });
        self.next += 1;
    }

    fn claim(&mut self, pick: usize, session: u32, span: u64) {
        let Some(n) = self.naive.pick(pick).map(|b| b.n) else {
            return;
        };
        let slot = self.tier.find(&key(n)).unwrap();
        let pin = (session > 2).then_some(self.now + span).filter(|pin| *pin > self.now);
        let fits = self.tier.is_pinned(slot) || self.tier.stats().pinned < 4;
        let priority = session as i32 - 2;
        self.tier.claim(slot, &stamp(session, priority, pin, self.now + 5));
        self.naive.claim(n, session, pin.filter(|_| fits), priority, self.now + 5);
    }

    fn step(&mut self, (step, pick, session, span): (u8, u16, u32, u64)) {
        let pick = usize::from(pick);
        match step {
            0 | 1 => self.put(pick, session, span),
            2 => {
                if let Some(block) = self.naive.pick(pick) {
                    block.leases += 1;
                    self.tier.lease(self.tier.find(&key(block.n)).unwrap());
                }
            }
            3 => {
                if let Some(block) = self.naive.pick(pick).filter(|b| b.leases > 0) {
                    block.leases -= 1;
                    if block.leases == 0 {
                        self.uses += 1;
                        block.used = self.uses;
                    }
                    self.tier.unlease(self.tier.find(&key(block.n)).unwrap());
                }
            }
            4 => self.claim(pick, session, span),
            5 => self.now += span / 4,
            _ => {
                self.tier.finish(&owner(session));
                for block in &mut self.naive.blocks {
                    block.claims.remove(&session);
                }
            }
        }
        self.tier.expire(at(self.now), &mut Vec::new());
        self.naive.expire(self.now);
        self.tier.audit();
        assert!(self.tier.stats().pinned <= 4);
        assert_eq!(self.tier.stats().blocks as usize, self.naive.blocks.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn victims_are_those_of_the_naive_model(
        steps in prop::collection::vec((0..7u8, any::<u16>(), 0..5u32, 0..60u64), 1..150),
    ) {
        let tier = Tier::new(Name::Dram, 8);
        let mut both = Both { tier, naive: Naive::default(), now: 0, next: 1, uses: 0 };
        steps.into_iter().for_each(|step| both.step(step));
    }
}
