//! The index under the load of an agentic site: 64 workers, 128 live sessions over a shared system
//! prompt, turns of one prefill and several decode events, 3 % of the turns on another worker.
//!
//! `cargo bench -p router` runs the divan figures. `ENTRIES=5000000 cargo bench -p router -- report`
//! prints one table: rates, percentiles, bytes per entry, beside a plain BTreeMap in the same run.
//! Names stand for one granule each, so "1,150 blocks" here are 1,150 index granules.

#![allow(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used, missing_docs)] // measures

use divan::counter::ItemsCount;
use protocol::block::StorageId;
use protocol::event::{EventBatch, EventRun, Holder, Seq, SetDigest};
use protocol::hash::{PrefixHash, RoutingKey, RoutingNamespace, Token};
use protocol::id::{EngineId, Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::sign::Keypair;
use protocol::time::Time;
use protocol::wire;
use router::{Config, In, IndexReader, Router, Run};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Instant;

const WORKERS: u64 = 64;
const SYSTEM: usize = 256;
const LONGEST: usize = 2048;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn name(&mut self) -> PrefixHash {
        PrefixHash((u128::from(self.next()) << 64) | u128::from(self.next()))
    }
}

struct Event {
    worker: u64,
    session: usize,
    from: usize,
    to: usize,
}

#[derive(Default)]
struct Load {
    sessions: Vec<Vec<PrefixHash>>,
    events: Vec<Event>,
    /// Session and length in granules.
    queries: Vec<(usize, usize)>,
    entries: usize,
}

struct Session {
    id: usize,
    worker: u64,
    length: usize,
    covered: BTreeMap<u64, usize>,
}

fn open(load: &mut Load, rng: &mut Rng, system: &[PrefixHash]) -> Session {
    let own = (SYSTEM..LONGEST + 64).map(|_| rng.name());
    load.sessions.push(system.iter().copied().chain(own).collect());
    let id = load.sessions.len() - 1;
    Session { id, worker: rng.below(WORKERS), length: 0, covered: BTreeMap::new() }
}

fn generate(target: usize) -> Load {
    let mut rng = Rng(1);
    let system: Vec<PrefixHash> = (0..SYSTEM).map(|_| rng.name()).collect();
    let mut load = Load::default();
    let mut warm = [false; WORKERS as usize];
    let mut live: Vec<Session> = (0..128).map(|_| open(&mut load, &mut rng, &system)).collect();
    while load.entries < target {
        let at = rng.below(live.len() as u64) as usize;
        if live[at].length > 0 && rng.below(100) < 3 {
            live[at].worker = rng.below(WORKERS);
        }
        let (session, worker) = (live[at].id, live[at].worker);
        let known = live[at].length.max(SYSTEM);
        let least = if warm[worker as usize] { SYSTEM } else { 0 };
        let mut have = live[at].covered.get(&worker).copied().unwrap_or(least);
        warm[worker as usize] = true;
        let prefilled = known + 16 + rng.below(33) as usize;
        if live[at].length > 0 && rng.below(4) == 0 && load.queries.len() < 40_000 {
            load.queries.push((session, prefilled));
        }
        let mut push = |from: usize, to: usize| {
            load.events.push(Event { worker, session, from, to });
            load.entries += to - from;
        };
        while have < prefilled {
            let to = prefilled.min(have + 256);
            push(have, to);
            have = to;
        }
        for _ in 0..4 + rng.below(17) {
            push(have, have + 1);
            have += 1;
        }
        live[at].length = have;
        live[at].covered.insert(worker, have);
        if have + 72 > LONGEST + 64 {
            live[at] = open(&mut load, &mut rng, &system);
        }
    }
    load
}

fn worker(n: u64) -> NodeId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_le_bytes());
    NodeId(id)
}

fn run_of(load: &Load, event: &Event) -> EventRun {
    EventRun::Stored {
        storage: StorageId(1),
        holder: Holder::Engine(EngineId(0)),
        first: (event.from as u32 + 1) * 64,
        hashes: load.sessions[event.session][event.from..event.to].to_vec(),
    }
}

