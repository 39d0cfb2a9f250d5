//! Random histories in the world; everything is checked after every input.

use super::world::*;
use super::*;
use crate::messages::PrefetchId;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use protocol::block::{BlockClass, Claim, ContentDigest};
use protocol::hash::Token;
use protocol::id::{SessionId, TenantId};
use protocol::op::{Copied, OpId, ReadId};
use protocol::plan::Source;
use protocol::prompt::RangeClaim;
use protocol::time::Span;

type Step = (u8, u16, u16, u8);

struct Run {
    world: World,
    /// Conversations so far; new prompts continue or branch from them.
    histories: Vec<Vec<Token>>,
    setup: Setup,
    /// Counters of earlier lives.
    past: Vec<Counters>,
}

impl Run {
    fn lease(&self, pick: u16) -> Option<LeaseId> {
        let n = self.world.seqs.len();
        self.world.seqs.keys().nth(usize::from(pick).checked_rem(n)?).copied()
    }

    fn fetch(&self, pick: u16) -> Option<OpId> {
        let n = self.world.fetches.len();
        self.world.fetches.keys().nth(usize::from(pick).checked_rem(n)?).copied()
    }

    fn prepare(&mut self, a: u16, b: u16, c: u8) {
        let history = &self.histories[usize::from(a) % self.histories.len()];
        let keep = usize::from(b) % (history.len() + 1);
        let mut tokens = history[..keep].to_vec();
        let fresh = 1 + usize::from(a >> 8) % 40;
        tokens.extend((0..fresh).map(|i| Token(u32::from(b) * 64 + i as u32)));
        let mut ask = self.world.ask(&tokens, 1 + u32::from(c % 50));
        ask.engine = EngineId(a % self.world.engines.len() as u16);
        ask.priority = i32::from(c % 3);
        let session = SessionId::new(&format!("s{}", b % 3));
        ask.session = session.clone().filter(|_| c.is_multiple_of(2));
        let (start, end) = (u32::from(b % 50), u32::from(b % 50) + u32::from(c % 90));
        if c.is_multiple_of(3) {
            let ttl = Some(Span::secs(u64::from(c))).filter(|_| c.is_multiple_of(2));
            let max_age = Some(Span::secs(u64::from(c))).filter(|_| c.is_multiple_of(5));
            let (tenant, class) = (TenantId::local(), BlockClass::System);
            let claim = Claim { session, tenant, class, priority: 1, ttl, max_age };
            ask.claims.push(RangeClaim { start, end, claim });
        }
        if c % 4 < 2 {
            let node = if c.is_multiple_of(16) {
                self.world.store.keypair.node()
            } else {
                self.world.peer()
            };
            let middle = tokens.len() as u32 / 2;
            for (start, end) in [(0, middle), (middle, tokens.len() as u32)] {
                let deadline = Span::millis(100);
                ask.sources.push(Source { node, start, end, deadline });
            }
        }
        let _ = self.world.try_prepare(&tokens, ask);
    }

    fn release(&mut self, pick: u16) {
        let Some(lease) = self.lease(pick) else {
            return;
        };
        let tokens = self.world.release(lease).unwrap();
        if self.histories.len() < 6 {
            self.histories.push(tokens);
        } else {
            self.histories[usize::from(pick) % 6] = tokens;
        }
    }

    fn noise(&mut self, a: u16, c: u8) {
        let (op, lease) = (OpId(u64::from(a)), LeaseId(u64::from(a % 64)));
        let engine = EngineId(u16::from(c) % 4);
        let digest = Some(ContentDigest([0; 32]));
        let known = |w: &World| w.seqs.get(&lease).is_some_and(|seq| seq.engine == engine);
        let input = match c % 7 {
            0 => In::Submitted(LeaseId(u64::MAX)),
            1 if !self.world.is_known(lease) => In::Released(lease),
            2 => In::FetchEnded { op: OpId(u64::MAX) },
            3 => In::ReadDone(ReadId(u64::from(a))),
            4 if !known(&self.world) => {
                In::Engine(engine, EngineEvent::Sealed { lease, index: 0, tokens: Vec::new() })
            }
            5 => In::Engine(EngineId(9), EngineEvent::Exported { op, digest }),
            _ => In::Engine(EngineId(9), EngineEvent::Imported { op, copied: Copied::Used }),
        };
        self.world.give(input);
    }

