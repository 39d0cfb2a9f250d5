//! `/admin/v1`: status, token, ticket, explain, leave; for loopback callers or with the admin key.

use crate::node::Node;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// The admin verbs as an HTTP router.
pub(crate) fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/admin/v1/status", get(status))
        .route("/admin/v1/ticket", get(ticket))
        .route("/admin/v1/token", post(token))
        .route("/admin/v1/route/explain", post(explain))
        .route("/admin/v1/leave", post(leave))
        .route_layer(axum::middleware::from_fn_with_state(node.clone(), guard))
        .with_state(node)
}

/// True for callers on this machine that name this machine: a page in a browser that reached us
/// under another host name is not one (DNS rebinding).
pub(crate) fn is_local(peer: &SocketAddr, headers: &HeaderMap) -> bool {
    // A header that is not text names nothing that is local.
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let local = |host: &str| {
        let host = host.rsplit_once(':').map_or(host, |(name, port)| {
            if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host }
        });
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let origin = text("origin").map(|origin| origin.split_once("://").map_or("", |(_, host)| host));
    peer.ip().is_loopback() && text("host").is_none_or(local) && origin.is_none_or(local)
}

/// Headers of callers that a proxy has passed on: they are elsewhere, though its connection comes
/// from this machine.
const PASSED_ON: [&str; 5] =
    ["forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"];

/// True for programs on this machine that came by themselves.
fn is_program_here(peer: &SocketAddr, headers: &HeaderMap) -> bool {
    // Programs send no Origin; a page does, also one that another program on this machine serves.
    let from_page = headers.contains_key("origin");
    let passed_on = headers
        .keys()
        .map(|name| name.as_str())
        .any(|name| name.starts_with("x-forwarded-") || PASSED_ON.contains(&name));
    !from_page && !passed_on && is_local(peer, headers)
}

/// Lets loopback callers pass, and those with the admin key.
pub(crate) async fn guard(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let key = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let local = is_program_here(&peer, request.headers());
    if local || key.is_some_and(|key| node.admin_key_is(key)) {
        return next.run(request).await;
    }
    problem(
        StatusCode::FORBIDDEN,
        "this is for loopback callers without a proxy between, or callers with the node's admin \
         key (Authorization: Bearer …, the key is in DATA_DIR/admin-key)",
    )
}

fn problem(status: StatusCode, message: impl std::fmt::Display) -> Response {
    (status, Json(json!({ "error": { "message": message.to_string() } }))).into_response()
}

async fn status(State(node): State<Arc<Node>>) -> Json<Value> {
    Json(node.status().await)
}

async fn ticket(State(node): State<Arc<Node>>) -> Json<Value> {
    Json(json!({ "ticket": node.ticket() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    hours: u64,
    uses: u32,
    issuer: bool,
}

async fn token(State(node): State<Arc<Node>>, Json(body): Json<TokenBody>) -> Response {
    match node.issue_token(body.hours, body.uses, body.issuer) {
        Ok(token) => Json(json!({ "token": token.as_str() })).into_response(),
        Err(fault) => problem(StatusCode::CONFLICT, fault),
    }
}

async fn explain(State(node): State<Arc<Node>>, Json(body): Json<Value>) -> Response {
    match node.explain(body).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(message) => problem(StatusCode::BAD_REQUEST, message),
    }
}

async fn leave(State(node): State<Arc<Node>>) -> Json<Value> {
    node.begin_leave();
    Json(json!({ "leaving": true }))
}

#[cfg(test)]
mod tests;
