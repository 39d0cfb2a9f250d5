use super::is_local;
use axum::http::HeaderMap;
use std::net::SocketAddr;

fn local(peer: &str, headers: &[(&'static str, &str)]) -> bool {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    is_local(&peer.parse::<SocketAddr>().unwrap(), &map)
}

#[test]
fn callers_on_this_machine_that_name_it_are_local() {
    assert!(local("127.0.0.1:5000", &[]));
    assert!(local("127.0.0.1:5000", &[("host", "127.0.0.1:8000")]));
    assert!(local("127.0.0.1:5000", &[("host", "localhost")]));
    assert!(local("[::1]:5000", &[("host", "[::1]:8000"), ("origin", "http://localhost:3000")]));
}

#[test]
fn other_machines_other_names_and_other_sites_are_not() {
    assert!(!local("10.0.0.7:5000", &[("host", "127.0.0.1:8000")]));
    assert!(!local("127.0.0.1:5000", &[("host", "evil.example:8000")]));
    assert!(!local("127.0.0.1:5000", &[("host", "127.0.0.1.evil.example")]));
    assert!(!local("127.0.0.1:5000", &[("origin", "https://evil.example")]));
    assert!(!local("127.0.0.1:5000", &[("origin", "null")]));
}
