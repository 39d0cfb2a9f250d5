//! The crash harness: a real node is killed with SIGKILL again and again, at random moments under
//! load and while it starts, on one data folder. After each kill it must start by itself, keep its
//! data within the limit, find what it had promised to keep, and answer as it did when nothing had
//! been cached yet.
//!
//! Two phases. In the first the load fits the disk, so that every block that was on disk before the
//! kill must be there after it. In the second the load is a multiple of the disk, so that the limit
//! and the order of eviction are under fire.

mod books;

use crate::client::{Call, Client, Dialect};
use crate::error::LoadError;
use crate::fleet::{Fleet, FleetOptions};
use books::{Bookshelf, books};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longest single call; a call that a kill cuts ends at once.
const CALL_WITHIN: Duration = Duration::from_secs(30);
/// One kill in so many hits a node that is still starting.
const EARLY: u32 = 4;
/// Longest start after a kill.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How to run the harness.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    /// The `dynamo-node` binary.
    pub binary: PathBuf,
    /// Kills in all, half of them in each phase.
    pub kills: u32,
    /// Seed of prompts and moments.
    pub seed: u64,
    /// Clients at once.
    pub clients: u32,
    /// Longest time between start and kill.
    pub life: Duration,
    /// Limit of the disk tier, in MiB.
    pub nvme_mib: u64,
    /// TOML text of the node's configuration beside the tier's limit.
    pub config: String,
    /// Flags of the node.
    pub args: Vec<String>,
    /// Longest run.
    pub within: Duration,
}

impl CrashOptions {
    /// The defaults of the command line: a mock engine with a small disk tier.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            kills: 100,
            seed: 1,
            clients: 4,
            life: Duration::from_millis(1200),
            nvme_mib: 64,
            config: CONFIG.into(),
            args: vec!["--engine".into(), "mock".into()],
            within: Duration::from_secs(4 * 3600),
        }
    }
}

/// A mock engine whose pool and DRAM are much smaller than the disk tier, so that blocks are really
/// read back from disk.
const CONFIG: &str = "[engine.mock]\nkv_tokens = 4096\nspeedup = 50.0\n\
                      [dram]\nmib = 8\n";

/// What a run saw.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CrashReport {
    /// Seed of the run.
    pub seed: u64,
    /// Kills of a node that served.
    pub kills: u32,
    /// Kills of a node that was still starting.
    pub kills_starting: u32,
    /// Answers compared with the reference.
    pub answers: u64,
    /// Answers that differ from the reference: must be 0.
    pub wrong: u64,
    /// Calls cut by a kill.
    pub cut: u64,
    /// Calls refused or failed while the node lived: must be 0.
    pub failed: u64,
    /// Prompt tokens read back from disk.
    pub nvme_tokens: u64,
    /// Blocks on disk before the kills of the first phase, summed.
    pub blocks_before: u64,
    /// Of these, there after the restart.
    pub blocks_found: u64,
    /// The worst share found after one kill.
    pub worst_warm: f64,
    /// Most bytes of data on disk seen.
    pub data_bytes_max: u64,
    /// Limit of these.
    pub data_bytes_limit: u64,
    /// Median and worst time from spawn to ready, in milliseconds.
    pub restart_ms: [u64; 2],
    /// What went wrong, at most twenty lines.
    pub violations: Vec<String>,
}

impl CrashReport {
    fn violation(&mut self, text: String) {
        if self.violations.len() < 20 {
            self.violations.push(text);
        }
    }

    /// Share of the blocks on disk that were found again, 1 when there were none.
    pub fn warm(&self) -> f64 {
        if self.blocks_before == 0 {
            return 1.0;
        }
        self.blocks_found as f64 / self.blocks_before as f64
    }
}

/// Runs the harness. `say` gets a line now and then.
///
/// # Errors
/// A node that does not start, or a folder that cannot be used. What the node does wrong is in the
/// report instead.
pub async fn crash(
    options: &CrashOptions,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<CrashReport, LoadError> {
    let run = async {
        let mut harness = Harness::start(options).await?;
        let limit = options.nvme_mib << 20;
        let half = options.kills / 2;
        let small = Bookshelf::new(options.seed, books(limit, 1, 2));
        harness.phase(&small, options.kills - half, true, say).await?;
        let large = Bookshelf::new(options.seed + 1, books(limit, 3, 1));
        harness.phase(&large, half, false, say).await?;
        Ok(harness.end())
    };
    tokio::time::timeout(options.within, run)
        .await
        .unwrap_or(Err(LoadError::TooLong(options.within.as_secs())))
}

struct Harness<'a> {
    options: &'a CrashOptions,
    fleet: Fleet,
    client: Client,
    model: String,
    rng: ChaCha8Rng,
    report: CrashReport,
    restarts: Vec<u64>,
}

