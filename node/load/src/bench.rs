//! `bench agents`: agent sessions on fresh nodes, one arm per policy and load.

use crate::agents::AgentOptions;
use crate::client::Client;
use crate::drive::{Driver, Record};
use crate::error::LoadError;
use crate::fleet::{Fleet, FleetOptions, interrupted};
use crate::report::{Arm, Recorder, Report};
use futures::future::join_all;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Longest single call.
const CALL_WITHIN: Duration = Duration::from_secs(180);
/// Records on their way to the recorder.
const RECORDS: usize = 64;
/// At most so often a line of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The `dynamo-node` binary.
    pub binary: PathBuf,
    /// Sessions at once; one arm each.
    pub sessions: Vec<u32>,
    /// Policies; one arm each.
    pub policies: Vec<String>,
    /// Nodes of each arm.
    pub nodes: u32,
    /// Model of every node; none takes the node's default.
    pub model: Option<String>,
    /// Turns of each lead.
    pub turns: u32,
    /// Seed of the agents.
    pub seed: u64,
    /// Mean pause before a turn.
    pub pause_mean: Duration,
    /// Longest time of an arm's calls. What is not answered by then counts as failed.
    pub arm_within: Duration,
    /// TOML text in every node's configuration file.
    pub config: String,
    /// Environment of every node.
    pub env: Vec<(String, String)>,
}

impl BenchOptions {
    /// The defaults of the command line: 1 and 8 sessions, `round-robin` and `kv`, three nodes.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            sessions: vec![1, 8],
            policies: vec!["round-robin".into(), "kv".into()],
            nodes: 3,
            model: None,
            turns: 4,
            seed: 1,
            pause_mean: AgentOptions::default().pause_mean,
            arm_within: Duration::from_secs(600),
            config: String::new(),
            env: Vec::new(),
        }
    }
}

/// Runs every arm, one after the other, each on fresh nodes, and tells its progress line by line.
/// A signal ends the nodes and the run.
pub async fn bench_agents(
    options: &BenchOptions,
    mut progress: impl FnMut(&str),
) -> Result<Report, LoadError> {
    tokio::select! {
        report = arms(options, &mut progress) => report,
        () = interrupted() => Err(LoadError::Interrupted),
    }
}

async fn arms(
    options: &BenchOptions,
    progress: &mut impl FnMut(&str),
) -> Result<Report, LoadError> {
    let started = Instant::now();
    let mut arms = Vec::new();
    let total = options.sessions.len() * options.policies.len();
    for sessions in &options.sessions {
        for policy in &options.policies {
            let name = format!("arm {} of {total}: {policy}, {sessions} sessions", arms.len() + 1);
            let mut say = |text: &str| {
                progress(&format!("[{:>4}s] {name}: {text}", started.elapsed().as_secs()));
            };
            arms.push(arm(options, policy, *sessions, &mut say).await?);
        }
    }
    Ok(Report { arms })
}

async fn arm(
    options: &BenchOptions,
    policy: &str,
    sessions: u32,
    say: &mut impl FnMut(&str),
) -> Result<Arm, LoadError> {
    say(&format!("starting {} nodes", options.nodes));
    let mut fleet = FleetOptions::new(&options.binary, options.nodes);
    fleet.model.clone_from(&options.model);
    fleet.policy = Some(policy.to_owned());
    fleet.config.clone_from(&options.config);
    fleet.env.clone_from(&options.env);
    let fleet = Fleet::start(fleet).await?;

    let agents = AgentOptions {
        turns: options.turns,
        seed: options.seed,
        pause_mean: options.pause_mean,
        ..AgentOptions::default()
    };
    let planned = u64::from(agents.calls_per_session()) * u64::from(sessions);
    let client = Client::new(CALL_WITHIN)?;
    let entries: Vec<String> = fleet.nodes().iter().map(|node| node.http().to_owned()).collect();
    let model = served_model(&client, &fleet).await?;
    let driver = Driver::new(client, entries, model, &agents.preamble()).await?;

    let (sink, records) = mpsc::channel(RECORDS);
    let run = async {
        let plans = agents.sessions(sessions);
        join_all(plans.into_iter().map(|plan| driver.session(plan, &sink))).await;
        drop(sink);
    };
    let mut recorder = Recorder::new(policy, sessions, planned);
    let collect = collect(records, planned, &mut recorder, say);
    let both = async { tokio::join!(run, collect) };
    if tokio::time::timeout(options.arm_within, both).await.is_err() {
        say(&format!("stopped after {} s", options.arm_within.as_secs()));
    }
    Ok(recorder.arm())
}

/// Records calls until the last agent is done, and tells the progress.
async fn collect(
    mut records: mpsc::Receiver<Record>,
    planned: u64,
    recorder: &mut Recorder,
    say: &mut impl FnMut(&str),
) {
    let mut told = Instant::now();
    let (mut done, mut failed) = (0u64, 0u64);
    while let Some(record) = records.recv().await {
        recorder.add(&record.outcome, record.ceiling_tokens);
        done += 1;
        if let Some(error) = &record.outcome.error {
            failed += 1;
            say(&format!("a call through node {} failed: {error}", record.entry));
        }
        if told.elapsed() >= PROGRESS_EVERY || done == planned {
            told = Instant::now();
            say(&format!("{done} of {planned} calls, {failed} failed"));
        }
    }
}

/// The model that the first node serves.
pub(crate) async fn served_model(client: &Client, fleet: &Fleet) -> Result<String, LoadError> {
    let http = fleet.node(0).http();
    client.models(http).await?.into_iter().next().ok_or_else(|| LoadError::Answer {
        url: format!("{http}/v1/models"),
        reason: "no model is served".into(),
    })
}

#[cfg(test)]
mod tests;
