//! Free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// Ports of one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    /// HTTP listener.
    pub(super) http: u16,
    /// Cluster listener, UDP and TCP; the next number, TCP only, is the node's too.
    pub(super) cluster: u16,
}

/// Candidates for the cluster port before giving up: the system offers ports free for TCP, and
/// one that is taken for UDP is rare.
const TRIES: usize = 32;

/// Picks ports that are free now. Another process may take them before the node binds them: the
/// caller starts again with new ones then.
pub(super) fn pick() -> io::Result<Ports> {
    let http = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    for _ in 0..TRIES {
        let cluster = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = cluster.local_addr()?.port();
        let Some(next) = port.checked_add(1) else { continue };
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && TcpListener::bind((Ipv4Addr::LOCALHOST, next)).is_ok()
        {
            return Ok(Ports { http: http.local_addr()?.port(), cluster: port });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "no port is free for TCP and UDP together with the next one",
    ))
}