/// What the clients of one life counted.
#[derive(Default)]
struct Tally {
    answers: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    cut: AtomicU64,
    nvme: AtomicU64,
    /// Set just before the kill: from then on calls may fail.
    killed: AtomicBool,
    /// The first failure on a living node.
    first: OnceLock<String>,
}

impl<'a> Harness<'a> {
    async fn start(options: &'a CrashOptions) -> Result<Self, LoadError> {
        let mut fleet = FleetOptions::new(&options.binary, 1);
        fleet.config =
            format!("{}\n[nvme]\nmib = {}\n", options.config.trim_end(), options.nvme_mib);
        fleet.per_node = vec![crate::fleet::NodeOptions {
            args: options.args.clone(),
            ..crate::fleet::NodeOptions::default()
        }];
        fleet.ready_within = READY_WITHIN;
        let fleet = Fleet::start(fleet).await?;
        let client = Client::new(CALL_WITHIN)?;
        let model = client.models(fleet.node(0).http()).await?;
        let model = model.into_iter().next().unwrap_or_default();
        let report = CrashReport {
            seed: options.seed,
            worst_warm: 1.0,
            data_bytes_limit: options.nvme_mib << 20,
            ..CrashReport::default()
        };
        let rng = ChaCha8Rng::seed_from_u64(options.seed);
        Ok(Self { options, fleet, client, model, rng, report, restarts: Vec::new() })
    }

    fn end(mut self) -> CrashReport {
        self.restarts.sort_unstable();
        let median = self.restarts.get(self.restarts.len() / 2).copied().unwrap_or(0);
        self.report.restart_ms = [median, self.restarts.last().copied().unwrap_or(0)];
        if self.report.warm() < 0.99 {
            let text = format!("only {:.4} of the blocks on disk were found", self.report.warm());
            self.report.violation(text);
        }
        self.report
    }

