//! A cluster for tests: HTTP servers that mimic the documented surface with words as tokens and
//! a set of prefixes as each node's cache, and a script in place of the node binary.

use crate::fleet::FleetOptions;
use axum::Router;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Ways to misbehave.
#[derive(Default)]
pub(crate) struct Faults {
    /// Peer-fetched blocks lead to other tokens.
    pub(crate) wrong_after_fetch: AtomicBool,
    /// Peers are never asked.
    pub(crate) no_fetch: AtomicBool,
    /// A dead node stays alive in everybody's status.
    pub(crate) death_unseen: AtomicBool,
    /// Nothing is ever cached.
    pub(crate) no_cache: AtomicBool,
    /// Every call is refused as overloaded.
    pub(crate) overloaded: AtomicBool,
}

pub(crate) struct Shared {
    urls: Vec<String>,
    pids: tempfile::TempDir,
    held: Mutex<Vec<BTreeSet<u64>>>,
    next: AtomicUsize,
    pub(crate) faults: Faults,
    pub(crate) bodies: Mutex<Vec<Value>>,
}

/// The servers; they end with the test's runtime.
#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Shared>);

#[derive(Clone)]
struct Node {
    shared: Arc<Shared>,
    index: usize,
}

pub(crate) fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake-node.sh")
}

impl Fake {
    pub(crate) async fn start(nodes: usize) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..nodes {
            listeners.push(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let url = |l: &tokio::net::TcpListener| format!("http://{}", l.local_addr().unwrap());
        let shared = Arc::new(Shared {
            urls: listeners.iter().map(url).collect(),
            pids: tempfile::tempdir().unwrap(),
            held: Mutex::new(vec![BTreeSet::new(); nodes]),
            next: AtomicUsize::new(0),
            faults: Faults::default(),
            bodies: Mutex::new(Vec::new()),
        });
        for (index, listener) in listeners.into_iter().enumerate() {
            let app = Router::new()
                .route("/admin/v1/status", get(status))
                .route("/v1/models", get(async || axum::Json(json!({"data": [{"id": "words"}]}))))
                .route("/v1/messages/count_tokens", post(count))
                .route("/v1/{*path}", post(serve))
                .with_state(Node { shared: shared.clone(), index });
            tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        }
        Self(shared)
    }

    pub(crate) fn url(&self, node: usize) -> String {
        self.0.urls[node].clone()
    }

    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let mut env = vec![("FAKE_PIDS".into(), self.0.pids.path().display().to_string())];
        for (node, url) in self.0.urls.iter().enumerate() {
            env.push((format!("FAKE_HTTP_n{node}"), url.clone()));
        }
        env
    }

    pub(crate) fn fleet(&self, nodes: u32) -> FleetOptions {
        let mut options = FleetOptions::new(script(), nodes);
        options.env = self.env();
        options.ready_within = std::time::Duration::from_secs(20);
        options
    }
}

impl Shared {
    fn state(&self, node: usize) -> Option<&'static str> {
        let pid = std::fs::read_to_string(self.pids.path().join(format!("n{node}"))).ok()?;
        let dead = !process_runs(pid.trim().parse().unwrap());
        Some(if dead && !self.faults.death_unseen.load(Relaxed) { "dead" } else { "alive" })
    }

    /// Nodes that can serve; without processes (plain client tests) all of them.
    fn serving(&self) -> Vec<usize> {
        (0..self.urls.len()).filter(|n| self.state(*n).is_none_or(|s| s == "alive")).collect()
    }
}

/// True when there is such a process that has not ended (a zombie has).
pub(crate) fn process_runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| !matches!(state, "Z" | "X"))
}

async fn status(State(node): State<Node>) -> Response {
    let nodes: Vec<Value> = (0..node.shared.urls.len())
        .filter_map(|n| {
            let state = node.shared.state(n)?;
            Some(json!({ "id": format!("id-n{n}"), "state": state, "http": node.shared.urls[n],
                "site": "default", "incarnation": "1", "blocks": {"gpu": 1, "dram": 2, "nvme": 0},
                "engines": [{"name": "0", "model": "words", "load": {}}] }))
        })
        .collect();
    axum::Json(json!({ "cluster": "fake", "self": format!("id-n{}", node.index), "nodes": nodes,
        "index": {"entries": 1, "bytes": 20, "lag_ms": 1} }))
    .into_response()
}

