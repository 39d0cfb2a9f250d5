//! Random bytes on every port: the node lives and serves.

use crate::kit::{Cluster, eventually};
use crate::models::tiny;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Connections and datagrams per port.
const TRIES: u64 = 60;

/// Deterministic noise.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

/// Some noise begins like something real: an HTTP request, a multistream header, a QUIC Initial.
fn dressed(seed: u64) -> Vec<u8> {
    let noise = noise(seed, (seed as usize * 37) % 1400 + 1);
    let start: &[u8] = match seed % 6 {
        0 => b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000000\r\n\r\n{",
        1 => b"\x13/multistream/1.0.0\n",
        2 => b"\xc3\x00\x00\x00\x01\x08abcdefgh\x08abcdefgh\x00",
        3 => b"GET /admin/v1/status HTTP/1.1\r\nhost: ",
        _ => b"",
    };
    [start, &noise].concat()
}

/// Sends noise on a TCP port. Some connections are left open and silent: they are returned.
fn throw(addr: SocketAddr) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for seed in 0..TRIES {
        let mut stream = TcpStream::connect(addr).unwrap();
        // The other side may hang up at any byte.
        let _ = stream.write_all(&dressed(seed));
        match seed % 3 {
            0 => open.push(stream),
            1 => drop(stream),
            _ => {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                let _ = stream.read(&mut [0; 512]);
            }
        }
    }
    open
}

#[tokio::test]
async fn random_bytes_on_every_port_change_nothing() {
    let mut cluster = Cluster::plain(&tiny(), 2).await;
    let http: SocketAddr =
        cluster.fleet.node(0).http().trim_start_matches("http://").parse().unwrap();
    let member = cluster.fleet.node(0).cluster_addr();
    let (mut open, socket) = (throw(http), UdpSocket::bind("127.0.0.1:0").unwrap());
    open.extend(throw(member));
    for seed in 0..TRIES * 5 {
        let mut datagram = dressed(seed);
        // A QUIC Initial counts only from 1,200 bytes on.
        if seed % 2 == 0 {
            datagram.resize(1200, 0);
        }
        let _ = socket.send_to(&datagram, member);
    }
    // With the silent connections still open, both nodes serve, and the second talks to the first.
    let answer = cluster.answer(&cluster.call(0, "Hello")).await;
    assert_eq!(answer.completion_tokens, answer.token_ids.len() as u64);
    let mut far = cluster.call(1, "Hello from afar");
    far.target = Some(cluster.id(0));
    assert_eq!(cluster.answer(&far).await.serving_node, cluster.id(0));
    cluster.sees(1, &cluster.id(0), "alive").await;
    // A node that comes back finds its way in beside the noise.
    cluster.fleet.node_mut(1).restart().await.unwrap();
    cluster.fleet.wait_whole(Duration::from_secs(60)).await.unwrap();
    drop(open);
    eventually("health", async || {
        let response = cluster.http.get(cluster.url(0, "/health")).send().await.ok()?;
        response.status().is_success().then_some(())
    })
    .await;
    let view = cluster.view(0, &cluster.id(0)).await;
    assert_eq!(view["incarnation"], 1, "it is still the first life: {view}");
}