    /// Kills so often, under a load of these books.
    async fn phase(
        &mut self,
        shelf: &Bookshelf,
        kills: u32,
        fits: bool,
        say: &mut (dyn FnMut(String) + Send),
    ) -> Result<(), LoadError> {
        let shelf = Arc::new(self.reference(shelf).await);
        for kill in 0..kills {
            let before = self.live(&shelf).await?;
            self.check_bytes();
            if self.rng.next_u32().is_multiple_of(EARLY) {
                self.kill_early().await;
            }
            let started = Instant::now();
            self.fleet.node_mut(0).restart().await?;
            self.restarts.push(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
            self.check_bytes();
            let after = self.on_disk().await.unwrap_or(0);
            if fits {
                self.check_warm(before, after);
            }
            if (kill + 1).is_multiple_of(50) {
                say(format!(
                    "{} kills, {} answers equal, {} wrong, warm {:.4}, {} blocks on disk",
                    self.report.kills,
                    self.report.answers,
                    self.report.wrong,
                    self.report.warm(),
                    after
                ));
            }
        }
        Ok(())
    }

    /// Fills in the answers of a node that has nothing of these books.
    async fn reference(&mut self, shelf: &Bookshelf) -> Bookshelf {
        let mut shelf = shelf.clone();
        for page in 0..shelf.len() {
            let mut call = self.call(shelf.prompt(page));
            // Of its own, so that neither reads nor leaves anything that the load will use.
            call.cache_salt = Some(format!("reference-{page}"));
            let outcome = self.client.call(&call).await;
            match outcome.error {
                None => shelf.answered(page, outcome.token_ids),
                Some(error) => self.report.violation(format!("reference {page}: {error}")),
            }
        }
        shelf
    }

    fn call(&self, prompt: String) -> Call {
        let conversation = crate::talk::Conversation::question(prompt);
        let mut call =
            Call::new(self.fleet.node(0).http(), Dialect::Chat, &self.model, conversation);
        call.max_tokens = 8;
        call
    }

    /// Load until the kill, and through it; the blocks on disk just before it.
    async fn live(&mut self, shelf: &Arc<Bookshelf>) -> Result<u64, LoadError> {
        let tally = Arc::new(Tally::default());
        let mut clients = Vec::new();
        for _ in 0..self.options.clients {
            let (client, shelf, tally) = (self.client.clone(), shelf.clone(), tally.clone());
            let (template, seed) = (self.call(String::new()), self.rng.next_u64());
            clients.push(tokio::spawn(read_pages(client, template, shelf, seed, tally)));
        }
        let life = u64::try_from(self.options.life.as_millis()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_millis(self.rng.next_u64() % life)).await;
        let before = self.on_disk().await.unwrap_or(0);
        tally.killed.store(true, Ordering::SeqCst);
        self.fleet.node_mut(0).kill9().await?;
        self.report.kills += 1;
        for client in clients {
            let _ = client.await;
        }
        let take = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.report.answers += take(&tally.answers);
        self.report.wrong += take(&tally.wrong);
        self.report.failed += take(&tally.failed);
        self.report.cut += take(&tally.cut);
        self.report.nvme_tokens += take(&tally.nvme);
        if take(&tally.wrong) > 0 {
            let text = format!("{} answers differ from the reference", take(&tally.wrong));
            self.report.violation(text);
        }
        if let Some(error) = tally.first.get() {
            self.report.violation(format!("a call failed on a living node: {error}"));
        }
        Ok(before)
    }

    /// Starts the node and kills it before it is ready, with luck in the middle of its recovery.
    async fn kill_early(&mut self) {
        let after = Duration::from_millis(self.rng.next_u64() % 120);
        // Dropping the start kills the process.
        let ready = tokio::time::timeout(after, self.fleet.node_mut(0).restart()).await.is_ok();
        if ready {
            let _ = self.fleet.node_mut(0).kill9().await;
        }
        self.report.kills_starting += 1;
        self.check_bytes();
    }

    async fn on_disk(&self) -> Option<u64> {
        let status = self.fleet.status(0).await.ok()?;
        status.nodes.iter().find(|node| node.id == status.me).map(|node| node.blocks.nvme)
    }

    fn check_warm(&mut self, before: u64, after: u64) {
        self.report.blocks_before += before;
        self.report.blocks_found += after.min(before);
        if before > 0 {
            let share = after.min(before) as f64 / before as f64;
            self.report.worst_warm = self.report.worst_warm.min(share);
        }
    }

    fn check_bytes(&mut self) {
        let bytes = data_bytes(&self.fleet.node(0).data_dir().join("nvme"));
        self.report.data_bytes_max = self.report.data_bytes_max.max(bytes);
        if bytes > self.report.data_bytes_limit {
            let limit = self.report.data_bytes_limit;
            self.report.violation(format!("{bytes} bytes of data on disk, the limit is {limit}"));
        }
    }
}

/// One client: reads random pages until the node is killed.
async fn read_pages(
    client: Client,
    template: Call,
    shelf: Arc<Bookshelf>,
    seed: u64,
    tally: Arc<Tally>,
) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    while !tally.killed.load(Ordering::SeqCst) {
        let page = usize::try_from(rng.next_u64()).unwrap_or(0) % shelf.len().max(1);
        let Some(expected) = shelf.answer(page) else { continue };
        let mut call = template.clone();
        call.conversation = crate::talk::Conversation::question(shelf.prompt(page));
        let outcome = client.call(&call).await;
        let count = |counter: &AtomicU64, n| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        match outcome.error {
            Some(_) if tally.killed.load(Ordering::SeqCst) => count(&tally.cut, 1),
            Some(error) => {
                count(&tally.failed, 1);
                let _ = tally.first.set(error.to_string());
            }
            None if outcome.token_ids == expected => count(&tally.answers, 1),
            None => count(&tally.wrong, 1),
        }
        count(&tally.nvme, outcome.cached.nvme);
    }
}

/// Bytes of the files under a folder, the index' own excepted.
fn data_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() && entry.file_name() != "index" => data_bytes(&entry.path()),
            Ok(meta) if meta.is_file() => meta.len(),
            _ => 0,
        })
        .sum()
}
