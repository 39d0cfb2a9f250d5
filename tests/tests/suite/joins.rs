//! Joining that must not succeed: each attempt ends with one readable line and one of help.

use crate::command::{Bench, copy_folder, free_ports};
use crate::kit::{Cluster, eventually, http};
use crate::models::tiny;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The options every attempt shares; a data folder per name.
fn options(name: &str) -> String {
    format!("--model {} --data-dir {name} {}", tiny().display(), free_ports())
}

#[tokio::test]
async fn tokens_that_do_not_open_the_door() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let stranger = Cluster::plain(&tiny(), 1).await;
    let bench = Bench::new();
    let peer = cluster.fleet.node(0).cluster_addr();
    let token =
        std::fs::read_to_string(cluster.fleet.node(0).data_dir().join("join-token")).unwrap();
    let attempt = |name: &str, token_file: Option<&str>| {
        let token = token_file.map_or(String::new(), |file| format!("--token-file {file}"));
        bench.run(&format!("join {peer} {token} {}", options(name)))
    };

    let foreign = stranger.fleet.node(0).data_dir().join("join-token").display().to_string();
    attempt("foreign", Some(&foreign)).refused_with(1, &["not valid for this cluster"]);
    let mut flipped = token.trim().to_owned();
    let last = if flipped.ends_with('0') { "1" } else { "0" };
    flipped.replace_range(flipped.len() - 1.., last);
    attempt("flipped", Some(&bench.file("flipped-token", flipped))).refused_with(2, &["damaged"]);
    let half = &token.trim()[..token.len() / 2];
    attempt("half", Some(&bench.file("half-token", half))).refused_with(2, &["damaged"]);
    attempt("words", Some(&bench.file("words-token", "let me in")))
        .refused_with(2, &["not a join token"]);
    attempt("absent", Some("no-such-file")).refused_with(2, &["no-such-file"]);
    attempt("none", None).refused_with(2, &["no join token"]);

    // One that is expired, and one whose only use is spent.
    let url = cluster.url(0, "/admin/v1/token");
    let make = async |hours: u64, uses: u32| {
        let body = json!({ "hours": hours, "uses": uses, "issuer": false });
        let answer = http().post(&url).json(&body).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        answer["token"].as_str().unwrap().to_owned()
    };
    let expired = bench.file("expired-token", make(0, 1).await);
    let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let made = unix();
    eventually("the token expires", async || (unix() > made + 1).then_some(())).await;
    attempt("expired", Some(&expired)).refused_with(1, &["expired"]);
    let once = bench.file("once-token", make(1, 1).await);
    let mut first = bench.spawn(&format!("join {peer} --token-file {once} {}", options("first")));
    eventually("the first use is admitted", async || {
        assert!(!first.has_ended());
        first.stdout().starts_with("ready ").then_some(())
    })
    .await;
    attempt("second", Some(&once)).refused_with(1, &["used up"]);
}

#[tokio::test]
async fn peers_that_are_not_there() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let bench = Bench::new();
    let token = cluster.fleet.node(0).data_dir().join("join-token").display().to_string();
    let attempt = |peer: &str| {
        bench.run(&format!("join {peer} --token-file {token} {}", options("newcomer")))
    };
    attempt("127.0.0.1:1").refused_with(1, &["127.0.0.1:1", "no member answers"]);
    attempt("nowhere").refused_with(2, &["nowhere"]);
    attempt("dnt1-half-a-ticket").refused_with(2, &["dnt1-half-a-ticket"]);
    attempt("no-such-host.invalid:7600").refused_with(1, &["no-such-host.invalid"]);
    // The same data folder gets in once the peer is right: nothing was spoilt. By ticket this time.
    let ticket = bench.run(&format!("ticket --node {}", cluster.fleet.node(0).http()));
    assert_eq!(ticket.code, Some(0), "{ticket:?}");
    let join =
        format!("join {} --token-file {token} {}", ticket.stdout.trim(), options("newcomer"));
    let mut joined = bench.spawn(&join);
    eventually("a node joins by ticket", async || {
        assert!(!joined.has_ended());
        joined.stdout().starts_with("ready http://").then_some(())
    })
    .await;
    let status = cluster.get(0, "/admin/v1/status").await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
    // Nothing secret is in a ticket; the token's file is for its owner alone.
    assert!(!ticket.stdout.contains("dn1-"));
    let mode = std::fs::metadata(&token).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[tokio::test]
async fn a_copied_key_does_not_join_beside_the_original() {
    let cluster = Cluster::plain(&tiny(), 2).await;
    let bench = Bench::new();
    std::fs::create_dir(bench.path("stolen")).unwrap();
    let original = cluster.fleet.node(1).data_dir().join("node.key");
    std::fs::copy(original, bench.path("stolen/node.key")).unwrap();
    let token = cluster.fleet.node(0).data_dir().join("join-token").display().to_string();
    let peer = cluster.fleet.node(0).cluster_addr();
    let join = format!("join {peer} --token-file {token} {}", options("stolen"));
    bench.run(&join).refused_with(1, &["a live member has this identity", "--new-identity"]);
    // With a new identity the same folder is welcome.
    let mut joined = bench.spawn(&format!("{join} --new-identity"));
    eventually("it joins as somebody else", async || {
        assert!(!joined.has_ended());
        joined.stdout().starts_with("ready ").then_some(())
    })
    .await;
    cluster.sees(0, &cluster.id(1), "alive").await;
}

#[tokio::test]
async fn a_copied_data_folder_is_found_out() {
    let mut cluster = Cluster::plain(&tiny(), 2).await;
    let bench = Bench::new();
    cluster.fleet.node(1).terminate().unwrap();
    cluster.fleet.node_mut(1).wait_exit(std::time::Duration::from_secs(20)).await.unwrap();
    copy_folder(&cluster.fleet.node(1).data_dir(), &bench.path("copy"));
    cluster.fleet.node_mut(1).restart().await.unwrap();
    let mut copy = bench.spawn(&format!("start {}", options("copy")));
    let original = cluster.fleet.node(1).http().to_owned();
    let stopped = eventually("one of the twins stops, or both", async || {
        let answers = http().get(format!("{original}/health")).send().await.is_ok();
        (copy.has_ended() || !answers).then_some(copy.has_ended())
    })
    .await;
    let log = if stopped {
        let ended = copy.ended(std::time::Duration::from_secs(1));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        ended.stderr
    } else {
        let patience = std::time::Duration::from_secs(20);
        let exit = cluster.fleet.node_mut(1).wait_exit(patience).await.unwrap();
        assert_eq!(exit.code(), Some(1));
        cluster.fleet.node(1).log_tail()
    };
    assert!(log.contains("error: another live process has this node's identity"), "{log}");
    assert!(log.contains("help: ") && log.contains("--new-identity"), "{log}");
    // The rest of the cluster serves.
    cluster.answer(&cluster.bound(0, "Hello", "salt")).await;
}
