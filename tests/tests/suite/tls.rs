//! The API over TLS: a certificate that is renewed, and settings that cannot be.

use crate::command::{Bench, ports};
use crate::kit::{eventually, http};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

fn certificate() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec!["localhost".into()]).unwrap()
}

/// Puts chain and key where the node reads them.
fn install(bench: &Bench, made: &CertifiedKey<KeyPair>) {
    bench.file("chain.pem", made.cert.pem());
    bench.file("key.pem", made.signing_key.serialize_pem());
    let only_mine = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.path("key.pem"), only_mine).unwrap();
}

/// What `/live` answers to a client that trusts this certificate only.
async fn live(port: u16, trusted: &CertificateDer<'static>) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|e| e.to_string())?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
    let request = "GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.map_err(|e| e.to_string())?;
    Ok(said)
}

#[tokio::test]
async fn the_api_speaks_tls_under_the_certificate_of_the_day() {
    let bench = Bench::new();
    let (first, second) = (certificate(), certificate());
    install(&bench, &first);
    let (port, cluster) = ports();
    let (admin, _) = ports();
    bench.file(
        "node.toml",
        "[http]\ntls_cert = \"chain.pem\"\ntls_key = \"key.pem\"\n[engine.mock]\nspeedup = 20.0\n",
    );
    let mut node = bench.spawn(&format!(
        "start --engine mock --config node.toml --data-dir data --http 127.0.0.1:{port} \
         --admin 127.0.0.1:{admin} --listen 127.0.0.1:{cluster}"
    ));
    eventually("it starts", async || {
        assert!(!node.has_ended(), "{}", node.stderr());
        node.stdout().starts_with(&format!("ready https://127.0.0.1:{port} ")).then_some(())
    })
    .await;
    let said = live(port, first.cert.der()).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("live\n"), "{said}");
    assert!(live(port, second.cert.der()).await.is_err(), "another certificate is not trusted");
    assert!(http().get(format!("http://127.0.0.1:{port}/live")).send().await.is_err());
    let status = http().get(format!("http://127.0.0.1:{admin}/admin/v1/status"));
    let status = status.send().await.unwrap().text().await.unwrap();
    assert!(status.contains(&format!("https://127.0.0.1:{port}")), "{status}");

    bench.file("chain.pem", "no certificate");
    eventually("the wrong file is told of", async || {
        node.stderr().contains("the former stays in use").then_some(())
    })
    .await;
    assert!(live(port, first.cert.der()).await.is_ok());
    install(&bench, &second);
    eventually("the new certificate is used", async || live(port, second.cert.der()).await.ok())
        .await;
}

#[test]
fn wrong_settings_of_tls_are_refused_in_words() {
    let bench = Bench::new();
    install(&bench, &certificate());
    let other = certificate().signing_key.serialize_pem();
    bench.file("other.pem", &other);
    let only_mine = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.path("other.pem"), only_mine).unwrap();
    bench.file("open.pem", &other);
    let (port, cluster) = ports();
    let (admin, _) = ports();
    let cases = [
        ("chain.pem", None, true, 2, "http.tls_key go together"),
        ("chain.pem", Some("key.pem"), false, 2, "listener of their own"),
        ("nowhere.pem", Some("key.pem"), true, 1, "nowhere.pem"),
        ("key.pem", Some("key.pem"), true, 1, "no certificate"),
        ("chain.pem", Some("open.pem"), true, 1, "others may read the TLS key"),
        ("chain.pem", Some("other.pem"), true, 1, "does not go with"),
    ];
    for (chain, key, with_admin, code, words) in cases {
        let key = key.map(|key| format!("tls_key = {key:?}\n")).unwrap_or_default();
        bench.file("node.toml", format!("[http]\ntls_cert = {chain:?}\n{key}"));
        let admin = if with_admin { format!("--admin 127.0.0.1:{admin}") } else { String::new() };
        let ended = bench.run(&format!(
            "start --engine mock --config node.toml --data-dir data --http 127.0.0.1:{port} {admin} \
             --listen 127.0.0.1:{cluster}"
        ));
        ended.refused_with(code, &[words]);
        assert!(!ended.stderr.contains("PRIVATE"), "no secret is shown");
    }
}