/// Batches as gossip would deliver them: up to 64 events of one worker.
fn batches(load: &Load) -> Vec<EventBatch> {
    let mut open: BTreeMap<u64, Vec<EventRun>> = BTreeMap::new();
    let mut seqs: BTreeMap<u64, u64> = BTreeMap::new();
    let signature = Keypair::from_seed(&[1; 32]).sign(b"");
    let mut out = Vec::new();
    let mut close = |n: u64, runs: Vec<EventRun>| {
        let seq = seqs.entry(n).or_default();
        *seq += 1;
        out.push(EventBatch {
            origin: worker(n),
            incarnation: Incarnation { counter: 1, nonce: 1 },
            seq: Seq(*seq),
            previous: [0; 32],
            digest: SetDigest::default(),
            payload: wire::encode(&runs).unwrap(),
            signature,
        });
    };
    for event in &load.events {
        let runs = open.entry(event.worker).or_default();
        runs.push(run_of(load, event));
        if runs.len() == 64 {
            close(event.worker, std::mem::take(runs));
        }
    }
    for (n, runs) in open {
        close(n, runs);
    }
    out
}

fn router() -> (Router, IndexReader) {
    let config = Config::new(worker(1_000), Incarnation { counter: 1, nonce: 1 });
    let (router, index, _) = Router::new(config);
    (router, index)
}

fn fill(batches: Vec<EventBatch>) -> (Router, IndexReader) {
    let (mut router, index) = router();
    let mut outbox = Vec::new();
    for batch in batches {
        router.handle(Time::ZERO, In::Learn(Box::new(batch)), &mut outbox);
    }
    (router, index)
}

/// The plain way: one ordered map, one lock would be needed beside a writer.
fn plain(load: &Load) -> BTreeMap<PrefixHash, u64> {
    let mut map = BTreeMap::new();
    for event in &load.events {
        for name in &load.sessions[event.session][event.from..event.to] {
            *map.entry(*name).or_default() |= 1 << event.worker;
        }
    }
    map
}

fn plain_match(map: &BTreeMap<PrefixHash, u64>, prompt: &[PrefixHash], out: &mut Vec<(u64, u32)>) {
    out.clear();
    let (mut live, mut granules) = (u64::MAX, 0);
    for name in prompt {
        let held = map.get(name).copied().unwrap_or(0);
        for lane in 0..WORKERS {
            if granules > 0 && live & !held & (1 << lane) != 0 {
                out.push((lane, granules));
            }
        }
        live &= held;
        if live == 0 {
            return;
        }
        granules += 1;
    }
    out.extend((0..WORKERS).filter(|lane| live & (1 << lane) != 0).map(|lane| (lane, granules)));
}

struct Site {
    load: Load,
    router: Router,
    index: IndexReader,
    plain: BTreeMap<PrefixHash, u64>,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let entries = std::env::var("ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let load = generate(entries);
    let (router, index) = fill(batches(&load));
    Site { plain: plain(&load), load, router, index }
});

impl Site {
    fn prompts(&self) -> impl Iterator<Item = &[PrefixHash]> + Clone {
        self.load.queries.iter().map(|(session, length)| &self.load.sessions[*session][..*length])
    }
}

#[divan::bench]
fn match_prefix(bencher: divan::Bencher<'_, '_>) {
    let mut prompts = SITE.prompts().cycle();
    let mut out: Vec<Run> = Vec::new();
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        SITE.index.match_prefix(prompts.next().unwrap(), &mut out);
        out.len()
    });
}

#[divan::bench]
fn match_plain_map(bencher: divan::Bencher<'_, '_>) {
    let mut prompts = SITE.prompts().cycle();
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        plain_match(&SITE.plain, prompts.next().unwrap(), &mut out);
        out.len()
    });
}

