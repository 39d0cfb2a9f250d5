use super::{Added, IndexReader, Lane, LaneId, MAX_LANES, Run, Writer};
use crate::mix::mix;
use proptest::prelude::*;
use protocol::block::StorageId;
use protocol::event::Holder;
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn lane(number: u16) -> Lane {
    let mut id = [0; 32];
    id[..2].copy_from_slice(&(number / 2).to_le_bytes());
    let holder = if number.is_multiple_of(2) { Holder::Dram } else { Holder::Engine(EngineId(0)) };
    let incarnation = Incarnation { counter: 1, nonce: 1 };
    Lane { node: NodeId(id), incarnation, holder, storage: StorageId(7) }
}

/// Granule `at` of chain `chain`; chains of one family share their first `shared` granules.
fn name(chain: u64, at: u64) -> PrefixHash {
    let high = mix(mix(chain) ^ at);
    PrefixHash((u128::from(high) << 64) | u128::from(mix(high ^ 1)))
}

fn chain(id: u64, shared: u64, length: u64) -> Vec<PrefixHash> {
    (0..length).map(|at| name(if at < shared { 0 } else { id }, at)).collect()
}

fn with_lanes(n: u16) -> (Writer, IndexReader, Vec<LaneId>) {
    let (mut writer, reader) = Writer::new(1 << 20);
    let ids: Vec<LaneId> = (0..n).filter_map(|_| writer.new_lane()).collect();
    let named: Vec<_> = ids.iter().zip(0..).map(|(id, n)| (*id, lane(n))).collect();
    writer.publish(&named);
    (writer, reader, ids)
}

fn runs(reader: &IndexReader, prefix: &[PrefixHash]) -> BTreeMap<Lane, u32> {
    let mut out: Vec<Run> = Vec::new();
    reader.match_prefix(prefix, &mut out);
    assert!(out.is_sorted_by_key(|run| run.granules));
    let count = out.len();
    let map: BTreeMap<Lane, u32> = out.into_iter().map(|run| (run.lane, run.granules)).collect();
    assert_eq!(map.len(), count, "a lane is reported once");
    map
}

