//! How a user names a member to join through, and hands over a token.

use crate::cli::JoinArgs;
use crate::fault::Fault;
use crate::files::read_text;
use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use protocol::trust::JoinToken;
use std::io::{BufRead, IsTerminal};
use std::net::SocketAddr;
use zeroize::Zeroizing;

/// Addresses behind `host:port`, a multiaddr (`/ip4/…/tcp/…`) or a ticket (`dnt1-…@addr,addr`).
pub(super) async fn resolve(peer: &str) -> Result<Vec<SocketAddr>, Fault> {
    let bad = || {
        Fault::usage(
            format!("{peer:?} is not a peer"),
            "give host:port, a multiaddr as /ip4/10.0.0.1/tcp/7600, or a ticket",
        )
    };
    if let Some(ticket) = peer.strip_prefix("dnt1-") {
        let (_, addresses) = ticket.split_once('@').ok_or_else(bad)?;
        let parsed: Option<Vec<SocketAddr>> =
            addresses.split(',').map(|a| a.parse().ok()).collect();
        return parsed.filter(|addresses| !addresses.is_empty()).ok_or_else(bad);
    }
    if peer.starts_with('/') {
        return Ok(vec![from_multiaddr(peer).ok_or_else(bad)?]);
    }
    if peer.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(bad());
    }
    let found = tokio::net::lookup_host(peer).await.map_err(|error| {
        Fault::new(format!("cannot look up {peer}: {error}"), "check the host name")
    })?;
    Ok(found.collect())
}

fn from_multiaddr(text: &str) -> Option<SocketAddr> {
    let address: Multiaddr = text.parse().ok()?;
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => ip.into(),
        Protocol::Ip6(ip) => ip.into(),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) | Protocol::Udp(port) => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// The token from the file, the variable DYNAMO_JOIN_TOKEN, or typed at a prompt; never argv.
pub(super) fn token(args: &JoinArgs) -> Result<JoinToken, Fault> {
    let help = "copy DATA_DIR/join-token of a member to this machine and name it with --token-file";
    let text = match (&args.token_file, std::env::var("DYNAMO_JOIN_TOKEN")) {
        (Some(file), _) => read_text(file).map_err(|error| {
            Fault::usage(format!("cannot read the token file {}: {error}", file.display()), help)
        })?,
        (None, Ok(text)) => text,
        (None, Err(_)) if std::io::stdin().is_terminal() => {
            eprint!("join token: ");
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(|e| Fault::new(e, help))?;
            line
        }
        (None, Err(_)) => return Err(Fault::usage("no join token was given", help)),
    };
    JoinToken::parse(&Zeroizing::new(text)).map_err(|error| Fault::usage(error.to_string(), help))
}
