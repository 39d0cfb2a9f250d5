//! Clusters of real processes, and waiting for what they show.

use load::client::{Call, Client, Dialect, Outcome};
use load::fleet::{Fleet, FleetOptions, NodeOptions};
use load::talk::Conversation;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for anything; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(20);

/// The binary under test, built beside the test executable's folder.
pub(crate) fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let binary = folder.join("dynamo-node");
    assert!(binary.exists(), "{} is missing: run `./dev build` first", binary.display());
    binary
}

/// Looks again and again until `probe` finds something.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {} s", PATIENCE.as_secs());
        tokio::time::sleep(POLL).await;
    }
}

/// A running cluster. When a test fails, the ends of its nodes' logs are printed.
pub(crate) struct Cluster {
    pub(crate) fleet: Fleet,
    pub(crate) client: Client,
    pub(crate) http: reqwest::Client,
    pub(crate) model: String,
}

impl Cluster {
    /// Starts one node per entry of `nodes`; `model` is a path.
    pub(crate) async fn start(model: &Path, nodes: Vec<NodeOptions>) -> Self {
        Self::of(Some(model), nodes).await
    }

    /// Starts nodes whose own options name their models.
    pub(crate) async fn mixed(nodes: Vec<NodeOptions>) -> Self {
        Self::of(None, nodes).await
    }

    async fn of(model: Option<&Path>, nodes: Vec<NodeOptions>) -> Self {
        let mut options = FleetOptions::new(binary(), nodes.len() as u32);
        options.model = model.map(|model| model.display().to_string());
        options.config = "[dram]\nmib = 160\n".into();
        options.per_node = nodes;
        let fleet = Fleet::start(options).await.unwrap();
        let client = Client::new(PATIENCE * 3).unwrap();
        let model = eventually("node 0 lists a model", async || {
            client.models(fleet.node(0).http()).await.ok()?.into_iter().next()
        });
        let model = model.await;
        Self { fleet, client, http: http(), model }
    }

    /// Starts so many nodes with one model and nothing special.
    pub(crate) async fn plain(model: &Path, nodes: usize) -> Self {
        Self::start(model, vec![NodeOptions::default(); nodes]).await
    }

    /// The node id at a position.
    pub(crate) fn id(&self, node: usize) -> String {
        self.fleet.node(node).node_id().to_owned()
    }

    /// An address of a node's HTTP listener.
    pub(crate) fn url(&self, node: usize, path: &str) -> String {
        format!("{}{path}", self.fleet.node(node).http())
    }

    /// A greedy call in the Chat dialect; nowhere bound.
    pub(crate) fn call(&self, entry: usize, text: &str) -> Call {
        self.conversation(entry, Dialect::Chat, Conversation::question(text))
    }

    /// A greedy call with a conversation.
    pub(crate) fn conversation(&self, entry: usize, dialect: Dialect, talk: Conversation) -> Call {
        Call::new(self.fleet.node(entry).http(), dialect, &self.model, talk)
    }

    /// A call that enters at a node and must be served there, under a salt.
    pub(crate) fn bound(&self, node: usize, text: &str, salt: &str) -> Call {
        let mut call = self.call(node, text);
        call.target = Some(self.id(node));
        call.cache_salt = Some(salt.to_owned());
        call
    }

    /// Makes a call that must succeed.
    pub(crate) async fn answer(&self, call: &Call) -> Outcome {
        let outcome = self.client.call(call).await;
        assert_eq!(outcome.error, None, "{outcome:?}");
        outcome
    }

    /// A JSON document of a node.
    pub(crate) async fn get(&self, node: usize, path: &str) -> Value {
        let response = self.http.get(self.url(node, path)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// Posts a body; returns status and body.
    pub(crate) async fn post(&self, node: usize, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(self.url(node, path)).json(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// What a node says about a member: its entry in the status.
    pub(crate) async fn view(&self, node: usize, member: &str) -> Value {
        let status = self.get(node, "/admin/v1/status").await;
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().find(|n| n["id"] == member).cloned().unwrap_or_default()
    }

    /// Waits until a node sees a member in a state.
    pub(crate) async fn sees(&self, node: usize, member: &str, state: &str) {
        let what = format!("n{node} sees {member} {state}");
        eventually(&what, async || (self.view(node, member).await["state"] == state).then_some(()))
            .await;
    }

    /// A node's metrics: name with labels → value.
    pub(crate) async fn metrics(&self, node: usize) -> BTreeMap<String, f64> {
        let response = self.http.get(self.url(node, "/metrics")).send().await.unwrap();
        let text = response.text().await.unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect()
    }

    /// Leases on a node's slots.
    pub(crate) async fn leases(&self, node: usize) -> f64 {
        self.metrics(node).await["dynamo_node_leases"]
    }

    /// Where a prompt would go, as a node sees it.
    pub(crate) async fn explain(&self, entry: usize, text: &str, salt: &str) -> Value {
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": text }],
            "nvext": { "cache_salt": salt },
        });
        let (status, explanation) = self.post(entry, "/admin/v1/route/explain", &body).await;
        assert_eq!(status, 200, "{explanation}");
        explanation
    }

    /// Waits until node `at` would have node `by` fetch at least `share` of the prompt from
    /// node `from`: the index has arrived.
    pub(crate) async fn would_fetch(
        &self,
        (at, by, from): (usize, usize, usize),
        (text, salt): (&str, &str),
        share: f64,
    ) {
        let (by, from) = (self.id(by), self.id(from));
        eventually("the prefix of another node is known", async || {
            let explanation = self.explain(at, text, salt).await;
            let tokens = explanation["tokens"].as_f64()?;
            let candidates = explanation["candidates"].as_array()?;
            let candidate = candidates.iter().find(|c| c["node"] == by.as_str())?;
            let sources = candidate["sources"].as_array()?.iter();
            let sources = sources.filter(|source| source["node"] == from.as_str());
            let fetched: f64 =
                sources.filter_map(|s| Some(s["end"].as_f64()? - s["start"].as_f64()?)).sum();
            (fetched >= share * tokens).then_some(())
        })
        .await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in self.fleet.nodes() {
                eprintln!("the end of n{}'s log:\n{}", node.index(), node.log_tail());
            }
        }
    }
}

/// A node with TOML text after the common one.
pub(crate) fn with_config(config: &str) -> NodeOptions {
    NodeOptions { config: config.into(), ..NodeOptions::default() }
}

/// A node without an engine: it only takes requests.
pub(crate) fn entry_only() -> NodeOptions {
    NodeOptions {
        args: vec!["--engine".into(), "none".into()],
        serving: false,
        ..NodeOptions::default()
    }
}

/// An HTTP client that takes no proxy from the environment.
pub(crate) fn http() -> reqwest::Client {
    load::client::plain_http().timeout(PATIENCE).build().unwrap()
}

/// Threads that keep cores busy until dropped.
pub(crate) struct Spinners {
    go: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Spinners {
    pub(crate) fn start(count: usize) -> Self {
        let go = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let spin = |go: std::sync::Arc<std::sync::atomic::AtomicBool>| {
            move || {
                while go.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..count).map(|_| std::thread::spawn(spin(go.clone()))).collect();
        Self { go, threads }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.go.store(false, std::sync::atomic::Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