#[derive(Clone, Debug)]
enum Op {
    Add { lane: usize, chain: u64, from: u64, to: u64 },
    Remove { lane: usize, chain: u64, from: u64, to: u64 },
    Retire { lane: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let span = (0usize..6, 0u64..5, 0u64..40, 1u64..20);
    prop_oneof![
        6 => span.clone().prop_map(|(lane, chain, from, n)| Op::Add { lane, chain, from, to: from + n }),
        4 => span.prop_map(|(lane, chain, from, n)| Op::Remove { lane, chain, from, to: from + n }),
        1 => (0usize..6).prop_map(|lane| Op::Retire { lane }),
    ]
}

/// The index as sets of pairs.
#[derive(Default)]
struct Model(BTreeSet<(usize, PrefixHash)>);

impl Model {
    fn run(&self, lane: usize, prefix: &[PrefixHash]) -> u32 {
        prefix.iter().take_while(|hash| self.0.contains(&(lane, **hash))).count() as u32
    }
}

struct Both {
    writer: Writer,
    reader: IndexReader,
    ids: Vec<LaneId>,
    model: Model,
}

impl Both {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Add { lane, chain: id, from, to } => {
                for (at, hash) in chain(id, 8, to).iter().enumerate().skip(from as usize) {
                    let added = self.writer.add(self.ids[lane], *hash, at as u16 + 1);
                    let fresh = self.model.0.insert((lane, *hash));
                    assert_eq!(added, if fresh { Added::New } else { Added::Held });
                }
            }
            Op::Remove { lane, chain: id, from, to } => {
                for hash in chain(id, 8, to).iter().skip(from as usize).rev() {
                    let gone = self.writer.remove(self.ids[lane], *hash);
                    assert_eq!(gone, self.model.0.remove(&(lane, *hash)));
                }
            }
            Op::Retire { lane: number } => {
                self.writer.retire(&[self.ids[number]]);
                self.model.0.retain(|(lane, _)| *lane != number);
                self.ids[number] = self.writer.new_lane().unwrap();
                self.writer.publish(&[(self.ids[number], lane(number as u16))]);
            }
        }
    }

    fn compare(&mut self) {
        self.writer.report();
        let stats = self.reader.stats();
        let distinct: BTreeSet<_> = self.model.0.iter().map(|(_, hash)| *hash).collect();
        assert_eq!(stats.entries, distinct.len() as u64);
        assert_eq!(stats.pairs, self.model.0.len() as u64);
        for number in 0..6 {
            let held = self.model.0.iter().filter(|(lane, _)| *lane == number).count();
            assert_eq!(self.writer.count(self.ids[number]), held as u64);
        }
        let mut scanned = BTreeSet::new();
        self.writer.scan(|lane, granule, hash| {
            assert!(granule > 0);
            let number = self.ids.iter().position(|id| *id == lane).unwrap();
            assert!(scanned.insert((number, hash)));
        });
        assert_eq!(scanned, self.model.0);
        for id in 0..5 {
            let prefix = chain(id, 8, 64);
            let found = runs(&self.reader, &prefix);
            for number in 0..6usize {
                let expect = self.model.run(number, &prefix);
                let got = found.get(&lane(number as u16)).copied().unwrap_or_default();
                assert_eq!(got, expect, "chain {id}, lane {number}");
            }
            for hash in prefix {
                let owners: BTreeSet<_> = self.reader.holders(hash).into_iter().collect();
                let held = (0..6usize).filter(|n| self.model.0.contains(&(*n, hash)));
                assert_eq!(owners, held.map(|n| lane(n as u16)).collect());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// owners(h) and the longest leading runs equal a model's after any history.
    #[test]
    fn equals_a_model(ops in prop::collection::vec(op(), 1..60)) {
        let (writer, reader, ids) = with_lanes(6);
        let mut both = Both { writer, reader, ids, model: Model::default() };
        for op in &ops {
            both.apply(op);
        }
        both.compare();
    }
}

#[test]
fn a_hole_ends_the_run() {
    let (mut writer, reader, ids) = with_lanes(1);
    let prefix = chain(1, 0, 200);
    for (at, hash) in prefix.iter().enumerate() {
        writer.add(ids[0], *hash, at as u16 + 1);
    }
    assert_eq!(runs(&reader, &prefix), BTreeMap::from([(lane(0), 200)]));
    writer.remove(ids[0], prefix[77]);
    assert_eq!(runs(&reader, &prefix), BTreeMap::from([(lane(0), 77)]));
}

#[test]
fn a_suffix_is_no_prefix() {
    let (mut writer, reader, ids) = with_lanes(1);
    let (a, b) = (chain(1, 0, 4), chain(2, 0, 4));
    for (at, hash) in a.iter().chain(&b).enumerate() {
        writer.add(ids[0], *hash, at as u16 + 1);
    }
    let swapped: Vec<PrefixHash> = [PrefixHash(99)].iter().chain(&a).copied().collect();
    assert!(runs(&reader, &swapped).is_empty());
    assert!(runs(&reader, &[]).is_empty());
}

#[test]
fn names_with_an_equal_stored_half_stay_apart_for_the_writer() {
    let (mut writer, _, ids) = with_lanes(1);
    let (a, b) = (PrefixHash(5 << 64 | 1), PrefixHash(5 << 64 | 2));
    assert_eq!(writer.add(ids[0], a, 1), Added::New);
    assert!(!writer.contains(ids[0], b));
    assert_eq!(writer.add(ids[0], b, 1), Added::New);
    assert!(writer.remove(ids[0], a));
    assert!(writer.contains(ids[0], b));
}

#[test]
fn many_lanes_in_one_set() {
    let (mut writer, reader, ids) = with_lanes(MAX_LANES as u16);
    assert_eq!(writer.new_lane(), None);
    let prefix = chain(1, 0, 3);
    for id in &ids {
        for (at, hash) in prefix.iter().enumerate() {
            writer.add(*id, *hash, at as u16 + 1);
        }
    }
    assert_eq!(runs(&reader, &prefix).len(), MAX_LANES);
    let (_, sets) = writer.sizes();
    assert_eq!(sets, 1, "passing sets were freed");
    writer.retire(&ids);
    assert!(runs(&reader, &prefix).is_empty());
}

#[test]
fn a_full_index_drops_and_says_so() {
    let (mut writer, reader) = Writer::new(10);
    let id = writer.new_lane().unwrap();
    writer.publish(&[(id, lane(0))]);
    let prefix = chain(1, 0, 12);
    let added: Vec<Added> =
        prefix.iter().zip(1..).map(|(hash, at)| writer.add(id, *hash, at)).collect();
    assert_eq!(added.iter().filter(|a| **a == Added::New).count(), 10);
    assert_eq!(added[10..], [Added::Full, Added::Full]);
    assert_eq!(runs(&reader, &prefix), BTreeMap::from([(lane(0), 10)]));
}

/// 10^5 prefixes pass through with a shared root while nodes come and go: nothing grows.
#[test]
fn churn_keeps_memory_flat() {
    let (mut writer, reader, mut ids) = with_lanes(8);
    let root = chain(0, 16, 16);
    let mut high = 0;
    for round in 0..250u64 {
        let number = (round % 8) as usize;
        let prefix = chain(round + 1, 16, 416);
        for (at, hash) in prefix.iter().enumerate() {
            writer.add(ids[number], *hash, at as u16 + 1);
        }
        if round >= 8 {
            for hash in chain(round - 7, 16, 416)[16..].iter().rev() {
                writer.remove(ids[number], *hash);
            }
        }
        if round % 25 == 24 {
            writer.retire(&[ids[number]]);
            ids[number] = writer.new_lane().unwrap();
            writer.publish(&[(ids[number], lane(number as u16))]);
        }
        writer.report();
        if round == 50 {
            high = reader.stats().bytes;
        }
        if round > 50 {
            let stats = reader.stats();
            assert!(stats.entries <= 9 * 400 + 16, "{stats:?}");
            assert!(stats.bytes <= high * 5 / 4, "{stats:?} after {high}");
        }
    }
    assert!(!runs(&reader, &root).is_empty());
    let (_, sets) = writer.sizes();
    assert!(sets < 100, "{sets} sets");
}

#[test]
fn tables_grow_and_shrink() {
    let (mut writer, reader, ids) = with_lanes(2);
    let names: Vec<PrefixHash> = (0..50_000).map(|n| name(3, n)).collect();
    for hash in &names {
        writer.add(ids[0], *hash, 1);
    }
    writer.report();
    let stats = reader.stats();
    assert_eq!(stats.entries, 50_000);
    let per_entry = writer.reader_bytes() as f64 / 50_000.0;
    assert!(per_entry <= 20.0, "{per_entry} bytes per entry for readers");
    assert!(names.iter().all(|hash| writer.contains(ids[0], *hash)));
    for hash in &names[100..] {
        writer.remove(ids[0], *hash);
    }
    writer.report();
    assert!(writer.reader_bytes() < 50_000 * 4, "shrinks: {} bytes", writer.reader_bytes());
    assert!(names[..100].iter().all(|hash| writer.contains(ids[0], *hash)));
}

/// Readers beside a writer never see a run longer than the truth allows: lane 0 always has the
/// first 30 granules of each chain and never the 60th; lane 1 flickers; the table grows meanwhile.
#[test]
#[allow(clippy::disallowed_methods)] // threads are what is tested
fn readers_beside_a_writer() {
    let (mut writer, reader, ids) = with_lanes(2);
    let chains: Vec<Vec<PrefixHash>> = (1..9).map(|id| chain(id, 4, 64)).collect();
    for prefix in &chains {
        for (at, hash) in prefix.iter().enumerate().take(30) {
            writer.add(ids[0], *hash, at as u16 + 1);
        }
    }
    let (stop, queries) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (reader, chains, stop, queries) = (reader.clone(), &chains, &stop, &queries);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let prefix = &chains[number];
                    let found = runs(&reader, prefix);
                    let steady = found.get(&lane(0)).copied().unwrap_or_default();
                    assert!((30..60).contains(&steady), "steady lane: {steady}");
                    assert!(found.get(&lane(1)).is_none_or(|run| *run <= 50));
                    queries.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut round = 0u64;
        while round < 60 || (queries.load(Ordering::Relaxed) < 500 && round < 100_000) {
            for prefix in &chains {
                for (at, hash) in prefix.iter().enumerate().take(50) {
                    writer.add(ids[1], *hash, at as u16 + 1);
                    if at >= 30 {
                        writer.add(ids[0], *hash, at as u16 + 1);
                    }
                }
                for hash in prefix[..50].iter().rev() {
                    writer.remove(ids[1], *hash);
                }
                for hash in prefix[30..50].iter().rev() {
                    writer.remove(ids[0], *hash);
                }
            }
            if round < 60 {
                for n in 0..200 {
                    writer.add(ids[1], name(1000 + round, n), 1);
                }
            }
            round += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(writer.rebuilds() > 0, "the table grew while they read");
    assert!(queries.load(Ordering::Relaxed) > 0);
}
