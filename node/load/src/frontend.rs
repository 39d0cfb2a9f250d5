//! `bench frontend`: what a request costs a node, beside a process that only echoes bytes.
//!
//! Three nodes run: one with the mock engine at a speed that costs nothing, two that only take
//! requests. Asking the first is the local path; asking the second is one hop; the third has never
//! seen a session. Costs are CPU time of the processes, so that a busy machine and the load
//! generator itself hardly matter; latencies are the clients' and do depend on both.

mod bodies;
mod cpu;
mod echo;
mod model;
mod report;
mod wire;

pub use report::{FrontendReport, Idle, Memory, Path, Short, Turns, Yardsticks};

use crate::error::LoadError;
use crate::fleet::{Fleet, FleetOptions, NodeOptions, interrupted};
use crate::report::Times;
use bodies::Session;
use cpu::CpuTime;
use echo::Echo;
use futures::future::join_all;
use report::rounded;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::Wire;

/// Positions in the fleet: the cluster's first node serves.
const SERVING: usize = 0;
const ENTRY: usize = 1;
const UNSEEN: usize = 2;
/// Name of the model's folder.
const MODEL: &str = "bench-bpe";
/// Different questions of the memory part: as many as the caches hold anyway.
const QUESTIONS: u64 = 2_000;
/// Longest single answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Turns before the measured ones.
const TURNS_BEFORE: u32 = 2;

/// Next to no tiers below the engine: what they cost is measured elsewhere.
const CONFIG: &str = "[dram]\nmib = 1\n[nvme]\nmib = 0\n[engine.mock]\nspeedup = 1000.0\n\
                      answer_tokens = 4096\nkv_tokens = 1048576\nblock_kib = 1024\n";

/// What to measure.
#[derive(Debug, Clone)]
pub struct FrontendOptions {
    /// The `dynamo-node` binary.
    pub binary: PathBuf,
    /// How it was built, for the report.
    pub profile: String,
    /// Short requests at once, one arm each.
    pub concurrency: Vec<u32>,
    /// Short requests of an arm; the streamed arms take a tenth.
    pub requests: u64,
    /// Longest time of an arm; what is done by then counts.
    pub arm_within: Duration,
    /// Histories in tokens, one session each.
    pub history: Vec<u32>,
    /// Measured turns of a session.
    pub turns: u32,
    /// Requests of the memory part.
    pub memory_requests: u64,
    /// Abandoned streams of the memory part.
    pub abandoned: u64,
}

impl FrontendOptions {
    /// The whole measurement: a few minutes.
    pub fn new(binary: impl Into<PathBuf>, profile: &str) -> Self {
        Self {
            binary: binary.into(),
            profile: profile.to_owned(),
            concurrency: vec![1, 32, 256],
            requests: 10_000,
            arm_within: Duration::from_secs(20),
            history: vec![10_000, 30_000, 100_000],
            turns: 20,
            memory_requests: 100_000,
            abandoned: 10_000,
        }
    }

    /// A short look, in seconds: the figures are rough.
    pub fn quick(self) -> Self {
        Self {
            concurrency: vec![1, 8],
            requests: 200,
            arm_within: Duration::from_secs(5),
            history: vec![2_000, 8_000],
            turns: 3,
            memory_requests: 400,
            abandoned: 40,
            ..self
        }
    }
}

/// Measures, and tells the progress line by line. A signal ends the nodes and the run.
pub async fn bench_frontend(
    options: &FrontendOptions,
    mut progress: impl FnMut(&str),
) -> Result<FrontendReport, LoadError> {
    let started = Instant::now();
    let mut say = |text: &str| progress(&format!("[{:>4}s] {text}", started.elapsed().as_secs()));
    tokio::select! {
        report = measure(options, &mut say) => report,
        () = interrupted() => Err(LoadError::Interrupted),
    }
}

