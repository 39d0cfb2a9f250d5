//! API keys on a real node: who is let in, and a file that changes.

use crate::command::{Bench, free_ports};
use crate::kit::{binary, eventually, http};
use load::fleet::{Fleet, FleetOptions};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn status(url: &str, key: &str) -> u16 {
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3});
    let request = http().post(format!("{url}/v1/chat/completions")).bearer_auth(key);
    request.json(&body).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn keys_let_in_and_a_changed_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    let tenant = |key: &str| format!("[[tenant]]\nname = \"a\"\nkeys = [\"{key}\"]\n");
    let (first, second) = ("the-first-key-of-a", "the-second-key-of-a");
    write(&file, &tenant(first), 0o600);
    let mut options = FleetOptions::new(binary(), 1);
    options.config =
        format!("[http]\nkeys = {:?}\n[engine.mock]\nspeedup = 20.0\n", file.display());
    options.per_node = vec![Default::default()];
    options.per_node[0].args = vec!["--engine".into(), "mock".into()];
    let fleet = Fleet::start(options).await.unwrap();
    let url = fleet.node(0).http().to_owned();
    assert_eq!(status(&url, first).await, 200);
    assert_eq!(status(&url, second).await, 401);
    // A file that says nonsense changes nothing; one that is right does.
    write(&file, "[[tenant]]\nname = 5\n", 0o600);
    eventually("the wrong file is told of", async || {
        fleet.node(0).log_tail().contains("the former stay good").then_some(())
    })
    .await;
    assert_eq!(status(&url, first).await, 200);
    write(&file, &tenant(second), 0o600);
    eventually("the new key is good", async || (status(&url, second).await == 200).then_some(()))
        .await;
    assert_eq!(status(&url, first).await, 401, "the old one no more");
    // What the node does is for callers on this machine and the admin key: a page is neither.
    let metrics = async |key: Option<&str>, page: bool| {
        let mut request = http().get(format!("{url}/metrics"));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        if page {
            request = request.header("origin", "http://localhost:3000");
        }
        request.send().await.unwrap().status().as_u16()
    };
    let admin = std::fs::read_to_string(fleet.node(0).data_dir().join("admin-key")).unwrap();
    assert_eq!(metrics(None, false).await, 200);
    assert_eq!(metrics(None, true).await, 403);
    assert_eq!(metrics(Some(second), true).await, 403, "a tenant's key is not the admin's");
    assert_eq!(metrics(Some(admin.trim()), true).await, 200);
    let log = fleet.node(0).log_tail();
    assert!(!log.contains(first) && !log.contains(second), "{log}");
}

#[test]
fn a_wrong_file_of_keys_is_refused_in_words_without_its_keys() {
    let bench = Bench::new();
    let secret = "a-very-secret-key-000";
    let file = bench.path("keys.toml");
    let config = bench.file("node.toml", format!("[http]\nkeys = {:?}\n", file.display()));
    for (text, mode, words) in [
        (format!("[[tenant]]\nname = \"a\"\nkeys = \"{secret}\"\n"), 0o600, "line 3"),
        (
            format!("[[tenant]]\nname = \"a\"\nkeyz = [\"{secret}\"]\n"),
            0o600,
            "unknown field `keyz`",
        ),
        (format!("[[tenant]]\nname = \"a b\"\nkeys = [\"{secret}\"]\n"), 0o600, "`a b` is no name"),
        ("[[tenant]]\nname = \"a\"\nkeys = [\"short\"]\n".into(), 0o600, "16 or more"),
        (format!("[[tenant]]\nname = \"a\"\nkeys = [\"{secret}\"]\n"), 0o640, "others may read"),
    ] {
        write(&file, &text, mode);
        let start = format!("start --engine mock --config {config} --data-dir d {}", free_ports());
        let ended = bench.run(&start);
        let (error, _) = ended.refused(1);
        assert!(error.contains(words), "{error:?} does not say {words:?}");
        assert!(!ended.stderr.contains(secret) && !ended.stderr.contains("\"short\""), "{ended:?}");
        std::fs::remove_dir_all(bench.path("d")).ok();
    }
    std::fs::remove_file(&file).unwrap();
    let start = format!("start --engine mock --config {config} --data-dir d {}", free_ports());
    bench.run(&start).refused_with(1, &["cannot read the API keys"]);
}
