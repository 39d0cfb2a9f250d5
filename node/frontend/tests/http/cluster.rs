//! A cluster that answers with what a test wrote down.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use frontend::{
    Cluster, Format, Kept, Keys, Limits, RecordName, Served, ServedModel, Unkept, Want, router,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::Model;
use protocol::hash::{ClientSalt, RoutingKey, Token, tenant_salt};
use protocol::id::{EngineId, Incarnation, NodeId, Target, TenantId};
use protocol::plan::{Estimate, Placed, Plan};
use protocol::prompt::{Finish, FinishReason, Prompt, PromptSources, Refusal, Started, StreamItem};
use protocol::time::Span;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

/// The tiny model of the test fixtures.
pub(crate) fn tiny() -> Arc<Model> {
    static TINY: OnceLock<Arc<Model>> = OnceLock::new();
    let open = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
        Arc::new(Model::open(&path).unwrap())
    };
    TINY.get_or_init(open).clone()
}

/// What the cluster says to a prompt.
#[derive(Clone)]
pub(crate) enum Script {
    /// This text, in batches of so many tokens, then this end.
    Say { text: String, batch: usize, reason: FinishReason },
    /// This text, in batches of these sizes in turn, then this end.
    Cut { text: String, sizes: Vec<usize>, reason: FinishReason },
    /// These tokens, whatever text they are, then this end.
    Write(Vec<Token>, FinishReason),
    /// Refused at once.
    Refuse(Refusal),
    /// Begins with this text, then fails.
    Fail(String, Refusal),
    /// Begins with this text, then goes on for ever without a word.
    Hang(String),
    /// The channel breaks off.
    Break,
    /// Never places the request.
    Wait,
}

pub(crate) fn say(text: &str) -> Script {
    Script::Say { text: text.into(), batch: 3, reason: FinishReason::Stop(Token(2)) }
}

/// The cluster.
pub(crate) struct Fake {
    pub(crate) script: Script,
    pub(crate) context: u32,
    pub(crate) model: Arc<Model>,
    pub(crate) ready: Result<(), String>,
    pub(crate) names: Vec<&'static str>,
    /// A model of this name is on its way.
    pub(crate) awaited: Option<&'static str>,
    pub(crate) format: Format,
    pub(crate) ids: AtomicU64,
    pub(crate) prompts: Mutex<Vec<(Prompt, Want)>>,
    /// Records that are kept; other nodes of the cluster may share them.
    pub(crate) records: Arc<Mutex<HashMap<RecordName, Vec<u8>>>>,
    /// Another deletes at the same time and is first.
    pub(crate) losing: bool,
    /// So many deletions of records go well.
    pub(crate) forgets: AtomicUsize,
    /// What becomes of new records.
    pub(crate) keeping: Result<Kept, Unkept>,
    /// One permit per request that came.
    pub(crate) came: Semaphore,
    /// One permit per request that was cancelled.
    pub(crate) cancelled: Arc<Semaphore>,
}

/// Tokens found cached by the script.
pub(crate) const CACHED: u32 = 5;

impl Fake {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            context: 4096,
            model: tiny(),
            ready: Ok(()),
            names: vec!["tiny"],
            awaited: None,
            format: Format::of(tiny().processor()),
            ids: AtomicU64::new(1),
            prompts: Mutex::new(Vec::new()),
            records: Arc::default(),
            losing: false,
            forgets: AtomicUsize::new(usize::MAX),
            keeping: Ok(Kept::Safe),
            came: Semaphore::new(0),
            cancelled: Arc::new(Semaphore::new(0)),
        }
    }

    fn items(&self, length: u32) -> (Vec<StreamItem>, bool) {
        let prompt = PromptSources {
            gpu: 2,
            peer: 3,
            computed: length.saturating_sub(CACHED),
            ..PromptSources::default()
        };
        let node = NodeId([7; 32]);
        let started = Started { serving_node: node, prompt, queued: Span::millis(3) };
        let mut items = vec![StreamItem::Started(started)];
        let tokens = |text: &str| self.model.tokenizer().encode(text, false);
        match &self.script {
            Script::Say { text, batch, reason } => {
                items.extend(said(&tokens(text), &[*batch], *reason, prompt));
                (items, false)
            }
            Script::Cut { text, sizes, reason } => {
                items.extend(said(&tokens(text), sizes, *reason, prompt));
                (items, false)
            }
            Script::Write(tokens, reason) => {
                items.extend(said(tokens, &[3], *reason, prompt));
                (items, false)
            }
            Script::Fail(text, refusal) => {
                items.push(StreamItem::Tokens(tokens(text)));
                items.push(StreamItem::Failed(refusal.clone()));
                (items, false)
            }
            Script::Hang(text) => {
                items.push(StreamItem::Tokens(tokens(text)));
                (items, true)
            }
            Script::Break | Script::Refuse(_) | Script::Wait => (items, false),
        }
    }
}

/// Tokens in batches of `sizes` in turn, then the end.
fn said(
    tokens: &[Token],
    sizes: &[usize],
    reason: FinishReason,
    prompt: PromptSources,
) -> Vec<StreamItem> {
    let stop = u32::from(matches!(reason, FinishReason::Stop(_)));
    let output_tokens = tokens.len() as u32 + stop;
    let (mut items, mut rest) = (Vec::new(), tokens);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (batch, after) = rest.split_at((*size).min(rest.len()));
        items.push(StreamItem::Tokens(batch.to_vec()));
        rest = after;
    }
    items.push(StreamItem::Finished(Finish { reason, prompt, output_tokens }));
    items
}