async fn measure(
    options: &FrontendOptions,
    say: &mut impl FnMut(&str),
) -> Result<FrontendReport, LoadError> {
    say("starting three nodes and the echo");
    let bench = Bench::start(options).await?;
    let mut report = FrontendReport {
        profile: options.profile.clone(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        idle_ms_s: bench.idle().await,
        short: Vec::new(),
        turns: Vec::new(),
        memory: Vec::new(),
        yardsticks: Yardsticks::default(),
    };
    for concurrency in &options.concurrency {
        for (answer, path) in [
            ("whole", Path::Echo),
            ("whole", Path::Local),
            ("whole", Path::Hop),
            ("stream", Path::Local),
            ("stream", Path::Hop),
        ] {
            say(&format!("{answer}, {path:?}, {concurrency} at once"));
            let mut short = bench.short(answer, path, *concurrency).await?;
            short.of_echo = match (answer, path) {
                ("whole", Path::Local | Path::Hop) => {
                    let echo = report.echo_us(*concurrency).filter(|us| *us > 0.0);
                    echo.map(|us| rounded(short.entry_us / us))
                }
                _ => None,
            };
            report.short.push(short);
        }
    }
    for (seed, tokens) in (1..).zip(&options.history) {
        say(&format!("a session of {tokens} tokens"));
        report.turns.push(bench.turns(seed, *tokens).await?);
    }
    bench.memory(&mut report.memory, say).await?;
    Ok(report)
}

/// The processes that are measured.
struct Bench<'a> {
    options: &'a FrontendOptions,
    fleet: Fleet,
    echo: Echo,
    model: String,
    /// Questions asked so far: each is new.
    asked: AtomicU64,
}

/// A CPU meter over some processes.
struct Meter(Vec<(u32, CpuTime)>);

impl Meter {
    fn start(pids: &[u32]) -> Result<Self, LoadError> {
        let read = |pid: &u32| Ok((*pid, cpu(*pid)?));
        pids.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Milliseconds of CPU time of each process since the start.
    fn read_ms(&self) -> Result<Vec<f64>, LoadError> {
        let used =
            |(pid, before): &(u32, CpuTime)| Ok(cpu(*pid)?.since(before).as_secs_f64() * 1000.0);
        self.0.iter().map(used).collect()
    }
}

fn cpu(pid: u32) -> Result<CpuTime, LoadError> {
    CpuTime::of(pid).ok_or_else(|| {
        let gone = std::io::Error::other(format!("process {pid} has ended"));
        LoadError::io("read CPU times in /proc")(gone)
    })
}

/// What a run of requests came to.
struct Outcome {
    done: u64,
    failed: u64,
    times: Times,
    took: Duration,
}

/// Asks with `concurrency` connections until `count` requests are done or the time is over.
async fn drive(
    host: SocketAddr,
    concurrency: u32,
    count: u64,
    within: Duration,
    request: impl Fn(u64) -> Vec<u8>,
) -> Outcome {
    let (started, next) = (Instant::now(), AtomicU64::new(0));
    let worker = async || {
        let (mut times, mut failed, mut done, mut wire) = (Times::default(), 0u64, 0u64, None);
        while started.elapsed() < within {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let request = request(number);
            let mut open = match wire.take() {
                Some(open) => open,
                None => match Wire::connect(host).await {
                    Ok(open) => open,
                    Err(_) => {
                        failed += 1;
                        continue;
                    }
                },
            };
            let sent = Instant::now();
            match tokio::time::timeout(ANSWER_WITHIN, open.ask(&request)).await {
                Ok(Ok(_)) => {
                    times.add(sent.elapsed());
                    done += 1;
                    wire = Some(open);
                }
                // The next request takes a fresh connection.
                Ok(Err(_)) | Err(_) => failed += 1,
            }
        }
        (times, done, failed)
    };
    let parts = join_all((0..concurrency).map(|_| worker())).await;
    let mut outcome =
        Outcome { done: 0, failed: 0, times: Times::default(), took: started.elapsed() };
    for (times, done, failed) in parts {
        outcome.done += done;
        outcome.failed += failed;
        outcome.times.merge(&times);
    }
    outcome
}

fn host(http: &str) -> Result<SocketAddr, LoadError> {
    http.trim_start_matches("http://").parse().map_err(|_| LoadError::Answer {
        url: http.to_owned(),
        reason: "no address of the form http://IP:PORT".into(),
    })
}

fn per(ms: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { ms / count as f64 }
}

impl<'a> Bench<'a> {
    async fn start(options: &'a FrontendOptions) -> Result<Self, LoadError> {
        let root = tempfile::Builder::new().prefix("dynamo-frontend-").tempdir();
        let root = root.map_err(LoadError::io("make a temporary folder"))?;
        let model = root.path().join(MODEL);
        model::write(&model)?;
        let mut fleet = FleetOptions::new(&options.binary, 3);
        fleet.model = Some(model.display().to_string());
        fleet.config = CONFIG.into();
        let node = |engine: &str| NodeOptions {
            args: vec!["--engine".into(), engine.into()],
            serving: engine != "none",
            ..NodeOptions::default()
        };
        fleet.per_node = vec![node("mock"), node("none"), node("none")];
        // The nodes have read the model when they are ready.
        let fleet = Fleet::start(fleet).await?;
        let echo = Echo::start(&options.binary).await?;
        Ok(Self { options, fleet, echo, model: MODEL.into(), asked: AtomicU64::new(0) })
    }

