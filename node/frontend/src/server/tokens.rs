//! Endpoints that count or convert tokens and serve nothing.

use super::speech::Endpoint;
use super::{App, Limits, body, finish, json_text};
use crate::ask::Ask;
use crate::error::{ApiError, Dialect};
use crate::prompt::client::Client;
use crate::{prompt, tokenize};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use protocol::id::TenantId;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn count_messages(
    app: State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    count(app, Endpoint::Messages, &headers, body, |n| json!({ "input_tokens": n })).await
}

pub(super) async fn count_responses(
    app: State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let shape = |n| json!({ "object": "response.input_tokens", "input_tokens": n });
    count(app, Endpoint::Responses, &headers, body, shape).await
}

impl App {
    /// A body that is only to be counted or tokenised.
    async fn counted(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Bytes, body::Held), ApiError> {
        let contexts = self.cluster.models().iter().map(|model| model.context).max();
        let bytes = body::counted_bytes(&self.limits, contexts.unwrap_or_default());
        let limits = Limits { body_bytes: bytes, ..self.limits };
        body::read(headers, body, &limits, &self.receiving).await
    }
}

/// Counts a prompt's tokens.
async fn count(
    State(app): State<Arc<App>>,
    endpoint: Endpoint,
    headers: &HeaderMap,
    body: Body,
    shape: impl FnOnce(usize) -> Value,
) -> Response {
    let count = async {
        let tenant = app.keys.admit(headers)?.id.clone();
        let (body, _held) = app.counted(headers, body).await?;
        let (wanted, body) = app.wanted(endpoint, body).await?;
        let recalled = app.keeper(&tenant).find(wanted, app.limits.body_bytes).await?;
        let bytes = body.len().saturating_add(recalled.bytes());
        let task = app.clone();
        app.prepared(bytes, move |client| {
            let (ask, _) = endpoint.read(&body, || task.seal(&tenant), recalled)?;
            let (served, key) = task.resolve(&ask, &tenant)?;
            prompt::tokens(&ask, &served, &key, &task.cache, client)
        })
        .await
    };
    let counted = count.await.map(|tokens| shape(tokens.len()).to_string());
    let counted = counted.map_err(|error| error.about(endpoint.prompt_field()));
    told(&app, endpoint.dialect(), counted)
}

pub(super) async fn tokenize(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    reply(app, &headers, body, |app, tenant, body, client| {
        let read = tokenize::read(body)?;
        let (served, key) = app.resolve(&read.ask, tenant)?;
        let tokenizer = served.model.tokenizer();
        let tokens = match (&read.ask.raw, read.add_special) {
            (None, false) => prompt::tokens(&read.ask, &served, &key, &app.cache, client)?,
            (None, true) => {
                let text = prompt::conversation(&read.ask, &served)?;
                client.check()?;
                tokenizer.encode(&text, true).into()
            }
            (Some(raw), add_special) => raw.tokens(tokenizer, add_special).into(),
        };
        Ok(tokenize::body(&tokens, tokenizer, served.context, read.spellings))
    })
    .await
}

pub(super) async fn detokenize(app: State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    reply(app, &headers, body, |app, tenant, body, _| {
        let (model, tokens) = tokenize::read_tokens(body)?;
        let (served, _) = app.resolve(&Ask { model, ..Ask::default() }, tenant)?;
        let text = tokenize::text(&tokens, served.model.tokenizer())?;
        Ok(json!({ "prompt": text }).to_string())
    })
    .await
}

/// What `work` makes of a body, for holders of a key.
async fn reply(
    State(app): State<Arc<App>>,
    headers: &HeaderMap,
    body: Body,
    work: impl FnOnce(&App, &TenantId, &Bytes, &Client) -> Result<String, ApiError> + Send + 'static,
) -> Response {
    let answer = async {
        let tenant = app.keys.admit(headers)?.id.clone();
        let (body, _held) = app.counted(headers, body).await?;
        let task = app.clone();
        app.prepared(body.len(), move |client| work(&task, &tenant, &body, client)).await
    };
    let answer = answer.await;
    told(&app, Dialect::OpenAi, answer)
}

fn told(app: &App, dialect: Dialect, answer: Result<String, ApiError>) -> Response {
    let id = app.request();
    let response = match answer {
        Ok(text) => json_text(text),
        Err(error) => error.response(dialect, &id.to_string()),
    };
    finish(&id, response)
}