/// Names of the prompt and its match: 18,000 tokens are 1,125 names, 281 granules.
#[divan::bench]
fn hash_and_match(bencher: divan::Bencher<'_, '_>) {
    let namespace = RoutingNamespace {
        weights: [1; 32],
        tokenizer: [2; 32],
        lora: None,
        hash_version: protocol::hash::HASH_VERSION,
    };
    let key = RoutingKey::derive(&namespace, &[0; 32]);
    let tokens: Vec<Token> = (0..18_000).map(Token).collect();
    let mut out: Vec<Run> = Vec::new();
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let names = key.chain(&[], divan::black_box(&tokens));
        SITE.index.match_prefix(&router::index::granules(&names), &mut out);
        out.len()
    });
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn learn_batches(bencher: divan::Bencher<'_, '_>) {
    let load = generate(100_000);
    bencher
        .counter(ItemsCount::new(load.entries))
        .with_inputs(|| batches(&load))
        .bench_local_values(fill);
}

/// Nanoseconds that this thread has run (Linux; elsewhere 0, and rates are then by the wall).
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Runs all prompts thrice: thousand queries per CPU second, p50 and p99 in microseconds.
fn timed(prompts: &[&[PrefixHash]], mut query: impl FnMut(&[PrefixHash]) -> usize) -> String {
    let (mut nanos, before) = (Vec::new(), on_cpu());
    for prompt in [prompts; 3].concat() {
        let start = Instant::now();
        divan::black_box(query(prompt));
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    let spent = match on_cpu() - before {
        0 => nanos.iter().sum(),
        spent => spent,
    };
    let rate = nanos.len() as f64 * 1e6 / spent as f64;
    nanos.sort_unstable();
    let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    format!("{rate:.1} k/s per CPU, p50 {:.2} µs, p99 {:.2} µs", at(0.5), at(0.99))
}

fn report() {
    let site = &*SITE;
    let (mut out, mut naive, mut granules) = (Vec::new(), Vec::new(), 0u64);
    for prompt in site.prompts() {
        site.index.match_prefix(prompt, &mut out);
        plain_match(&site.plain, prompt, &mut naive);
        let mut ours: Vec<u32> = out.iter().map(|run| run.granules).collect();
        let mut theirs: Vec<u32> = naive.iter().map(|run| run.1).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "both indexes must agree");
        granules += u64::from(ours.last().copied().unwrap_or(0));
    }
    let queries = site.load.queries.len();
    let mean = granules as f64 / queries as f64;
    println!("{} entries, {queries} queries, mean match {mean:.0} granules", site.load.entries);
    let prompts: Vec<&[PrefixHash]> = site.prompts().collect();
    let mut matched = |prompt: &[PrefixHash]| {
        site.index.match_prefix(prompt, &mut out);
        out.len()
    };
    println!("index : {}", timed(&prompts, &mut matched));
    let quarters: Vec<&[PrefixHash]> =
        prompts.iter().map(|prompt| &prompt[..prompt.len() / 4]).collect();
    println!("index, first quarter of each prompt: {}", timed(&quarters, &mut matched));
    let plain = timed(&prompts, |prompt| {
        plain_match(&site.plain, prompt, &mut naive);
        naive.len()
    });
    println!("plain : {plain}");
    let stats = site.router.stats();
    println!(
        "{} prefixes, {} pairs, {:.1} bytes per pair, {} sets, {} rebuilds",
        stats.entries,
        stats.pairs,
        stats.bytes as f64 / stats.pairs as f64,
        stats.sets,
        stats.rebuilds
    );
    let input = batches(&site.load);
    let (start, before) = (Instant::now(), on_cpu());
    let filled = fill(input);
    let seconds = match on_cpu() - before {
        0 => start.elapsed().as_secs_f64(),
        spent => spent as f64 / 1e9,
    };
    let events = site.load.events.len() as f64;
    println!(
        "learn : {:.2} M events, {:.2} M granules per CPU second (decoding, digest and index)",
        events / seconds / 1e6,
        filled.0.stats().pairs as f64 / seconds / 1e6
    );
}

fn main() {
    if std::env::args().any(|arg| arg == "report") {
        report();
    } else {
        divan::main();
    }
}
