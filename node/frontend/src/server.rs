//! The HTTP surface: paths to handlers, bodies to answers.

mod body;
mod kept;
mod missed;
mod models;
mod openapi;
pub(crate) mod speech;
mod tokens;

use crate::ahead::{self, Ahead, Said};
use crate::answer::{Answer, Next, Spoken, Untold};
use crate::ask::Ask;
use crate::bodies::Bodies;
use crate::cluster::{Cluster, ServedModel, Want};
use crate::constraint;
use crate::error::{ApiError, Dialect, Kind};
use crate::keeper::{self, Keeper, Remembered};
use crate::keys::{Keys, Tenant};
use crate::misses::Misses;
use crate::prefill;
use crate::prompt::cache::PrefixCache;
use crate::prompt::client::Client;
use crate::prompt::session::Session;
use crate::prompt::{self, Prepared, Who};
use crate::responses::record::Wanted;
use crate::seal::Seal;
use crate::sse;
use crate::stream::{Ending, Piece, Translator};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use protocol::hash::{ClientSalt, RoutingKey};
use protocol::id::{RequestId, TenantId};
use protocol::prompt::Refusal;
use serde_json::{Value, json};
use speech::{Endpoint, Speech, Style};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Bounds of the HTTP surface.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request body in bytes.
    pub body_bytes: usize,
    /// Longest silence within a body that a client sends.
    pub body_silence: Duration,
    /// Longest silence within a stream; at most 15 s, which clients and proxies bear.
    pub heartbeat: Duration,
    /// How long a stream waits for its first item, so that an early refusal is still a status
    /// code; then the headers go out.
    pub commit_after: Duration,
    /// Memory for tokens and names of earlier prompts, and for the bodies that they came in, in bytes.
    pub cache_bytes: usize,
    /// How long a response that shall be stored is kept.
    pub responses_ttl: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            body_silence: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            commit_after: Duration::from_secs(1),
            cache_bytes: 256 << 20,
            responses_ttl: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

/// Memory for kept responses, in bytes.
const REMEMBERED: usize = 32 << 20;

/// Bodies up to this many bytes are prepared on the spot; larger ones leave the async threads.
const SMALL_BODY: usize = 16 << 10;

/// Longest wait for a place to compile a schema, and longest time to compile it.
const COMPILE_MAX: Duration = Duration::from_secs(3);

/// What all handlers share.
struct App {
    cluster: Arc<dyn Cluster>,
    keys: Arc<Keys>,
    limits: Limits,
    cache: Arc<PrefixCache>,
    bodies: Bodies,
    remembered: Remembered,
    misses: Misses,
    /// Prefills ahead of the next turn.
    ahead: Arc<Semaphore>,
    /// Bodies under way.
    receiving: body::Room,
    /// How many large prompts are prepared at once.
    preparing: Arc<Semaphore>,
    /// How many constraints are compiled at once.
    compiling: Arc<Semaphore>,
}

/// The HTTP surface of a node: everything but `/metrics` and `/admin`. All of `/v1`, and what works
/// on tokens, is for holders of `keys`.
pub fn router(cluster: Arc<dyn Cluster>, keys: Arc<Keys>, limits: Limits) -> axum::Router {
    let limits = Limits { heartbeat: limits.heartbeat.min(Duration::from_secs(15)), ..limits };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let app = App {
        cluster,
        keys,
        limits,
        cache: Arc::new(PrefixCache::new(limits.cache_bytes / 4 * 3)),
        bodies: Bodies::new(limits.cache_bytes / 4),
        remembered: keeper::remembered(REMEMBERED),
        misses: Misses::new(),
        ahead: Arc::new(Semaphore::new(ahead::AT_ONCE)),
        receiving: body::Room::new(&limits),
        preparing: Arc::new(Semaphore::new(cores)),
        compiling: Arc::new(Semaphore::new((cores / 2).max(1))),
    };
    let add = |router: axum::Router<Arc<App>>, (path, methods)| router.route(path, methods);
    routes()
        .into_iter()
        .fold(axum::Router::new(), add)
        .method_not_allowed_fallback(no_method)
        .fallback(no_path)
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(panicked))
        .with_state(Arc::new(app))
}

