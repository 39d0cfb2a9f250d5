//! One typed configuration, read once at the edge and passed on in parts.

mod mock;
mod nvme;

pub(crate) use mock::MockSettings;
pub(crate) use nvme::{NvmeSettings, NvmeSize};

use crate::cli::NodeArgs;
use crate::fault::Fault;
use crate::files::read_text;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything a node can be told. `deploy/dynamo-node.toml` documents every key.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) node: NodeConfig,
    pub(crate) http: HttpConfig,
    pub(crate) cluster: ClusterConfig,
    pub(crate) gossip: GossipConfig,
    pub(crate) placement: PlacementConfig,
    pub(crate) engine: EngineConfig,
    pub(crate) dram: DramConfig,
    pub(crate) nvme: NvmeSettings,
    pub(crate) transfer: TransferConfig,
    pub(crate) log: LogConfig,
}

/// `[node]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Folder for identity, membership and blocks.
    pub(crate) data_dir: PathBuf,
    /// Site name.
    pub(crate) site: String,
}

/// `[http]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// Listener.
    pub(crate) listen: SocketAddr,
    /// Separate listener for /admin/v1.
    pub(crate) admin_listen: Option<SocketAddr>,
    /// File of tenants and their API keys.
    pub(crate) keys: Option<PathBuf>,
    /// PEM file of the certificate chain of `listen`; with `tls_key`.
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of its private key.
    pub(crate) tls_key: Option<PathBuf>,
    /// Allow a non-loopback listener without API keys.
    pub(crate) insecure: bool,
    /// Longest request body.
    pub(crate) max_body_mib: u32,
    /// Silence after which a connection without a whole request is closed.
    pub(crate) idle_s: u64,
    /// How long stored responses are kept.
    pub(crate) responses_h: u64,
}

impl HttpConfig {
    /// The URL of a listener at `address`.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }
}

/// `[cluster]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterConfig {
    /// Listener, UDP and TCP.
    pub(crate) listen: SocketAddr,
    /// Addresses others use; empty means the listener's own.
    pub(crate) advertise: Vec<SocketAddr>,
}

/// `[gossip]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GossipConfig {
    /// Between heartbeats.
    pub(crate) heartbeat_ms: u64,
    /// Silence until a member is suspect.
    pub(crate) suspect_ms: u64,
    /// Silence until a member is dead.
    pub(crate) dead_ms: u64,
    /// Between batches of block events.
    pub(crate) batch_ms: u64,
}

/// `[placement]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PlacementConfig {
    /// Policy.
    pub(crate) policy: String,
    /// Take this bandwidth between nodes instead of the measured one; 0 measures.
    pub(crate) assume_bandwidth_mb_s: f64,
    /// Take this prefill rate instead of the measured one; 0 measures.
    pub(crate) assume_prefill_tokens_s: f64,
}

/// `[engine]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EngineConfig {
    /// Kind: `embedded`, `mock` or `none`.
    pub(crate) kind: String,
    /// Model; empty takes the kind's own.
    pub(crate) model: String,
    /// Served name; empty takes the model's.
    pub(crate) served_name: String,
    /// Other names that it answers to.
    pub(crate) aliases: Vec<String>,
    /// How the model writes reasoning and calls; empty finds out.
    pub(crate) format: String,
    /// Compute threads.
    pub(crate) threads: usize,
    /// Tokens the engine's KV pool holds.
    pub(crate) kv_tokens: u32,
    /// Sequences in one step.
    pub(crate) max_batch: usize,
    /// Prompt tokens in one step.
    pub(crate) prefill_chunk: usize,
    /// Of the mock engine.
    pub(crate) mock: MockSettings,
}

/// `[dram]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DramConfig {
    /// Size of the DRAM tier.
    pub(crate) mib: u64,
}

/// `[transfer]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransferConfig {
    /// Use QUIC over UDP, and TLS-TCP where it does not get through; false uses TLS-TCP only.
    pub(crate) udp: bool,
    /// Send blocks no faster than this; 0 sends as fast as possible.
    pub(crate) throttle_mb_s: f64,
}

/// `[log]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// `text` or `json`.
    pub(crate) format: String,
    /// Filter, as `info` or `info,gossip=debug`.
    pub(crate) level: String,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { data_dir: default_data_dir(), site: "default".into() }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            admin_listen: None,
            keys: None,
            tls_cert: None,
            tls_key: None,
            insecure: false,
            max_body_mib: 32,
            idle_s: 60,
            responses_h: 720,
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 7600)), advertise: Vec::new() }
    }
}

impl Default for GossipConfig {
    fn default() -> Self {
        Self { heartbeat_ms: 500, suspect_ms: 2000, dead_ms: 4000, batch_ms: 50 }
    }
}

