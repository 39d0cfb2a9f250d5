//! HTTP/1.1 as thin as a load generator may have it: prepared bytes out, the answer's end in.
//!
//! On a machine with few cores the client takes CPU from the node that it measures, so nothing is
//! parsed but what tells where an answer ends.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;
/// The end of a body that is sent in chunks. Our streams hold no carriage return, so nothing else
/// ends so.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A kept connection, one request at a time.
pub(super) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

/// The bytes of a POST request.
pub(super) fn post(host: SocketAddr, path: &str, session: Option<&str>, body: &str) -> Vec<u8> {
    let session = session.map(|id| format!("x-dynamo-session-id: {id}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{session}\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Where a body ends.
#[derive(Debug, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunks,
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body: Body,
}

impl Head {
    /// None while it is not whole.
    fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let mut lines = text.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| odd("no status line"))?;
        let mut body = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match (name, value.trim()) {
                ("content-length", length) => {
                    body = Some(Body::Length(length.parse().map_err(|_| odd("odd length"))?));
                }
                ("transfer-encoding", "chunked") => body = Some(Body::Chunks),
                _ => {}
            }
        }
        let body = body.ok_or_else(|| odd("neither a length nor chunks"))?;
        Ok(Some(Self { status, bytes: end + 4, body }))
    }

    fn is_whole(&self, read: &[u8]) -> bool {
        match self.body {
            Body::Length(length) => read.len() >= self.bytes + length,
            Body::Chunks => read.get(self.bytes..).is_some_and(|b| b.ends_with(LAST_CHUNK)),
        }
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("the answer has {what}"))
}

impl Wire {
    pub(super) async fn connect(host: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(16 << 10) })
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.read.len() > ANSWER_MAX {
            return Err(odd("no end"));
        }
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn head(&mut self, request: &[u8]) -> io::Result<Head> {
        self.read.clear();
        self.stream.write_all(request).await?;
        loop {
            self.more().await?;
            if let Some(head) = Head::read(&self.read)? {
                return Ok(head);
            }
        }
    }

    /// Sends a request and reads the whole answer; any status but 200 is an error with its body.
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        let head = self.head(request).await?;
        while !head.is_whole(&self.read) {
            self.more().await?;
        }
        let body = self.read.get(head.bytes..).unwrap_or_default();
        if head.status == 200 {
            return Ok(body);
        }
        let text: String = String::from_utf8_lossy(body).chars().take(300).collect();
        Err(io::Error::other(format!("status {}: {text}", head.status)))
    }

    /// Sends a request, waits until the answer has begun, and goes away.
    pub(super) async fn abandon(mut self, request: &[u8]) -> io::Result<()> {
        let head = self.head(request).await?;
        while self.read.len() <= head.bytes {
            self.more().await?;
        }
        if head.status == 200 { Ok(()) } else { Err(odd(&format!("status {}", head.status))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_found() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx: y\r\n\r\nabc";
        for cut in 0..plain.len() {
            match Head::read(&plain[..cut]).unwrap() {
                None => assert!(cut < plain.len() - 3),
                Some(head) => assert!(!head.is_whole(&plain[..cut])),
            }
        }
        let head = Head::read(plain).unwrap().unwrap();
        assert_eq!((head.status, head.is_whole(plain)), (200, true));
        let chunks =
            b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n4\r\n10\n\n\r\n0\r\n\r\n";
        let head = Head::read(chunks).unwrap().unwrap();
        assert_eq!((head.status, head.is_whole(chunks)), (503, true));
        assert!(!head.is_whole(&chunks[..chunks.len() - 5]));
        for wrong in
            ["HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "a 2 b\r\ncontent-length: x\r\n\r\n"]
        {
            assert!(Head::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_names_its_length() {
        let bytes = post("127.0.0.1:1".parse().unwrap(), "/v1/x", Some("s"), "{\"é\":1}");
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:1\r\n"), "{text}");
        assert!(text.contains("x-dynamo-session-id: s\r\n") && text.contains("length: 8\r\n"));
    }
}
