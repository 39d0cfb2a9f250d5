//! Measures the embedded engine: prompt and decode rates of a model, alone and batched, per second
//! of this process's CPU time (busy machines do not count) and of the clock.
//!
//! `cargo run -p engine --example speed -- MODEL [THREADS]`

#![allow(clippy::disallowed_methods)] // measures wall-clock time

use engine::{Embedded, EmbeddedConfig, Engine, Job, storage_namespace};
use protocol::block::{Generation, SlotId, SlotRef};
use protocol::hash::Token;
use protocol::id::{EngineId, NodeId, RequestId};
use protocol::op::{Grant, LeaseId};
use protocol::prompt::{Limits, Sampling, StreamItem};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{Receiver, channel};

const POOL_TOKENS: u32 = 16_384;

fn submit(engine: &Embedded, first_slot: u32, prompt: usize, answer: u32) -> Receiver<StreamItem> {
    let (sink, items) = channel(4096);
    let blocks = (prompt as u32 + answer).div_ceil(16);
    let slot = |slot| SlotRef { slot: SlotId(slot), generation: Generation(1) };
    let grant = Grant {
        lease: LeaseId(u64::from(first_slot)),
        slots: (first_slot..first_slot + blocks).map(slot).collect(),
        ready: 0,
        arriving: vec![],
    };
    let job = Job {
        request: RequestId(u128::from(first_slot)),
        grant,
        prompt: (0..prompt as u32).map(|i| Token(i * 7 % 1000 + 3)).collect::<Vec<_>>().into(),
        resumed: 0,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: answer, stop_tokens: vec![] },
        constraint: None,
        priority: 0,
        arrived: Instant::now(),
        serving_node: NodeId([0; 32]),
        sink,
        guard: Box::new(()),
    };
    if let Err(refusal) = engine.submit(job) {
        eprintln!("refused: {refusal}");
    }
    items
}

/// CPU seconds of this process so far, from Linux's `/proc`.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // User and system time in ticks of 10 ms, the 14th and 15th field of the line.
    let ticks = |text: &str| text.parse::<f64>().unwrap_or_default();
    fields.split_whitespace().skip(11).take(2).map(ticks).sum::<f64>() / 100.0
}

/// A moment, by the clock and by CPU time.
#[derive(Clone, Copy)]
struct Moment(Instant, f64);

impl Moment {
    fn now() -> Self {
        Self(Instant::now(), cpu())
    }

    fn rate(self, until: Self, tokens: usize) -> String {
        let clock = tokens as f64 / (until.0 - self.0).as_secs_f64();
        let cpu = tokens as f64 / (until.1 - self.1).max(0.01);
        format!("{cpu:.0} tok per CPU-s ({clock:.0} tok/s)")
    }
}

/// When the stream starts and when it ends.
fn wait(mut items: Receiver<StreamItem>) -> (Moment, Moment) {
    let mut started = Moment::now();
    while let Some(item) = items.blocking_recv() {
        if matches!(item, StreamItem::Started(_)) {
            started = Moment::now();
        }
    }
    (started, Moment::now())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: speed MODEL [THREADS]")?;
    let threads = args.next().map_or(Ok(1), |text| text.parse())?;
    let begun = Instant::now();
    let model = Arc::new(model::Model::open(Path::new(&path))?);
    println!("model read in {:.2} s", begun.elapsed().as_secs_f64());
    let bytes = storage_namespace(model.config()).block_bytes as usize;
    let dram = kernels::Pool::new(bytes, 1)?;
    let (events, mut told) = channel(1024);
    let mut config = EmbeddedConfig::new(EngineId(0), "speed", Instant::now());
    (config.kv_tokens, config.threads) = (POOL_TOKENS, threads);
    let begun = Instant::now();
    let engine = Embedded::start(model, dram, config, events)?;
    println!("engine loaded in {:.2} s, {threads} threads", begun.elapsed().as_secs_f64());
    let events = std::thread::spawn(move || while told.blocking_recv().is_some() {});

    let context = engine.spec().context as usize;
    for prompt in [64, 512, 1900].into_iter().filter(|prompt| prompt + 64 < context) {
        let begun = Moment::now();
        let (started, ended) = wait(submit(&engine, 0, prompt, 64));
        let (prefill, decode) = (begun.rate(started, prompt), started.rate(ended, 63));
        println!("prompt {prompt}: {prefill}, then decode {decode}");
    }
    let streams: Vec<_> = (0..8).map(|n| submit(&engine, n * 16, 16, 96)).collect();
    let mut ends = streams.into_iter().map(wait);
    let started = ends.next().map_or_else(Moment::now, |(started, _)| started);
    let ended = ends.last().map_or_else(Moment::now, |(_, ended)| ended);
    println!("8 together: decode {}", started.rate(ended, 8 * 95));
    drop(engine);
    events.join().map_err(|_| "the events' reader panicked".into())
}
