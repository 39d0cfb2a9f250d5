//! The command line. Flags override `DYNAMO_*` variables, which override the configuration file.

use crate::fault::Fault;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A wrong command line in the form of every failure; none when clap's text is what was asked for.
pub(crate) fn fault(error: &clap::Error) -> Option<Fault> {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked {
        return None;
    }
    // clap writes paragraphs: what is wrong, sometimes a tip, the usage.
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let tip = paragraphs.find_map(|paragraph| paragraph.trim().strip_prefix("tip: "));
    let help =
        tip.unwrap_or("`dynamo-node help` lists the verbs, `dynamo-node VERB --help` its options");
    Some(Fault::usage(message, help.lines().next().unwrap_or_default()))
}

/// Agentic LLM serving, peer to peer: one binary on every machine.
#[derive(Parser, Debug)]
#[command(name = "dynamo-node", version, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start the first node of a cluster, or a known member again.
    Start(NodeArgs),
    /// Start a node that joins the cluster of PEER, or a known member again.
    Join(JoinArgs),
    /// Show the nodes of the cluster.
    Status(StatusArgs),
    /// Make this node leave the cluster and stop.
    Leave(ClientArgs),
    /// Print a ticket: addresses, cluster and issuer, nothing secret.
    Ticket(ClientArgs),
    /// Make a join token and write it to a file (mode 0600).
    Token(TokenArgs),
    /// Ask the router.
    Route {
        /// What to ask.
        #[command(subcommand)]
        command: RouteCommand,
    },
    /// Say why a request's prompt was not cached as far as one would expect: where it left the
    /// earlier prompts of its session, and what was found of the rest.
    WhyMiss(WhyMissArgs),
    /// Measure.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Run whole clusters in virtual time, with faults drawn from a seed, and check everything.
    Sim(SimArgs),
}

/// Options of a node.
#[derive(Args, Debug, Default, Clone)]
pub(crate) struct NodeArgs {
    /// Configuration file (TOML).
    #[arg(long, env = "DYNAMO_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder for identity, membership and blocks.
    #[arg(long, env = "DYNAMO_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// HTTP listener.
    #[arg(long, env = "DYNAMO_HTTP", value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// Cluster listener: one port number, UDP and TCP.
    #[arg(long, env = "DYNAMO_LISTEN", value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address under which other nodes reach the cluster listener (repeatable).
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) advertise: Vec<SocketAddr>,
    /// Separate listener for /admin/v1.
    #[arg(long, env = "DYNAMO_ADMIN", value_name = "ADDR:PORT")]
    pub(crate) admin: Option<SocketAddr>,
    /// Serve HTTP on an address that others can reach, without API keys.
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// Engine: embedded, mock, or none for a node that only takes requests.
    #[arg(long, env = "DYNAMO_ENGINE", value_name = "KIND")]
    pub(crate) engine: Option<String>,
    /// Model: a folder, a GGUF file, a name in the model cache or on the Hugging Face hub (org/name,
    /// org/name@revision, org/name:FILE.gguf), or builtin (for the mock engine).
    #[arg(long, env = "DYNAMO_MODEL", value_name = "NAME|PATH")]
    pub(crate) model: Option<String>,
    /// Site of this node.
    #[arg(long, env = "DYNAMO_SITE", value_name = "NAME")]
    pub(crate) site: Option<String>,
    /// Placement policy.
    #[arg(long, env = "DYNAMO_POLICY", value_name = "NAME")]
    pub(crate) policy: Option<String>,
    /// Log format on stderr: text or json.
    #[arg(long, env = "DYNAMO_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// Give this data folder a new identity (after it was copied to another machine).
    #[arg(long)]
    pub(crate) new_identity: bool,
}

/// Options of `join`.
#[derive(Args, Debug)]
pub(crate) struct JoinArgs {
    /// A member: host:port, multiaddr or ticket.
    pub(crate) peer: String,
    /// File with the join token; without it the variable DYNAMO_JOIN_TOKEN, or a prompt.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Options of the node.
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// Options of verbs that talk to a running node.
#[derive(Args, Debug, Clone)]
pub(crate) struct ClientArgs {
    /// HTTP address of the node.
    #[arg(long, env = "DYNAMO_NODE", default_value = "http://127.0.0.1:8000", value_name = "URL")]
    pub(crate) node: String,
    /// File with the node's admin key, for callers that are not on its machine.
    #[arg(long, env = "DYNAMO_ADMIN_KEY_FILE", value_name = "FILE")]
    pub(crate) admin_key_file: Option<PathBuf>,
}

/// Options of `status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Which node to ask.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `token`.
#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    /// Which node to ask.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Hours until it expires.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24 * 365))]
    pub(crate) hours: u64,
    /// How many nodes it may admit, per admitting member.
    #[arg(long, default_value_t = 16)]
    pub(crate) uses: u32,
    /// Let the nodes it admits admit others.
    #[arg(long)]
    pub(crate) issuer: bool,
}

