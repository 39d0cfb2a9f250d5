//! A client that goes away takes its request with it, over a real connection.

use crate::cluster::{CHAT, Fake, MESSAGES, Script, open};
use frontend::Limits;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn closing_the_connection_cancels() {
    for (path, stream, script) in [
        (CHAT, true, Script::Hang("hello".into())),
        (CHAT, false, Script::Hang("hello".into())),
        (MESSAGES, true, Script::Wait),
        (MESSAGES, false, Script::Wait),
    ] {
        let fake = Arc::new(Fake::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = frontend::router(fake.clone(), open(), Limits::default());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let body = json!({
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "stream": stream,
        })
        .to_string();
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(body.as_bytes()).await.unwrap();
        fake.came.acquire().await.unwrap().forget();
        if stream && path == CHAT {
            let mut first = [0; 15];
            client.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"HTTP/1.1 200 OK");
        }
        assert_eq!(fake.cancelled.available_permits(), 0);
        drop(client);
        let cancelled = tokio::time::timeout(Duration::from_secs(30), fake.cancelled.acquire());
        cancelled.await.expect("cancelled").unwrap().forget();
        server.abort();
    }
}