fn mix(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The words of a body, equal for equal conversations in both dialects.
fn words(body: &Value) -> Vec<String> {
    let mut text = String::from("<system> ");
    let mut messages = String::new();
    text += body["system"].as_str().unwrap_or_default();
    for message in body["messages"].as_array().unwrap() {
        let content = match &message["content"] {
            Value::String(content) => content.clone(),
            blocks => blocks[0]["content"].as_str().unwrap_or_default().to_owned(),
        };
        match message["role"].as_str().unwrap() {
            "system" => text += &content,
            role => messages += &format!("<{role}> {content} <end> "),
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let function = tool.get("function").unwrap_or(tool);
        let schema = function.get("parameters").unwrap_or(&function["input_schema"]);
        text += &format!(" {} {} {schema}", function["name"], function["description"]);
    }
    text += &format!(" <end> {messages}<assistant>");
    text.split_whitespace().map(str::to_owned).collect()
}

async fn count(axum::Json(body): axum::Json<Value>) -> Response {
    axum::Json(json!({ "input_tokens": words(&body).len() })).into_response()
}

struct Answer {
    words: Vec<String>,
    ids: Vec<u32>,
    prompt: usize,
    nvext: Value,
}

impl Node {
    fn prefixes(salt: &str, words: &[String]) -> Vec<u64> {
        let mut parent = mix(salt);
        words
            .chunks_exact(16)
            .map(|granule| {
                parent = mix((parent, granule));
                parent
            })
            .collect()
    }

    fn answer(&self, body: &Value) -> Answer {
        let shared = &self.shared;
        let prompt = words(body);
        let salt = body["nvext"]["cache_salt"].as_str().unwrap_or_default();
        let names = Self::prefixes(salt, &prompt);
        let mut held = shared.held.lock().unwrap();
        let usable = (prompt.len() - 1) / 16;
        let depth = |node: usize, held: &[BTreeSet<u64>]| {
            names.iter().take(usable).take_while(|name| held[node].contains(name)).count()
        };
        let alive = shared.serving();
        let target = body["nvext"]["target"].as_str().and_then(|id| id.strip_prefix("id-n"));
        let server = target.map_or_else(
            || {
                let turn = shared.next.fetch_add(1, Relaxed);
                *alive.iter().max_by_key(|n| (depth(**n, &held), (**n + turn) % 3)).unwrap()
            },
            |node| node.parse().unwrap(),
        );
        let faults = &shared.faults;
        let mut local = depth(server, &held);
        let best = alive.iter().map(|n| depth(*n, &held)).max().unwrap_or(0);
        let mut peer = best.saturating_sub(local);
        if faults.no_fetch.load(Relaxed) {
            peer = 0;
        }
        if faults.no_cache.load(Relaxed) {
            (local, peer) = (0, 0);
        }
        let mut seed = mix(&prompt);
        if peer > 0 && faults.wrong_after_fetch.load(Relaxed) {
            seed += 1;
        }
        let size = body["max_tokens"].as_u64().unwrap().min(12);
        let answer: Vec<String> = (0..size).map(|i| format!("w{}", mix((seed, i)) % 997)).collect();
        let whole: Vec<String> = prompt.iter().chain(&answer).cloned().collect();
        held[server].extend(Self::prefixes(salt, &whole));
        let cached = (local + peer) * 16;
        let ids: Vec<u32> = answer.iter().map(|word| mix(word) as u32).collect();
        let nvext = json!({
            "timing": {"queue_ms": 0.5, "ttft_ms": 3.0, "total_ms": 9.0},
            "route": {"entry_node": format!("id-n{}", self.index),
                "serving_node": format!("id-n{server}"),
                "cached_tokens": {"gpu": local * 16, "dram": 0, "nvme": 0, "peer": peer * 16},
                "computed_tokens": prompt.len() - cached, "outcome": "served"},
            "completion_token_ids": ids,
            "prompt_tokens": prompt.len(),
        });
        Answer { prompt: prompt.len(), words: answer, ids, nvext }
    }
}

async fn serve(
    State(node): State<Node>,
    Segment(path): Segment<String>,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    node.shared.bodies.lock().unwrap().push(body.clone());
    if node.shared.faults.overloaded.load(Relaxed) {
        let error = json!({"type": "error",
            "error": {"type": "overloaded_error", "message": "the queue is full"}});
        return (StatusCode::from_u16(529).unwrap(), axum::Json(error)).into_response();
    }
    assert!(node.shared.serving().contains(&node.index), "a dead node was asked");
    let answer = node.answer(&body);
    let text = if path == "messages" { messages(&answer) } else { chat(&answer) };
    ([("content-type", "text/event-stream")], text).into_response()
}

fn chat(answer: &Answer) -> String {
    let chunk = |delta: Value, finish: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        json!({ "object": "chat.completion.chunk", "choices": choices, "usage": null })
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    for (position, word) in answer.words.iter().enumerate() {
        let space = if position == 0 { "" } else { " " };
        events.push(chunk(json!({ "content": format!("{space}{word}") }), Value::Null));
    }
    let mut last = chunk(json!({}), json!("stop"));
    last["nvext"] = answer.nvext.clone();
    events.push(last);
    events.push(json!({ "choices": [], "usage": { "prompt_tokens": answer.prompt,
        "completion_tokens": answer.ids.len(), "total_tokens": 0 } }));
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text += "data: [DONE]\n\n";
    text
}

fn messages(answer: &Answer) -> String {
    let usage = json!({ "input_tokens": answer.prompt - 2, "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 0, "output_tokens": answer.ids.len() });
    let mut events = vec![
        json!({ "type": "message_start", "message": { "role": "assistant", "usage": usage } }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_start", "index": 0, "content_block": {"type": "text"} }),
    ];
    for (position, word) in answer.words.iter().enumerate() {
        let space = if position == 0 { "" } else { " " };
        events.push(json!({ "type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": format!("{space}{word}")} }));
    }
    events.push(json!({ "type": "content_block_stop", "index": 0 }));
    events.push(json!({ "type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": usage, "nvext": answer.nvext }));
    events.push(json!({ "type": "message_stop" }));
    events
        .iter()
        .map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap()))
        .collect()
}