/// Questions to the router.
#[derive(Subcommand, Debug)]
pub(crate) enum RouteCommand {
    /// Show where a request would go and why. REQUEST.json is a chat or messages body.
    Explain {
        /// The request body.
        request: PathBuf,
        /// Which node to ask.
        #[command(flatten)]
        client: ClientArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Options of `why-miss`.
#[derive(Args, Debug)]
pub(crate) struct WhyMissArgs {
    /// The request, as the header x-request-id of its answer names it.
    pub(crate) request: String,
    /// HTTP address of the node that it was sent to.
    #[arg(long, env = "DYNAMO_NODE", default_value = "http://127.0.0.1:8000", value_name = "URL")]
    pub(crate) node: String,
    /// File with an API key of the tenant, where the node has keys.
    #[arg(long, env = "DYNAMO_API_KEY_FILE", value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Benchmarks.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Agents (lead, sub-agents, tools, pauses) on fresh nodes, per policy and load.
    Agents(BenchAgents),
    /// The NVMe tier beside fio and RocksDB BlobDB, in turns on one file system.
    Store(BenchStore),
    /// What a request costs: CPU time and latency, local and with a hop, short and in long sessions.
    Frontend(BenchFrontend),
    /// A process that only reads requests and answers: what the frontend is measured beside.
    #[command(hide = true)]
    Echo,
}

/// Options of `bench frontend`.
#[derive(Args, Debug)]
pub(crate) struct BenchFrontend {
    /// Short requests at once, one arm each.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: Option<Vec<u32>>,
    /// Short requests of an arm.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) requests: Option<u64>,
    /// Tokens of the sessions' histories, one session each.
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    pub(crate) history: Option<Vec<u32>>,
    /// Measured turns of a session.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) turns: Option<u32>,
    /// Requests after which the memory is looked at; 0 leaves that out.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub(crate) memory_requests: Option<u64>,
    /// Streams that are abandoned before it is looked at again.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub(crate) abandoned: Option<u64>,
    /// A rough look in seconds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bench store`.
#[derive(Args, Debug)]
pub(crate) struct BenchStore {
    /// A folder on the file system to measure; what is made there is removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Sizes of the values in KiB, one arm each.
    #[arg(long, value_delimiter = ',', default_value = "64,1024,4096", value_name = "KIB")]
    pub(crate) kib: Vec<u64>,
    /// MiB written per size, arm and round.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) mib: u64,
    /// Rounds; all arms take turns in each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Threads of each arm.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// Records of the restart and look-up figures.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    pub(crate) records: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bench agents`.
#[derive(Args, Debug)]
pub(crate) struct BenchAgents {
    /// Agent sessions at once, one arm each.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    pub(crate) sessions: Vec<u32>,
    /// Policies, one arm each.
    #[arg(long, value_delimiter = ',', default_value = "round-robin,kv")]
    pub(crate) policy: Vec<String>,
    /// Nodes per arm.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// Model of every node.
    #[arg(long, env = "DYNAMO_MODEL", value_name = "NAME|PATH")]
    pub(crate) model: Option<String>,
    /// Turns of each lead agent.
    #[arg(long, default_value_t = 4)]
    pub(crate) turns: u32,
    /// Seed of the agents' words and pauses.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// Nodes, instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Virtual seconds with load and faults, instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u32>,
    /// Seed of everything that is random.
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(crate) seed: u64,
    /// So many seeds, from --seed on.
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// Scenario (TOML); without it one is drawn from the seed.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Recorded load (JSON lines), instead of generated agents.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Placement policy, instead of the scenario's.
    #[arg(long, value_name = "P")]
    pub(crate) policy: Option<String>,
    /// Print JSON: one report, or one a line.
    #[arg(long)]
    pub(crate) json: bool,
}
