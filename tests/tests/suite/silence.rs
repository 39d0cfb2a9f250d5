//! Connections on which nothing comes are closed; answers under way are not cut.

use crate::kit::binary;
use load::fleet::{Fleet, FleetOptions};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed_and_slow_answers_are_not() {
    let mut options = FleetOptions::new(binary(), 1);
    // Thirty tokens take some seconds.
    options.config = "[http]\nidle_s = 1\n[engine.mock]\nspeedup = 0.1\n".into();
    options.per_node = vec![Default::default()];
    options.per_node[0].args = vec!["--engine".into(), "mock".into()];
    let fleet = Fleet::start(options).await.unwrap();
    let address: SocketAddr = fleet.node(0).http().trim_start_matches("http://").parse().unwrap();
    let said = tokio::task::spawn_blocking(move || {
        let open = |text: String| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        let head = |path: &str, length: usize| {
            format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n")
        };
        let body = json!({
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 30, "stream": true,
        })
        .to_string();
        let streams = [
            open(String::new()),
            open("GET /v1/models HTTP/1.1\r\nhost: ".into()),
            open(head("/v1/messages", 100) + "{\"mess"),
            open(format!("GET /live HTTP/1.1\r\nhost: {address}\r\n\r\n")),
            open(head("/v1/chat/completions", body.len()) + &body),
        ];
        // Each comes to its end by itself.
        streams.map(|mut stream| {
            let mut said = String::new();
            let _reset = stream.read_to_string(&mut said);
            said
        })
    })
    .await
    .unwrap();
    let [silent, half_head, half_body, kept, answer] = said;
    assert_eq!(silent, "");
    assert!(half_head.is_empty() || half_head.starts_with("HTTP/1.1 408"), "{half_head}");
    assert!(half_body.starts_with("HTTP/1.1 408"), "{half_body}");
    assert!(half_body.contains("timeout_error"), "in the words of the dialect: {half_body}");
    assert!(kept.starts_with("HTTP/1.1 200") && kept.ends_with("live\n"), "{kept}");
    assert!(answer.contains("data: [DONE]"), "{answer}");
}

#[tokio::test]
async fn a_silent_connection_does_not_keep_a_node_from_stopping() {
    let mut options = FleetOptions::new(binary(), 1);
    options.per_node = vec![Default::default()];
    options.per_node[0].args = vec!["--engine".into(), "mock".into()];
    let mut fleet = Fleet::start(options).await.unwrap();
    let address: SocketAddr = fleet.node(0).http().trim_start_matches("http://").parse().unwrap();
    let _silent = TcpStream::connect(address).unwrap();
    // It has been accepted when a later one is answered.
    let mut other = TcpStream::connect(address).unwrap();
    let ask = format!("GET /live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    other.write_all(ask.as_bytes()).unwrap();
    let mut said = String::new();
    other.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    fleet.node(0).terminate().unwrap();
    let status = fleet.node_mut(0).wait_exit(Duration::from_secs(60)).await.unwrap();
    assert!(status.success());
    let log = std::fs::read_to_string(fleet.node(0).log_file()).unwrap();
    assert!(!log.contains("did not end in time"), "{log}");
}
