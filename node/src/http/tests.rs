use super::refused;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use serde_json::Value;

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
