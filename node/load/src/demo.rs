//! The demo: three nodes serve an agent conversation, one is killed, the talk goes on.
//!
//! Phases: start, conversation, equality (cached, peer-fetched and cold runs give equal tokens),
//! kill, memory. Each check that fails is noted and the demo goes on where it can; the verdict
//! names them all. What cannot go on (nodes that do not start) is a [`LoadError`].

mod equality;
mod screen;
mod talk;

use crate::agents::{AgentOptions, AgentRun, SessionPlan};
use crate::bench::served_model;
use crate::client::Client;
use crate::drive::Driver;
use crate::error::LoadError;
use crate::fleet::{Fleet, FleetOptions, interrupted};
use equality::Equality;
use screen::Screen;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use talk::Talk;

/// Nodes of the demo.
const NODES: usize = 3;
/// Most memory of a node, in bytes.
const RSS_MAX: u64 = 1_300_000_000;
/// Longest single call.
const CALL_WITHIN: Duration = Duration::from_secs(90);
/// The lead's turns before and after the kill; sub-agents work in the middle of the first part.
const TURNS_BEFORE: u32 = 4;
const TURNS_AFTER: u32 = 2;

/// How to run the demo.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The `dynamo-node` binary.
    pub binary: PathBuf,
    /// Model; none takes the node's default.
    pub model: Option<String>,
    /// Whether the nodes are left running for the caller (changes only what is printed).
    pub keep: bool,
    /// Seed of the agents.
    pub seed: u64,
    /// Longest time of the whole demo.
    pub within: Duration,
    /// Environment of every node.
    pub env: Vec<(String, String)>,
    /// Mean pause before a turn.
    pub pause_mean: Duration,
    /// Time that new blocks get to be told to the other nodes, in the first and the second try.
    pub settle: [Duration; 2],
    /// A killed node must be seen as not alive within this time.
    pub gone_within: Duration,
}

impl DemoOptions {
    /// The defaults of the command line.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            model: None,
            keep: false,
            seed: 1,
            within: Duration::from_secs(240),
            env: Vec::new(),
            pause_mean: Duration::from_millis(400),
            settle: [Duration::from_millis(500), Duration::from_secs(3)],
            gone_within: Duration::from_secs(5),
        }
    }

    fn agents(&self) -> AgentOptions {
        AgentOptions {
            seed: self.seed,
            turns: TURNS_BEFORE + TURNS_AFTER,
            result_words: (20, 60),
            output_tokens: (16, 32),
            pause_mean: self.pause_mean,
            ..AgentOptions::default()
        }
    }
}

/// What the demo found, with the nodes that still run.
#[derive(Debug)]
pub struct Demo {
    /// Checks that failed; empty means PASS.
    pub failures: Vec<String>,
    /// The nodes. Dropping it ends them.
    pub fleet: Fleet,
}

impl Demo {
    /// `PASS`, or `FAIL: why`.
    pub fn verdict(&self) -> String {
        if self.failures.is_empty() {
            "PASS".to_owned()
        } else {
            format!("FAIL: {}", self.failures.join("; "))
        }
    }
}

/// Runs the demo and writes what a person wants to see to `out`, without the verdict.
pub async fn demo(options: &DemoOptions, out: &mut (dyn Write + Send)) -> Result<Demo, LoadError> {
    let mut screen = Screen::new(out);
    let run = tokio::time::timeout(options.within, phases(options, &mut screen));
    tokio::select! {
        demo = run => demo.unwrap_or_else(|_| Err(LoadError::TooLong(options.within.as_secs()))),
        () = interrupted() => Err(LoadError::Interrupted),
    }
}

async fn phases(options: &DemoOptions, screen: &mut Screen<'_>) -> Result<Demo, LoadError> {
    let started = Instant::now();
    let fleet = start(options, screen).await?;
    let agents = options.agents();
    let client = Client::new(CALL_WITHIN)?;
    let model = served_model(&client, &fleet).await?;
    let entries = fleet.nodes().iter().map(|node| node.http().to_owned()).collect();
    let driver = Driver::new(client, entries, model, &agents.preamble()).await?;
    screen.line(&format!("        model {}, greedy decoding", driver.model()))?;

    let mut talk = Talk::new(&driver);
    let mut demo = Demo { failures: Vec::new(), fleet };
    let Some(plan) = agents.sessions(1).pop() else {
        return Ok(demo);
    };
    let delegates_at = plan.delegates_at;
    let SessionPlan { lead, subs, .. } = plan;
    let mut lead = AgentRun::new(lead);
    let mut subs: Vec<AgentRun> = subs.into_iter().map(AgentRun::new).collect();

    screen.phase("a lead and two sub-agents talk, each call through another entry node")?;
    talk.head(screen)?;
    for turn in 0..TURNS_BEFORE {
        let mut reports = Vec::new();
        if turn == delegates_at {
            reports = talk.team(&mut subs, &demo.fleet, screen).await?;
        }
        talk.turn(&mut lead, &reports, &demo.fleet, screen).await?;
    }
    talk.check_growth();

    let equality = Equality::new(&driver, &demo.fleet, options);
    let unequal = equality.run(&agents.preamble(), &[&lead, &subs[0]], screen).await?;
    talk.failures.extend(unequal);

    // Memory of the node to be killed is read while it lives.
    memory(&mut demo, &mut talk, screen)?;
    kill(options, &mut demo, &mut talk, &mut lead, screen).await?;
    talk.summary(screen)?;

    demo.failures = std::mem::take(&mut talk.failures);
    next_steps(options, &demo, driver.model(), screen)?;
    screen.phase(&format!("done in {} s", started.elapsed().as_secs()))?;
    Ok(demo)
}