impl Default for PlacementConfig {
    fn default() -> Self {
        Self { policy: "kv".into(), assume_bandwidth_mb_s: 0.0, assume_prefill_tokens_s: 0.0 }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            kind: "embedded".into(),
            model: String::new(),
            served_name: String::new(),
            aliases: Vec::new(),
            format: String::new(),
            threads: 1,
            kv_tokens: 6144,
            max_batch: 8,
            prefill_chunk: 64,
            mock: MockSettings::default(),
        }
    }
}

impl Default for DramConfig {
    fn default() -> Self {
        Self { mib: 256 }
    }
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self { udp: true, throttle_mb_s: 0.0 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: "text".into(), level: "info".into() }
    }
}

fn default_data_dir() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/var/lib"), PathBuf::from);
    std::env::var_os("XDG_DATA_HOME")
        .map_or_else(|| home.join(".local/share"), PathBuf::from)
        .join("dynamo-node")
}

/// Parses a configuration file's text; errors name the key, and for an unknown key the nearest
/// known one.
pub(crate) fn parse(text: &str, file: &Path) -> Result<Config, Fault> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().to_owned();
        let place = error.span().map_or(String::new(), |span| {
            let line = text.get(..span.start).unwrap_or("").matches('\n').count();
            let key = text.lines().nth(line).and_then(|line| line.split_once('='));
            let key = key.map_or(String::new(), |(key, _)| format!(" `{}`", key.trim()));
            format!(" line {}{key}", line + 1)
        });
        let help = nearest_key(&message).map_or_else(
            || "see deploy/dynamo-node.toml for every key, its unit and its default".to_owned(),
            |key| format!("did you mean `{key}`? deploy/dynamo-node.toml documents every key"),
        );
        Fault::usage(format!("{}{place}: {message}", file.display()), help)
    })
}

/// From serde's "unknown field `a`, expected one of `b`, `c`", the name nearest to `a`.
fn nearest_key(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown field") {
        return None;
    }
    let unknown = names.next()?.to_owned();
    names
        .map(|known| (strsim::jaro_winkler(&unknown, known), known.to_owned()))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

impl Config {
    /// File, then variables and flags (clap has merged those two), then checks.
    pub(crate) fn load(args: &NodeArgs) -> Result<Self, Fault> {
        let mut config = match &args.config {
            None => Self::default(),
            Some(file) => {
                let text = read_text(file).map_err(|error| {
                    Fault::usage(
                        format!("cannot read the configuration file {}: {error}", file.display()),
                        "check the path given with --config",
                    )
                })?;
                parse(&text, file)?
            }
        };
        config.apply(args);
        config.check()?;
        Ok(config)
    }