/// The answer where a handler panicked.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    let error = ApiError::new(Kind::Failed, "a defect of this node was met; please report it");
    error.response(Dialect::OpenAi, "")
}

/// Every path and what answers there; `/openapi.json` describes exactly these.
fn routes() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/", get(async || "dynamo-node\n")),
        ("/live", get(async || "live\n")),
        ("/health", get(health)),
        ("/openapi.json", get(openapi::serve)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/v1/models", get(models::list)),
        ("/v1/models/{*id}", get(models::one)),
        ("/v1/chat/completions", post(chat)),
        ("/v1/completions", post(completions)),
        ("/v1/responses", post(responses)),
        ("/v1/responses/input_tokens", post(tokens::count_responses)),
        ("/v1/responses/{id}", get(kept::one).delete(kept::delete)),
        ("/v1/responses/{id}/input_items", get(kept::input_items)),
        ("/v1/requests/{id}/why-miss", get(missed::why)),
        ("/v1/messages", post(messages)),
        ("/v1/messages/count_tokens", post(tokens::count_messages)),
    ]
}

/// Which dialect to speak where the path alone does not say it.
fn dialect_of(uri: &Uri, headers: &HeaderMap) -> Dialect {
    if headers.contains_key("anthropic-version") || uri.path().starts_with("/v1/messages") {
        Dialect::Anthropic
    } else {
        Dialect::OpenAi
    }
}

async fn no_path(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let error = ApiError::new(Kind::NoPath, format!("there is nothing at {}", uri.path()));
    let id = app.request();
    finish(&id, error.response(dialect_of(&uri, &headers), &id.to_string()))
}

