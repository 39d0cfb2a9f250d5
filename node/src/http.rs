//! The HTTP listeners: the API for everybody, metrics, and the admin verbs.

mod serving;
mod tls;

use crate::admin::is_local;
use crate::config::HttpConfig;
use crate::fault::Fault;
use crate::keys::KeyFile;
use crate::node::Node;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use protocol::id::RequestId;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Certificate;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections that may wait to be accepted: a rack of agents comes back at once.
const BACKLOG: u32 = 4096;
/// Bytes that the kernel takes for a connection before its reader must have read. In one of the usual
/// megabytes a slow reader's progress does not show for minutes, and it looks like one that is gone.
const SEND_BUFFER: u32 = 128 << 10;

fn bind(addr: SocketAddr) -> Result<TcpListener, Fault> {
    let listen = || {
        let socket = match addr.is_ipv4() {
            true => TcpSocket::new_v4()?,
            false => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // Connections inherit it.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(addr)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| {
        Fault::new(
            format!("cannot listen on {addr} (HTTP): {error}"),
            "is another dynamo-node running there? choose another port with --http",
        )
    })
}

/// Listeners that are bound and not yet served.
pub(crate) struct Listeners {
    main: TcpListener,
    admin: Option<TcpListener>,
    keys: Option<KeyFile>,
    tls: Option<(TlsAcceptor, Certificate)>,
}

impl Listeners {
    /// Binds what the configuration names and reads API keys and certificate, so that a port in use or a wrong
    /// file is told before anything starts.
    pub(crate) fn bind(config: &HttpConfig) -> Result<Self, Fault> {
        let keys = config.keys.as_deref().map(KeyFile::open).transpose()?;
        let tls = match (&config.tls_cert, &config.tls_key) {
            (Some(chain), Some(key)) => {
                let certificate = Certificate::open(chain, key)?;
                Some((certificate.acceptor()?, certificate))
            }
            _ => None,
        };
        let main = bind(config.listen)?;
        let admin = match config.admin_listen {
            Some(addr) => Some(bind(addr)?),
            None => None,
        };
        Ok(Self { main, admin, keys, tls })
    }

    /// Address of the main listener.
    pub(crate) fn local(&self) -> Result<SocketAddr, Fault> {
        self.main.local_addr().map_err(|e| Fault::new(e, "the HTTP listener was lost"))
    }

    /// Serves until the node stops.
    pub(crate) fn serve(self, node: &Arc<Node>) {
        let cluster = Arc::new(crate::cluster::View(node.clone()));
        let limits = frontend::Limits {
            body_bytes: node.config.http.max_body_mib as usize * (1 << 20),
            body_silence: Duration::from_secs(node.config.http.idle_s),
            responses_ttl: Duration::from_secs(node.config.http.responses_h * 3600),
            ..frontend::Limits::default()
        };
        let open = Router::new().route("/metrics", get(metrics)).with_state(node.clone());
        // What a node does is nobody's business who needs a key to use it, nor its tenants'.
        let guard = axum::middleware::from_fn_with_state(node.clone(), crate::admin::guard);
        let guarded = open.clone().route_layer(guard);
        let metrics = if self.keys.is_some() { guarded.clone() } else { open };
        let keys = match self.keys {
            Some(file) => {
                let keys = file.keys();
                node.tasks.spawn(file.watch(node.stop.clone()));
                keys
            }
            None => Arc::new(frontend::Keys::open()),
        };
        let mut api = frontend::router(cluster, keys, limits).merge(metrics);
        if node.config.http.listen.ip().is_loopback() {
            api = api.layer(axum::middleware::from_fn(only_local));
        }
        let tls = self.tls.map(|(acceptor, certificate)| {
            node.tasks.spawn(certificate.watch(node.stop.clone()));
            acceptor
        });
        let admin = crate::admin::router(node.clone());
        match self.admin {
            Some(listener) => {
                spawn(node, self.main, api, tls);
                spawn(node, listener, admin.merge(guarded), None);
            }
            None => spawn(node, self.main, api.merge(admin), tls),
        }
    }
}

fn spawn(node: &Arc<Node>, listener: TcpListener, router: Router, tls: Option<TlsAcceptor>) {
    let idle = Duration::from_secs(node.config.http.idle_s);
    let router = router.layer(axum::middleware::from_fn(one_host));
    node.tasks.spawn(serving::serve(listener, router, idle, tls, node.stop.clone()));
}

/// A process with the same HTTP stack and nothing behind it, on a free loopback port: takes bodies and
/// answers with about as many bytes as a short answer has. Runs until it is killed.
pub(crate) async fn echo() -> Result<(), Fault> {
    const ANSWER: [u8; 512] = [b'x'; 512];
    const BODY_MAX: usize = 32 << 20;
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr().map_err(|e| Fault::new(e, "the listener was lost"))?;
    let take = async |body: axum::body::Body| match axum::body::to_bytes(body, BODY_MAX).await {
        Ok(_) => ANSWER.into_response(),
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
    };
    let router = Router::new().fallback(take);
    crate::print::print(format!("ready http://{address}"));
    let idle = Duration::from_secs(600);
    serving::serve(listener, router, idle, None, CancellationToken::new()).await;
    Ok(())
}

/// A request names one host (RFC 9112, 3.2): of two names a proxy before the node may have gone by
/// the other one. Only HTTP/1.0 may do without.
async fn one_host(request: Request, next: Next) -> Response {
    let hosts = request.headers().get_all(header::HOST).iter().take(2).count();
    let message = match hosts {
        0 if request.version() > Version::HTTP_10 => "the request has no Host header",
        0 | 1 => return next.run(request).await,
        _ => "the request has more than one Host header",
    };
    error(&request, StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

/// A listener on loopback answers callers that name this machine. A page in a browser that
/// reached it under another name, or that came from another site, is refused.
async fn only_local(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if is_local(&peer, request.headers()) {
        return next.run(request).await;
    }
    refused(&request)
}

fn refused(request: &Request) -> Response {
    let message = "this listener is for programs on this machine: the Host or Origin header names \
                   another one (--insecure-http serves others)";
    error(request, StatusCode::FORBIDDEN, "permission_error", message)
}

/// As the frontend's errors, in the dialect of the caller.
fn error(request: &Request, status: StatusCode, kind: &str, message: &str) -> Response {
    let id = RequestId(crate::startup::entropy::<16>().map_or(0, u128::from_le_bytes)).to_string();
    let path = request.uri().path();
    let messages =
        request.headers().contains_key("anthropic-version") || path.starts_with("/v1/messages");
    let body = match messages {
        true => json!({
            "type": "error",
            "error": { "type": kind, "message": message },
            "request_id": id,
        }),
        false => json!({
            "error": { "message": message, "type": kind, "param": null, "code": null },
        }),
    };
    let names = [("request-id", id.clone()), ("x-request-id", id)];
    (status, names, Json(body)).into_response()
}

async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([("content-type", kind)], crate::metrics::render(&node).await)
}

#[cfg(test)]
mod tests;