    fn pid(&self, node: usize) -> u32 {
        self.fleet.node(node).pid()
    }

    fn host(&self, node: usize) -> Result<SocketAddr, LoadError> {
        host(self.fleet.node(node).http())
    }

    async fn idle(&self) -> Idle {
        let second = self.options.arm_within.min(Duration::from_secs(3));
        let Ok(meter) = Meter::start(&[self.pid(ENTRY), self.pid(SERVING)]) else {
            return Idle::default();
        };
        tokio::time::sleep(second).await;
        let used = meter.read_ms().unwrap_or_default();
        let rate =
            |at: usize| rounded(used.get(at).copied().unwrap_or_default() / second.as_secs_f64());
        Idle { entry: rate(0), serving: rate(1) }
    }

    /// One arm of short requests.
    async fn short(&self, answer: &str, path: Path, concurrency: u32) -> Result<Short, LoadError> {
        let (host, pids) = match path {
            Path::Echo => (self.echo.host(), vec![self.echo.pid()]),
            Path::Local => (self.host(SERVING)?, vec![self.pid(SERVING)]),
            Path::Hop => (self.host(ENTRY)?, vec![self.pid(ENTRY), self.pid(SERVING)]),
        };
        let (body, share): (fn(&str, u64) -> String, u64) = match answer {
            "stream" => (bodies::stream, 10),
            _ => (bodies::short, 1),
        };
        let request = |_| {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            wire::post(host, "/v1/chat/completions", None, &body(&self.model, number))
        };
        let count = (self.options.requests / share).max(u64::from(concurrency));
        // Connections, threads and caches are warm when it counts.
        drive(host, concurrency, count / 10, self.options.arm_within, &request).await;
        let meter = Meter::start(&pids)?;
        let outcome = drive(host, concurrency, count, self.options.arm_within, &request).await;
        let used = meter.read_ms()?;
        let us = |at: usize| used.get(at).map(|ms| rounded(per(ms * 1000.0, outcome.done)));
        Ok(Short {
            answer: answer.to_owned(),
            path,
            concurrency,
            requests: outcome.done,
            failed: outcome.failed,
            entry_us: us(0).unwrap_or_default(),
            serving_us: us(1),
            of_echo: None,
            latency_ms: outcome.times.percentiles(),
            per_s: (outcome.done as f64 / outcome.took.as_secs_f64()).round(),
        })
    }