async fn no_method(
    State(app): State<Arc<App>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let error = ApiError::new(Kind::NoMethod, format!("{method} is not allowed at {}", uri.path()));
    let id = app.request();
    finish(&id, error.response(dialect_of(&uri, &headers), &id.to_string()))
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.cluster.readiness() {
        Ok(()) => json_response(&json!({ "status": "ready" })),
        Err(why) => {
            let mut response = json_response(&json!({ "status": "not ready", "reason": why }));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

async fn chat(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    serve(app, Endpoint::Chat, headers, body).await
}

async fn completions(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    serve(app, Endpoint::Completions, headers, body).await
}

async fn messages(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    serve(app, Endpoint::Messages, headers, body).await
}

async fn responses(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    serve(app, Endpoint::Responses, headers, body).await
}

async fn serve(
    State(app): State<Arc<App>>,
    endpoint: Endpoint,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let id = app.request();
    let answer = match app.keys.admit(&headers) {
        Ok(tenant) => app.generate(endpoint, &id, &tenant, &headers, body).await,
        Err(error) => Err(error),
    };
    let refuse = |error: ApiError| {
        error.about(endpoint.prompt_field()).response(endpoint.dialect(), &id.to_string())
    };
    finish(&id, answer.unwrap_or_else(refuse))
}

/// A request that is read, rendered, tokenised and hashed.
struct Ready {
    ask: Ask,
    style: Style,
    served: ServedModel,
    key: RoutingKey,
    prepared: Prepared,
}

/// The model that is asked for, and the key of its prefix names for this tenant.
pub(crate) fn resolve(
    cluster: &dyn Cluster,
    ask: &Ask,
    tenant: &TenantId,
) -> Result<(ServedModel, RoutingKey), ApiError> {
    let models = cluster.models();
    let served = match &ask.model {
        Some(name) => models::find(&models, name),
        None => models.first().filter(|_| models.len() == 1),
    };
    let Some(served) = served.cloned() else {
        let names: Vec<String> = models.iter().map(|m| m.name.clone()).collect();
        let asked = ask.model.as_deref().unwrap_or_default();
        if cluster.awaits(ask.model.as_deref()) {
            return Err(ApiError::awaited(asked, &names));
        }
        return Err(ApiError::no_model(asked, &names));
    };
    let salt = ask.nvext.cache_salt.as_deref().map(ClientSalt::of);
    let Some(key) = cluster.routing_key(&served, tenant, salt.as_ref()) else {
        return Err(Refusal::NoTarget { model: served.name }.into());
    };
    Ok((served, key))
}

impl App {
    fn request(&self) -> RequestId {
        RequestId(self.cluster.fresh_id())
    }

    fn seal(&self, tenant: &TenantId) -> Seal {
        Seal::of_reasoning(&self.cluster.sealing_secret(tenant))
    }

    /// Keeps the responses of a tenant.
    fn keeper(&self, tenant: &TenantId) -> Keeper {
        let secret = self.cluster.sealing_secret(tenant);
        let (cluster, remembered) = (self.cluster.clone(), self.remembered.clone());
        Keeper::new(cluster, remembered, &secret, self.limits.responses_ttl)
    }

    fn resolve(&self, ask: &Ask, tenant: &TenantId) -> Result<(ServedModel, RoutingKey), ApiError> {
        resolve(self.cluster.as_ref(), ask, tenant)
    }

    /// Runs `work` here when the body is small, else on a blocking thread, a few at a time.
    /// That thread goes on when this future is dropped: `work` asks now and then whether the
    /// client is still there, and its place is free only when it has ended.
    async fn prepared<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Client) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if bytes <= SMALL_BODY {
            return work(&Client::stays());
        }
        let closed = |_| ApiError::new(Kind::Failed, "the node is shutting down");
        let permit = self.preparing.clone().acquire_owned().await.map_err(closed)?;
        let (client, _waits) = Client::new();
        let work = move || {
            let _permit = permit;
            client.check()?;
            work(&client)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
            Err(ApiError::new(Kind::Failed, "preparing the prompt failed unexpectedly"))
        })
    }

    /// What a body names of kept responses; the body comes back.
    async fn wanted(&self, endpoint: Endpoint, body: Bytes) -> Result<(Wanted, Bytes), ApiError> {
        if !endpoint.names_kept(&body) {
            return Ok((Wanted::default(), body));
        }
        self.prepared(body.len(), move |_| Ok((Wanted::of(&body), body))).await
    }

    async fn generate(
        self: &Arc<Self>,
        endpoint: Endpoint,
        id: &RequestId,
        tenant: &Tenant,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, ApiError> {
        let arrived = Instant::now();
        let (body, held) = body::read(headers, body, &self.limits, &self.receiving).await?;
        let keeper = self.keeper(&tenant.id);
        let (wanted, body) = self.wanted(endpoint, body).await?;
        let recalled = keeper.find(wanted, self.limits.body_bytes).await?;
        let who = Who {
            id: *id,
            tenant: tenant.id.clone(),
            session: Session::of(headers),
            seed: self.cluster.fresh_id() as u64,
            priority: tenant.priority,
        };
        let app = self.clone();
        let bytes = body.len().saturating_add(recalled.bytes());
        let mut ready = self
            .prepared(bytes, move |client| {
                let seal = || app.seal(&who.tenant);
                let (ask, style) =
                    endpoint.read_on(&body, &app.bodies, &who.tenant, seal, recalled)?;
                prefill::checked(&ask)?;
                let (served, key) = app.resolve(&ask, &who.tenant)?;
                let prepared = prompt::prepare(&ask, who, &served, &key, &app.cache, client)?;
                Ok(Ready { ask, style, served, key, prepared })
            })
            .await?;
        drop(held);
        self.settle(&mut ready).await?;
        tenant.charge(ready.prepared.shape.prompt_tokens)?;
        tracing::debug!(
            request = %id,
            model = ready.served.name,
            tokens = ready.prepared.prompt.tokens.len(),
            stream = ready.ask.stream,
            "serving"
        );
        self.answer(id, ready, keeper, arrived).await
    }

    /// Makes sure that the answer's constraint can be enforced, before anything is placed. A hostile
    /// schema cannot be interrupted, but it holds a place among few until it is done with, and is
    /// known from then on.
    async fn settle(&self, ready: &mut Ready) -> Result<(), ApiError> {
        let Some(constraint) = ready.prepared.prompt.constraint.take() else { return Ok(()) };
        let grammars = ready.served.model.grammars();
        if matches!(grammars.known(&constraint), Some(Ok(_))) {
            ready.prepared.prompt.constraint = Some(constraint);
            return Ok(());
        }
        let at = constraint::field(&ready.ask).to_owned();
        let slow = ApiError::field(&at, "takes too long to compile");
        let busy = || ApiError {
            retry_after: Some(COMPILE_MAX.as_secs()),
            ..ApiError::new(Kind::Busy, "too many schemas are being compiled")
        };
        let place = self.compiling.clone().acquire_owned();
        let place = tokio::time::timeout(COMPILE_MAX, place).await;
        let Ok(Ok(place)) = place else { return Err(busy()) };
        let strict = ready.ask.strict.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            constraint::settle(constraint, &at, &strict, &grammars)
        });
        let settled = tokio::time::timeout(COMPILE_MAX, work).await.map_err(|_| slow)?;
        let failed = |_| ApiError::new(Kind::Failed, "compiling the schema failed unexpectedly");
        ready.prepared.prompt.constraint = Some(settled.map_err(failed)??);
        Ok(())
    }

    async fn answer(
        &self,
        id: &RequestId,
        ready: Ready,
        keeper: Keeper,
        arrived: Instant,
    ) -> Result<Response, ApiError> {
        let Ready { ask, style, served, key, prepared } = ready;
        let extra = ask.nvext.extra;
        let want = Want {
            stream: ask.stream,
            timing: extra.timing,
            route: extra.route,
            target: ask.nvext.target,
        };
        let prompt = prepared.shape.prompt_tokens;
        let mut ahead = prepared.prompt.hints.speculative_prefill.then(|| {
            let session = Session {
                id: prepared.prompt.session.clone(),
                parent: prepared.prompt.hints.parent.clone(),
                ..Session::default()
            };
            Ahead {
                cluster: self.cluster.clone(),
                cache: self.cache.clone(),
                permits: self.ahead.clone(),
                ask: ask.clone(),
                served: served.clone(),
                key,
                tenant: prepared.prompt.tenant.clone(),
                session,
                said: Said::default(),
            }
        });
        let translator = Translator::new(served.model.tokenizer(), prepared.shape);
        let miss = self.misses.note(&prepared.prompt, served.model.tokenizer());
        let spoken = Spoken {
            cache: self.cache.clone(),
            model: served.model.clone(),
            prompt: prepared.tokenised,
        };
        let told = Untold { extra, hints: prepared.outcomes, miss, spoken };
        let mut answer =
            Answer::new(&self.cluster, prepared.prompt, want, translator, told, arrived);
        let model = ask.model.clone().unwrap_or(served.name);
        let now = self.cluster.now_unix();
        let speech = Speech::new(style, &ask, id.to_string(), model, now, prompt);
        if !ask.stream {
            let (pieces, ending, nvext) = collect(&mut answer).await?;
            if let Some(mut ahead) = ahead.take() {
                pieces.iter().for_each(|piece| ahead.piece(piece));
                ahead.ended(&ending);
            }
            let mut body = speech.body(&pieces, &ending, nvext);
            if let Some(record) = speech.record(&body) {
                speech.kept(&mut body, &keeper.keep(record).await);
            }
            return Ok(json_response(&body));
        }
        if let Ok(first) = tokio::time::timeout(self.limits.commit_after, answer.first()).await {
            first?;
        }
        Ok(sse::response(answer, speech.writer(), keeper, ahead, self.limits.heartbeat))
    }
}

/// The whole answer. The connection drops this future when the client goes away.
async fn collect(answer: &mut Answer) -> Result<(Vec<Piece>, Ending, Option<Value>), ApiError> {
    let mut pieces = Vec::new();
    loop {
        match answer.next().await {
            Next::Began(_) => {}
            Next::Piece(piece) => pieces.push(piece),
            Next::Ended(ending, nvext) => return Ok((pieces, ending, nvext)),
            Next::Failed(refusal, _) => return Err(refusal.into()),
        }
    }
}

fn json_response(value: &Value) -> Response {
    json_text(value.to_string())
}

fn json_text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Names the request in the headers of all dialects.
fn finish(id: &RequestId, mut response: Response) -> Response {
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert("request-id", value.clone());
        response.headers_mut().insert("x-request-id", value);
    }
    response
}