    fn apply(&mut self, args: &NodeArgs) {
        fn set<T: Clone>(place: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *place = value.clone();
            }
        }
        set(&mut self.node.data_dir, args.data_dir.as_ref());
        set(&mut self.node.site, args.site.as_ref());
        set(&mut self.http.listen, args.http.as_ref());
        if args.admin.is_some() {
            self.http.admin_listen = args.admin;
        }
        self.http.insecure |= args.insecure_http;
        set(&mut self.cluster.listen, args.listen.as_ref());
        if !args.advertise.is_empty() {
            self.cluster.advertise.clone_from(&args.advertise);
        }
        set(&mut self.engine.kind, args.engine.as_ref());
        set(&mut self.engine.model, args.model.as_ref());
        set(&mut self.placement.policy, args.policy.as_ref());
        set(&mut self.log.format, args.log_format.as_ref());
    }

    fn check(&self) -> Result<(), Fault> {
        self.check_addresses()?;
        self.check_choices()?;
        self.check_numbers()
    }

    fn check_addresses(&self) -> Result<(), Fault> {
        let usage = |message: String, help: &str| Err(Fault::usage(message, help));
        let exposed = |addr: &SocketAddr| !addr.ip().is_loopback();
        if exposed(&self.http.listen) && !self.http.insecure && self.http.keys.is_none() {
            return usage(
                format!("{} can be reached by others and no API keys are set", self.http.listen),
                "name a file of API keys with http.keys, listen on 127.0.0.1, or pass --insecure-http when \
                 the network itself is trusted",
            );
        }
        if self.http.admin_listen.as_ref().is_some_and(exposed) && !self.http.insecure {
            return usage(
                "the admin listener can be reached by others".into(),
                "let --admin listen on 127.0.0.1, or pass --insecure-http when the network is trusted",
            );
        }
        if self.http.tls_cert.is_some() != self.http.tls_key.is_some() {
            return usage(
                "http.tls_cert and http.tls_key go together, and one is missing".into(),
                "name both PEM files, or none",
            );
        }
        if self.http.tls_cert.is_some() && self.http.admin_listen.is_none() {
            return usage(
                "with TLS the admin verbs need a listener of their own".into(),
                "set --admin 127.0.0.1:PORT, and give that address to --node of status and the like",
            );
        }
        let reachable = |addr: &SocketAddr| addr.port() != 0 && !addr.ip().is_unspecified();
        if self.cluster.listen.port() == 0 || !self.cluster.advertise.iter().all(reachable) {
            return usage(
                "others cannot reach port 0 or an unspecified address".into(),
                "give --listen and --advertise the port and address that other nodes use",
            );
        }
        let last = |addr: &SocketAddr| addr.port() == u16::MAX;
        if last(&self.cluster.listen) || self.cluster.advertise.iter().any(last) {
            return usage(
                "65535 cannot be the cluster port: the next number is used too".into(),
                "give --listen and --advertise a lower port",
            );
        }
        if self.cluster.listen.ip().is_unspecified() && self.cluster.advertise.is_empty() {
            return usage(
                format!("{} does not say how others reach this node", self.cluster.listen),
                "add --advertise ADDR:PORT with the address other nodes use",
            );
        }
        Ok(())
    }

    fn check_choices(&self) -> Result<(), Fault> {
        let usage = |message: String, help: &str| Err(Fault::usage(message, help));
        match self.engine.kind.as_str() {
            "embedded" | "mock" | "none" => {}
            kind @ ("vllm" | "sglang") => {
                return usage(
                    format!("the engine {kind:?} is not part of this version yet"),
                    "use --engine embedded, mock or none",
                );
            }
            other => {
                return usage(
                    format!("unknown engine {other:?}"),
                    "use --engine embedded, mock or none",
                );
            }
        }
        if let Err(error) = self.placement.policy.parse::<router::Policy>() {
            return usage(error.to_string(), "choose one of the policies named above");
        }
        let format = self.engine.format.as_str();
        if let (false, Err(error)) = (format.is_empty(), format.parse::<frontend::Format>()) {
            return usage(error.to_string(), "leave engine.format empty to find it out");
        }
        if !matches!(self.log.format.as_str(), "text" | "json") {
            return usage(
                format!("unknown log format {:?}", self.log.format),
                "use --log-format text or json",
            );
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Fault> {
        let usage = |message: String, help: &str| Err(Fault::usage(message, help));
        let g = &self.gossip;
        if !(g.heartbeat_ms > 0 && g.heartbeat_ms < g.suspect_ms && g.suspect_ms < g.dead_ms) {
            return usage(
                "gossip times must satisfy 0 < heartbeat_ms < suspect_ms < dead_ms".into(),
                "leave the [gossip] section out to use the defaults 500, 2000 and 4000",
            );
        }
        let rates = [
            ("placement.assume_bandwidth_mb_s", self.placement.assume_bandwidth_mb_s),
            ("placement.assume_prefill_tokens_s", self.placement.assume_prefill_tokens_s),
            ("transfer.throttle_mb_s", self.transfer.throttle_mb_s),
        ];
        for (key, rate) in rates {
            if !(rate.is_finite() && rate >= 0.0) {
                return usage(
                    format!("{key} = {rate} is not a rate"),
                    "use 0, or a positive number",
                );
            }
        }
        if !(1..=3600).contains(&self.http.idle_s) {
            return usage(
                format!("http.idle_s = {} is not from 1 to 3600", self.http.idle_s),
                "seconds of silence after which a connection is closed; 60 is the default",
            );
        }
        if self.engine.served_name.len() > 256 {
            return usage(
                "engine.served_name has more than 256 bytes".into(),
                "give the model a shorter name, or none to use its own",
            );
        }
        let bad = |name: &&String| name.is_empty() || name.len() > 256;
        if let Some(alias) = self.engine.aliases.iter().find(bad) {
            return usage(
                format!("engine.aliases: {alias:?} is not a name of 1 to 256 bytes"),
                "list the other names that clients may ask for the model by",
            );
        }
        if !(1..=720).contains(&self.http.responses_h) {
            return usage(
                format!("http.responses_h = {} is not from 1 to 720", self.http.responses_h),
                "hours that stored responses are kept; 720 is the default",
            );
        }
        if self.http.max_body_mib == 0 || self.node.site.is_empty() {
            return usage(
                "http.max_body_mib must be at least 1 and node.site must not be empty".into(),
                "leave a key out to use its default",
            );
        }
        if !(1..=64).contains(&self.nvme.threads) {
            return usage(
                "nvme.threads must be from 1 to 64".into(),
                "leave the key out to use its default; nvme.mib = 0 goes without the tier",
            );
        }
        if self.engine.threads == 0 || self.engine.max_batch == 0 || self.engine.prefill_chunk == 0
        {
            return usage(
                "engine.threads, engine.max_batch and engine.prefill_chunk must be at least 1"
                    .into(),
                "leave a key out to use its default",
            );
        }
        self.engine.mock.check()
    }
}

#[cfg(test)]
mod tests;