    fn step(&mut self, (kind, a, b, c): Step) {
        match kind {
            0..=15 => self.prepare(a, b, c),
            16..=25 => {
                if let Some(lease) = self.lease(a) {
                    self.world.submit(lease);
                }
            }
            26..=50 => {
                for _ in 0..=c % 4 {
                    if let Some(lease) = self.lease(a) {
                        self.world.compute(lease, c > 200);
                    }
                }
            }
            51..=54 => {
                if let Some(lease) = self.lease(a).filter(|l| self.world.seqs[l].submitted) {
                    let engine = self.world.seqs[&lease].engine;
                    let blocks = u32::from(c % 4);
                    self.world.event_of(engine, EngineEvent::NeedSlots { lease, blocks });
                }
            }
            55..=72 => self.world.perform(usize::from(a), c % 8 != 0),
            73..=82 => {
                if let Some(op) = self.fetch(a) {
                    let n = self.world.fetches[&op].1.len();
                    let kind = if b % 3 == 0 { c } else { 0 };
                    self.world.decide(op, usize::from(b) % n, kind);
                }
            }
            83..=84 => {
                if let Some(op) = self.fetch(a) {
                    self.world.end_fetch(op);
                }
            }
            85..=90 if a % 16 == 0 => {
                if let Some(lease) = self.world.waiting().first().copied() {
                    self.world.release(lease);
                }
            }
            85..=90 => self.release(a),
            91..=92 => {
                let keys = self.world.keys(&self.histories[usize::from(a) % self.histories.len()]);
                self.world.read(keys, Span::millis(u64::from(b)));
            }
            93 => {
                if let Some(read) = self.world.reads.keys().next().copied() {
                    self.world.reads.remove(&read);
                    self.world.give(In::ReadDone(read));
                }
            }
            94..=95 => self.world.advance(Span::millis(u64::from(a))),
            96 => {
                let engine = EngineId(a % self.world.engines.len() as u16);
                if c % 4 == 0 {
                    self.world.die(engine);
                } else {
                    self.world.give(In::EngineUp(engine));
                }
            }
            97 => {
                let session = SessionId::new(&format!("s{}", a % 3)).unwrap();
                self.world.give(In::SessionFinal { tenant: TenantId::local(), session });
            }
            98..=99 => self.noise(a, c),
            100..=117 => {
                let kind = if c % 8 < 6 { 0 } else { 1 + c % 3 };
                self.world.perform_disk(usize::from(a), kind);
            }
            118 if self.world.disk.sick => {
                // It has forgotten one block, and another has changed.
                let slot = |n: u16| {
                    let slots = self.world.disk.records.keys();
                    slots.copied().nth(usize::from(n) % self.world.disk.records.len().max(1))
                };
                let [lost, changed] = [slot(a), slot(b)];
                lost.map(|slot| self.world.disk.records.remove(&slot));
                changed.map(|slot| self.world.disk.bytes.insert(slot, PrefixHash(1)));
                self.world.tell_found();
            }
            118 if c % 4 == 0 && self.setup.nvme > 0 => self.world.sicken(c % 8 == 0),
            119 if c % 2 == 0 => {
                let empty = World::new(Setup::default());
                let before = std::mem::replace(&mut self.world, empty);
                self.past.push(before.counters());
                self.world = before.restart(self.setup);
                // Now much is on disk only.
                match c % 3 {
                    0 => self.step((91, a, b % 2000, c)),
                    1 => self.step((120, a, b, c)),
                    _ => {}
                }
            }
            120..=122 => {
                let keys = self.world.keys(&self.histories[usize::from(a) % self.histories.len()]);
                let (id, within) = (PrefetchId(u64::from(b % 4)), Span::millis(u64::from(b)));
                self.world.give(In::Prefetch(Prefetch { id, keys, within }));
            }
            123 => drop(self.world.give(In::PrefetchEnd(PrefetchId(u64::from(a % 4))))),
            _ => self.world.advance(Span::millis(1)),
        }
    }