async fn start(options: &DemoOptions, screen: &mut Screen<'_>) -> Result<Fleet, LoadError> {
    screen.phase(&format!("starting {NODES} nodes of {}", options.binary.display()))?;
    let mut fleet = FleetOptions::new(&options.binary, NODES as u32);
    fleet.model.clone_from(&options.model);
    fleet.env.clone_from(&options.env);
    let fleet = Fleet::start(fleet).await?;
    let cluster = fleet.node(0).cluster_id();
    screen.phase(&format!("every node sees all {NODES} alive and serving (cluster {cluster})"))?;
    for node in fleet.nodes() {
        screen.line(&format!(
            "        n{}  {}  cluster port {}  pid {}",
            node.index(),
            node.http(),
            node.cluster_addr().port(),
            node.pid(),
        ))?;
        screen.line(&format!("            {}", node.node_id()))?;
    }
    Ok(fleet)
}

fn memory(demo: &mut Demo, talk: &mut Talk<'_>, screen: &mut Screen<'_>) -> Result<(), LoadError> {
    screen.phase("memory per node")?;
    for node in demo.fleet.nodes() {
        let megabytes = |bytes: Option<u64>| bytes.unwrap_or_default() / 1_000_000;
        let (now, peak) = (node.rss_bytes(), node.peak_rss_bytes());
        screen.line(&format!(
            "        n{}  {} MB resident, {} MB at the peak (limit {} MB)",
            node.index(),
            megabytes(now),
            megabytes(peak),
            RSS_MAX / 1_000_000
        ))?;
        match peak {
            Some(bytes) if bytes <= RSS_MAX => {}
            Some(_) => talk.fail(format!("n{} used {} MB", node.index(), megabytes(peak))),
            None => talk.fail(format!("n{} has ended by itself", node.index())),
        }
    }
    Ok(())
}

/// Kills the node that served the lead last, so that its blocks are gone with it.
async fn kill(
    options: &DemoOptions,
    demo: &mut Demo,
    talk: &mut Talk<'_>,
    lead: &mut AgentRun,
    screen: &mut Screen<'_>,
) -> Result<(), LoadError> {
    let victim =
        talk.last_server(0).and_then(|node| demo.fleet.position(&node)).unwrap_or(NODES - 1);
    let id = demo.fleet.node(victim).node_id().to_owned();
    screen.phase(&format!("kill -9 of n{victim}, which served the lead last"))?;
    demo.fleet.node_mut(victim).kill9().await?;
    talk.dead.insert(victim);
    talk.head(screen)?;
    for turn in 0..TURNS_AFTER {
        if turn > 0 {
            talk.turn(lead, &[], &demo.fleet, screen).await?;
            continue;
        }
        let gone = demo.fleet.wait_gone(&id, options.gone_within);
        let (gone, said) = tokio::join!(gone, talk.turn(lead, &[], &demo.fleet, screen));
        said?;
        match gone {
            Ok(time) => screen.line(&format!(
                "        no node sees n{victim} alive after {:.1} s",
                time.as_secs_f64()
            ))?,
            Err(error) => talk.fail(format!("n{victim} is dead but {error}")),
        }
    }
    for node in demo.fleet.nodes().iter().filter(|node| node.running()) {
        if node.rss_bytes().is_none() {
            talk.fail(format!("n{} has ended by itself:\n{}", node.index(), node.log_tail()));
        }
    }
    Ok(())
}

fn next_steps(
    options: &DemoOptions,
    demo: &Demo,
    model: &str,
    screen: &mut Screen<'_>,
) -> Result<(), LoadError> {
    let alive = demo.fleet.nodes().iter().find(|node| node.running()).filter(|_| options.keep);
    let http = match alive {
        Some(node) => {
            screen.phase("the other nodes keep running until Ctrl-C; try one")?;
            node.http().to_owned()
        }
        None => {
            screen.phase("to try it yourself, start a node and ask it")?;
            let model = options.model.as_ref().map_or(String::new(), |m| format!(" --model {m}"));
            screen.line(&format!("{} start{model}", options.binary.display()))?;
            "http://127.0.0.1:8000".to_owned()
        }
    };
    let lines = [
        format!("curl -N {http}/v1/chat/completions -H 'content-type: application/json' \\"),
        format!("  -d '{{\"model\":\"{model}\",\"max_tokens\":48,\"stream\":true,"),
        "       \"messages\":[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]}'".into(),
        format!("curl {http}/v1/messages -H 'content-type: application/json' \\"),
        format!("  -H 'anthropic-version: 2023-06-01' -d '{{\"model\":\"{model}\","),
        "       \"max_tokens\":48,\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}]}'"
            .into(),
        format!("{} status --node {http}", options.binary.display()),
    ];
    for line in lines {
        screen.line(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
