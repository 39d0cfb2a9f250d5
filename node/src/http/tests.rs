use super::{one_host, refused};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::routing::get;
use serde_json::Value;
use tower::ServiceExt;

#[tokio::test]
async fn strangers_are_refused_in_their_dialect() {
    for (path, version, messages) in [
        ("/v1/messages", false, true),
        ("/v1/messages/count_tokens", false, true),
        ("/v1/models", true, true),
        ("/v1/models", false, false),
        ("/v1/chat/completions", false, false),
    ] {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        if version {
            let version = HeaderValue::from_static("2023-06-01");
            request.headers_mut().insert("anthropic-version", version);
        }
        let response = refused(&request);
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let id = response.headers()["request-id"].to_str().unwrap().to_owned();
        let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let error = body["error"].as_object().unwrap();
        assert_eq!(error["type"], "permission_error");
        assert!(error["message"].as_str().unwrap().contains("Host or Origin"));
        if messages {
            assert_eq!(body["type"], "error");
            assert_eq!(body["request_id"], id.as_str());
        } else {
            assert!(error["param"].is_null() && error["code"].is_null(), "{body}");
        }
    }
}

#[tokio::test]
async fn a_request_names_one_host() {
    let ask = async |path: &str, hosts: &[&'static str]| ask(Version::HTTP_11, path, hosts).await;
    assert_eq!(ask("/live", &["localhost"]).await.0, StatusCode::OK);
    // Also where there is nothing, and when both say the same.
    for path in ["/live", "/v1/messages", "/v1/nothing"] {
        for hosts in [&[][..], &["localhost", "localhost"], &["localhost", "evil.example"]] {
            let (status, body) = ask(path, hosts).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["error"]["type"], "invalid_request_error");
            assert_eq!(body["type"] == "error", path == "/v1/messages", "{body}");
        }
    }
}

#[tokio::test]
async fn http_1_0_knows_no_host() {
    assert_eq!(ask(Version::HTTP_10, "/live", &[]).await.0, StatusCode::OK);
    let two = ask(Version::HTTP_10, "/live", &["localhost", "evil.example"]).await;
    assert_eq!(two.0, StatusCode::BAD_REQUEST);
}

async fn ask(version: Version, path: &str, hosts: &[&'static str]) -> (StatusCode, String) {
    let router = Router::new().route("/live", get(async || "live"));
    let router: Router = router.layer(axum::middleware::from_fn(one_host));
    let mut request = Request::new(Body::empty());
    *request.version_mut() = version;
    *request.uri_mut() = path.parse().unwrap();
    for &host in hosts {
        request.headers_mut().append("host", HeaderValue::from_static(host));
    }
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}