    fn new(setup: Setup) -> Self {
        let histories = vec![prompt(1, 100), shared(48, 2, 90)];
        Self { world: World::new(setup), histories, setup, past: Vec::new() }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..124u8, any::<u16>(), any::<u16>(), any::<u8>()), 1..350)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_histories_keep_every_promise(
        steps in steps(),
        big in any::<bool>(),
        dram in 0..14u32,
        nvme in 0..24u32,
        buggify in any::<Option<u64>>(),
    ) {
        let (block_tokens, nvme) = (if big { 32 } else { 16 }, if dram > 0 { nvme } else { 0 });
        let setup =
            Setup { block_tokens, slots: 16, dram, nvme, engines: 2, buggify, ..Setup::default() };
        let mut run = Run::new(setup);
        for step in steps {
            run.step(step);
        }
        run.world.settle();
        run.world.store.buggify = crate::Buggify::new(None);
        // Prompts that fit are served again: nothing has leaked.
        for tokens in run.histories.clone().iter().filter(|tokens| tokens.len() < 200) {
            for engine in run.world.engines.keys().copied().collect::<Vec<_>>() {
                run.world.give(In::EngineUp(engine));
            }
            run.world.serve(tokens, 1);
        }
        run.world.settle();
    }
}

/// The random histories reach what they are meant to reach.
#[test]
fn random_histories_meet_every_case() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut total = [0u64; 44];
    for case in 0..256u32 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let (dram, nvme) = (case % 14, if case.is_multiple_of(14) { 0 } else { case % 22 });
        let buggify = (case.is_multiple_of(4)).then_some(u64::from(case));
        let setup = Setup { slots: 16, dram, nvme, engines: 2, buggify, ..Setup::default() };
        let mut run = Run::new(setup);
        steps.into_iter().for_each(|step| run.step(step));
        run.world.settle();
        let stats = run.world.store.stats();
        run.past.push(run.world.counters());
        let evicted: u64 = stats.tiers.iter().map(|tier| tier.evicted).sum();
        let pins: u64 = stats.tiers.iter().map(|tier| tier.pins_refused).sum();
        let seen = run.past.iter().map(cases).fold([0; 41], |mut sum, seen| {
            sum.iter_mut().zip(seen).for_each(|(sum, n)| *sum += n);
            sum
        });
        let seen = seen.into_iter().chain([evicted, pins, stats.mischief]);
        total.iter_mut().zip(seen).for_each(|(sum, n)| *sum += n);
    }
    assert!(total.iter().all(|n| *n > 0), "{total:?}");
}

fn cases(c: &Counters) -> [u64; 41] {
    [
        c.granted,
        c.refused_busy,
        c.refused_other,
        c.engine_tokens,
        c.dram_tokens,
        c.peer_tokens,
        c.duplicates,
        c.top_ups_empty,
        c.offloaded,
        c.offload_skipped,
        c.offload_failed,
        c.fetch_verified,
        c.fetch_absent,
        c.fetch_corrupt,
        c.fetch_failed,
        c.fetch_cancelled,
        c.read_blocks,
        c.read_expired,
        c.read_staged,
        c.read_partial,
        c.nvme_tokens,
        c.nvme_writes,
        c.nvme_written,
        c.nvme_write_failed,
        c.nvme_refused_pinned,
        c.nvme_refused_unread,
        c.nvme_skipped,
        c.nvme_orphans,
        c.nvme_verified,
        c.nvme_corrupt,
        c.nvme_failed,
        c.nvme_late,
        c.nvme_found,
        c.nvme_dropped,
        c.nvme_quarantined,
        c.prefetch_used,
        c.prefetch_late,
        c.prefetch_wasted,
        c.prefetch_failed,
        c.prefill_waits,
        c.prefill_waits_late,
    ]
}

#[test]
fn equal_inputs_give_equal_outputs() {
    let script = || {
        let mut world = World::new(Setup { slots: 12, dram: 6, ..Setup::default() });
        for family in [1, 2, 1, 3, 1] {
            world.serve(&shared(32, family, 90), 20);
        }
        world.log
    };
    let log = script();
    assert!(log.len() > 50);
    assert_eq!(log, script());
}