    /// One session: its first request, then turn after turn.
    async fn turns(&self, seed: u64, tokens: u32) -> Result<Turns, LoadError> {
        let name = format!("bench-{seed}");
        let mut session = Session::new(seed);
        session.grow(tokens);
        let mut bodies = Vec::new();
        for _ in 0..=TURNS_BEFORE + self.options.turns {
            bodies.push(session.request(&self.model));
            session.turn();
        }
        let ask = async |host: SocketAddr, pids: &[u32], bodies: &[String]| {
            let requests: Vec<Vec<u8>> = bodies
                .iter()
                .map(|body| wire::post(host, "/v1/chat/completions", Some(&name), body))
                .collect();
            let failed = LoadError::io("ask a node for the next turn");
            let (mut wire, mut times) = match Wire::connect(host).await {
                Ok(wire) => (wire, Times::default()),
                Err(error) => return Err(failed(error)),
            };
            let mut last = Vec::new();
            let meter = Meter::start(pids)?;
            for request in &requests {
                let sent = Instant::now();
                match wire.ask(request).await {
                    Ok(body) => last = body.to_vec(),
                    Err(error) => return Err(failed(error)),
                }
                times.add(sent.elapsed());
            }
            let used = meter.read_ms()?;
            let answer: serde_json::Value = serde_json::from_slice(&last).unwrap_or_default();
            Ok((used, times, answer["usage"]["prompt_tokens"].as_u64().unwrap_or_default()))
        };
        let (entry, pids) = (self.host(ENTRY)?, [self.pid(ENTRY), self.pid(SERVING)]);
        let (first, rest) = bodies.split_at(1);
        let (before, rest) = rest.split_at(TURNS_BEFORE as usize);
        let (first_used, ..) = ask(entry, &pids, first).await?;
        let (_, _, tokens_before) = ask(entry, &pids, before).await?;
        let (used, times, tokens) = ask(entry, &pids, rest).await?;
        let last = &rest[rest.len().saturating_sub(1)..];
        let (unseen, ..) = ask(self.host(UNSEEN)?, &[self.pid(UNSEEN)], last).await?;
        let (echo, ..) = ask(self.echo.host(), &[self.echo.pid()], rest).await?;
        let turns = u64::from(self.options.turns);
        let fresh = |turn: u64| bodies::alone(&self.model, seed << 32 | turn);
        let fresh: Vec<String> = (0..turns).map(fresh).collect();
        let (alone, ..) = ask(entry, &pids, &fresh).await?;
        let one = |used: &[f64], at: usize| used.get(at).copied().unwrap_or_default();
        Ok(Turns {
            tokens,
            body_bytes: rest.last().map_or(0, String::len),
            turns: self.options.turns,
            new_tokens: tokens.saturating_sub(tokens_before) / turns.max(1),
            entry_ms: rounded(per(one(&used, 0), turns)),
            serving_ms: rounded(per(one(&used, 1), turns)),
            alone_ms: rounded(per(one(&alone, 0), turns)),
            first_ms: rounded(one(&first_used, 0)),
            unseen_ms: rounded(one(&unseen, 0)),
            echo_ms: rounded(per(one(&echo, 0), turns)),
            latency_ms: times.percentiles(),
        })
    }

    /// Resident memory while many requests come and streams are abandoned. The questions repeat, so
    /// that what is cached of them does not grow: what still does is a leak.
    async fn memory(
        &self,
        out: &mut Vec<Memory>,
        say: &mut impl FnMut(&str),
    ) -> Result<(), LoadError> {
        const PARTS: u64 = 4;
        const AT_ONCE: u32 = 32;
        let host = self.host(ENTRY)?;
        let model = &self.model;
        let note = |requests: u64, abandoned: u64| {
            let mib = |node: usize| {
                let bytes = self.fleet.node(node).rss_bytes().unwrap_or_default();
                (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0
            };
            Memory { requests, abandoned, entry_mib: mib(ENTRY), serving_mib: mib(SERVING) }
        };
        let within = self.options.arm_within * 3;
        let ask = async |count: u64| {
            let request = |number: u64| {
                let body = bodies::short(model, number % QUESTIONS);
                wire::post(host, "/v1/chat/completions", None, &body)
            };
            drive(host, AT_ONCE, count, within, request).await.done
        };
        ask(QUESTIONS.min(self.options.memory_requests)).await;
        out.push(note(0, 0));
        let mut requests = 0;
        for part in 1..=PARTS {
            say(&format!("memory: requests, part {part} of {PARTS}"));
            requests += ask(self.options.memory_requests / PARTS).await;
            out.push(note(requests, 0));
        }
        let mut abandoned = 0;
        for part in 1..=PARTS {
            say(&format!("memory: abandoned streams, part {part} of {PARTS}"));
            let (started, next) = (Instant::now(), AtomicU64::new(0));
            let count = self.options.abandoned / PARTS;
            let worker = async || {
                let mut done = 0u64;
                while started.elapsed() < within {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let body = bodies::abandoned(model, number % QUESTIONS);
                    let request = wire::post(host, "/v1/chat/completions", None, &body);
                    let abandon = async { Wire::connect(host).await?.abandon(&request).await };
                    let ended = tokio::time::timeout(ANSWER_WITHIN, abandon).await;
                    done += u64::from(matches!(ended, Ok(Ok(()))));
                }
                done
            };
            abandoned += join_all((0..AT_ONCE).map(|_| worker())).await.iter().sum::<u64>();
            out.push(note(requests, abandoned));
        }
        Ok(())
    }
}