/// Counts its end as a cancellation.
struct OnDrop(Arc<Semaphore>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

impl Cluster for Fake {
    fn models(&self) -> Arc<[ServedModel]> {
        let model = |name: &&str| ServedModel {
            name: (*name).into(),
            aliases: vec!["org/alias".into()],
            model: self.model.processor().clone(),
            context: self.context,
            created: 951_827_696,
            format: self.format,
        };
        self.names.iter().map(model).collect()
    }

    fn awaits(&self, model: Option<&str>) -> bool {
        self.awaited.is_some() && model.is_none_or(|model| self.awaited == Some(model))
    }

    fn readiness(&self) -> Result<(), String> {
        self.ready.clone()
    }

    fn routing_key(
        &self,
        _: &ServedModel,
        tenant: &TenantId,
        salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        Some(RoutingKey::derive(&self.model.routing(), &tenant_salt(&[1; 32], &tenant.0, salt)))
    }

    fn serve(&self, prompt: Prompt, want: Want) -> BoxFuture<'static, Result<Served, Refusal>> {
        let (items, hang) = self.items(prompt.tokens.len() as u32);
        self.prompts.lock().unwrap().push((prompt, want));
        self.came.add_permits(1);
        match &self.script {
            Script::Refuse(refusal) => {
                let refusal = refusal.clone();
                return async { Err(refusal) }.boxed();
            }
            Script::Wait => {
                let guard = OnDrop(self.cancelled.clone());
                return async move {
                    let _guard = guard;
                    futures::future::pending().await
                }
                .boxed();
            }
            _ => {}
        }
        let (sender, receiver) = mpsc::channel(2);
        let cancelled = self.cancelled.clone();
        tokio::spawn(async move {
            for item in items {
                if sender.send(item).await.is_err() {
                    cancelled.add_permits(1);
                    return;
                }
            }
            if hang {
                sender.closed().await;
                cancelled.add_permits(1);
            }
        });
        async { Ok(served(receiver)) }.boxed()
    }

    fn sealing_secret(&self, _: &TenantId) -> [u8; 32] {
        [3; 32]
    }

    fn keep(
        &self,
        name: RecordName,
        value: Vec<u8>,
        _: Span,
    ) -> BoxFuture<'static, Result<Kept, Unkept>> {
        if self.keeping.is_ok() {
            self.records.lock().unwrap().insert(name, value);
        }
        futures::future::ready(self.keeping.clone()).boxed()
    }

    fn recall(&self, name: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>> {
        let value = self.records.lock().unwrap().get(&name).cloned();
        let reached = self.keeping.clone().map(|_| value);
        futures::future::ready(reached).boxed()
    }

    fn forget(&self, name: RecordName) -> BoxFuture<'static, Result<bool, Unkept>> {
        let down = |left: usize| left.checked_sub(1);
        if self.forgets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down).is_err() {
            let away = Unkept("the owners are away".into());
            return futures::future::ready(Err(away)).boxed();
        }
        let was = self.records.lock().unwrap().remove(&name).is_some();
        let lost = Unkept("no node could keep the record".into());
        futures::future::ready(if self.losing { Err(lost) } else { Ok(was) }).boxed()
    }

    fn entry_node(&self) -> String {
        "entry".into()
    }

    fn now_unix(&self) -> u64 {
        1_796_083_199
    }

    fn fresh_id(&self) -> u128 {
        self.ids.fetch_add(1, Ordering::Relaxed).into()
    }
}

fn served(items: mpsc::Receiver<StreamItem>) -> Served {
    let incarnation = Incarnation { counter: 1, nonce: 1 };
    let target = Target { node: NodeId([7; 32]), incarnation, engine: EngineId(0), dp_rank: 0 };
    let plan =
        Plan { prefill: target, decode: target, sources: vec![], estimate: Estimate::default() };
    let placed = Placed { plan, outcome: "kv".into() };
    Served { items, serving_node: "server".into(), outcome: "kv: lowest of 3".into(), placed }
}

/// A response, read to its end.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
}

/// No keys are needed.
pub(crate) fn open() -> Arc<Keys> {
    Arc::new(Keys::open())
}

/// Sends one request through the router.
pub(crate) async fn request(fake: Arc<Fake>, limits: Limits, request: Request<Body>) -> Reply {
    let response = router(fake, open(), limits).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Reply { status: parts.status, headers: parts.headers, text }
}

pub(crate) fn posted(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

/// Posts a JSON body to a fresh cluster with `script`.
pub(crate) async fn post(script: Script, path: &str, body: &Value) -> Reply {
    let fake = Arc::new(Fake::new(script));
    request(fake, Limits::default(), posted(path, body.to_string())).await
}

/// As [`post`], to a model that writes in this format.
pub(crate) async fn post_to(format: Format, script: Script, path: &str, body: &Value) -> Reply {
    let fake = Arc::new(Fake { format, ..Fake::new(script) });
    request(fake, Limits::default(), posted(path, body.to_string())).await
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
