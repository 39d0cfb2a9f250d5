//! Connections of an HTTP listener: accepted, served, closed when nothing comes.

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Most bytes of a request's head, and of its body at a time: anybody may send so many before a key is
/// looked at.
const HEAD_MAX: usize = 64 << 10;
/// After an accept that failed, which is mostly for want of file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Serves until `stop`, then ends the connections after the answers that are under way. A
/// connection on which no request has begun, or no whole head has come, for `idle` is closed. With
/// `tls` nothing else is spoken.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    idle: Duration,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(HEAD_MAX);
    let connections = GracefulShutdown::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        // Tokens are small and shall not wait for each other.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "no TCP_NODELAY");
        }
        let router = router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().call(request.map(Body::new))
        });
        let (http, watcher, tls) = (http.clone(), connections.watcher(), tls.clone());
        let stop = stop.clone();
        tokio::spawn(async move {
            // A connection that says nothing costs neither a buffer nor a parser.
            // Nor does the node wait for it when it stops.
            let mut byte = [0];
            let first = tokio::time::timeout(idle, stream.peek(&mut byte));
            match stop.run_until_cancelled(first).await {
                Some(Ok(Ok(1..))) => {}
                // Silence, the end, or an error.
                _ => return,
            }
            let ended = match tls {
                None => {
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    Box::pin(watcher.watch(connection)).await
                }
                Some(tls) => match stop
                    .run_until_cancelled(Box::pin(tokio::time::timeout(idle, tls.accept(stream))))
                    .await
                {
                    Some(Ok(Ok(stream))) => {
                        let connection = http.serve_connection(TokioIo::new(stream), service);
                        Box::pin(watcher.watch(connection)).await
                    }
                    Some(Ok(Err(error))) => {
                        tracing::debug!(%peer, %error, "no TLS with a client");
                        return;
                    }
                    Some(Err(_)) | None => return,
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "an HTTP connection broke");
            }
        });
    }
    connections.shutdown().await;
}
