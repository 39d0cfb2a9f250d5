use super::{is_local, is_program_here};
use axum::http::HeaderMap;
use std::net::SocketAddr;

fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().unwrap());
    }
    map
}

fn local(peer: &str, headers: &[(&'static str, &str)]) -> bool {
    is_local(&peer.parse::<SocketAddr>().unwrap(), &map(headers))
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

#[test]
fn what_a_proxy_or_a_page_passes_on_does_not_come_from_here() {
    let peer: SocketAddr = "127.0.0.1:5000".parse().unwrap();
    let here = |more: Option<(&'static str, &'static str)>| {
        let host = ("host", "127.0.0.1:8000");
        let headers: Vec<_> = std::iter::once(host).chain(more).collect();
        is_program_here(&peer, &map(&headers))
    };
    assert!(here(None));
    for odd in [
        ("forwarded", "for=10.0.0.7"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "localhost"),
        ("x-forwarded-proto", "http"),
        ("x-real-ip", "10.0.0.7"),
        ("via", "1.1 proxy"),
        ("origin", "http://localhost:3000"),
    ] {
        assert!(!here(Some(odd)), "{odd:?}");
    }
}
