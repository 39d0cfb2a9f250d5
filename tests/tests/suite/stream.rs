//! Reads a streamed answer as it comes, so that a test can act in the middle of it.

use crate::kit::{Cluster, PATIENCE};
use load::client::Dialect;
use serde_json::{Value, json};

/// A streamed answer under way. Dropping it hangs up.
pub(crate) struct Stream {
    response: reqwest::Response,
    text: String,
}

/// A body that generates `max_tokens` tokens; streamed or not.
pub(crate) fn body(cluster: &Cluster, text: &str, max_tokens: u32, stream: bool) -> Value {
    json!({
        "model": cluster.model,
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
        "nvext": { "extra_fields": ["route", "token_ids"] },
    })
}

/// The path of a dialect.
pub(crate) fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "/v1/chat/completions",
        Dialect::Messages => "/v1/messages",
    }
}

impl Stream {
    /// Sends a body to a node; the answer must be a stream.
    pub(crate) async fn open(
        cluster: &Cluster,
        node: usize,
        dialect: Dialect,
        body: &Value,
    ) -> Self {
        let request = cluster.http.post(cluster.url(node, path(dialect))).json(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, text: String::new() }
    }

    /// Reads until generated text has come.
    pub(crate) async fn content(&mut self) {
        let begun = |text: &str| text.contains("text_delta") || has_content(text);
        while !begun(&self.text) {
            assert!(self.more().await, "the stream ended before content came: {}", self.text);
        }
    }

    /// Reads to the end; returns the data of all events. The connection must not break.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        while self.more().await {}
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(str::to_owned).collect()
    }

    async fn more(&mut self) -> bool {
        let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
        match chunk.expect("the stream goes on").expect("the connection holds") {
            Some(bytes) => {
                self.text.push_str(&String::from_utf8_lossy(&bytes));
                true
            }
            None => false,
        }
    }
}

/// Whether a Chat chunk with text has come: the first one has the role and no text.
fn has_content(text: &str) -> bool {
    text.matches("\"content\":\"").count() > text.matches("\"content\":\"\"").count()
}
