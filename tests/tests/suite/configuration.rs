//! Configuration: files, variables and flags; what is wrong in them; what `deploy/` holds.

use crate::command::{Bench, free_ports, ports};
use crate::kit::{eventually, http};
use crate::models::tiny;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy").join(file)
}

#[test]
fn wrong_configuration_files() {
    let bench = Bench::new();
    for (number, (content, words)) in [
        ("[engine]\nmodle = \"x\"", ["modle", "line 2"]),
        ("[engin]\nthreads = 1", ["engin", "line 1"]),
        ("[engine]\n\nthreads = \"two\"", ["two", "line 3"]),
        ("[http]\nlisten = \"somewhere\"", ["listen", "line 2"]),
        ("[node]\nsite = 5", ["invalid type", "line 2"]),
        ("this is not TOML", ["line 1", "expected"]),
        ("[gossip]\nheartbeat_ms = 5000", ["heartbeat_ms", "suspect_ms"]),
        ("[placement]\npolicy = \"fastest\"", ["fastest", "round-robin"]),
        ("[engine]\nthreads = 0", ["engine.threads", "at least 1"]),
        ("[log]\nformat = \"xml\"", ["xml", "format"]),
        ("[engine]\nkind=\"mock\"\n[engine.mock]\nspeedup = 5e-324", ["speedup", "0.001"]),
        (
            "[engine]\nkind=\"mock\"\n[engine.mock]\nblock_tokens = 2147483648",
            ["block_tokens", "16"],
        ),
        ("[engine]\nkind=\"mock\"\n[engine.mock]\nkv_tokens = 4294967295", ["kv_tokens", "blocks"]),
        ("[http]\nlisten = \"0.0.0.0:0\"", ["0.0.0.0:0", "API keys"]),
        ("[cluster]\nlisten = \"0.0.0.0:7600\"", ["0.0.0.0:7600", "reach"]),
    ]
    .into_iter()
    .enumerate()
    {
        let file = bench.file(&format!("{number}.toml"), content);
        bench.run(&format!("start --config {file} --data-dir data")).refused_with(2, &words);
    }
    for (key, nearest) in [("modle", "`model`"), ("max_bach", "`max_batch`")] {
        let file = bench.file("nearest.toml", format!("[engine]\n{key} = 1"));
        let (_, help) = bench.run(&format!("start --config {file} --data-dir data")).refused(2);
        assert!(help.contains(nearest), "{help}");
    }
    let huge = bench.file("huge.toml", "[nvme]\nmib = 1000000000");
    let start = format!("start --engine mock --config {huge} --data-dir huge {}", free_ports());
    bench.run(&start).refused_with(1, &["nvme.mib", "disk"]);
    bench.run("start --config absent.toml --data-dir data").refused_with(2, &["absent.toml"]);
    let endless = bench.run("start --config /dev/zero --data-dir data");
    endless.refused_with(2, &["/dev/zero", "longer than"]);
    assert!(!bench.path("data").exists(), "nothing was made");
}

#[test]
fn wrong_arguments() {
    let bench = Bench::new();
    for (arguments, word) in [
        ("start --http nonsense", "nonsense"),
        ("start --engine vllm", "vllm"),
        ("start --engine steam", "steam"),
        ("start --policy fastest", "fastest"),
        ("start --modle x", "--modle"),
        ("join", "PEER"),
        ("dance", "dance"),
        ("token --out x --hours 0", "hours"),
        ("route explain absent.json", "absent.json"),
    ] {
        bench.run(arguments).refused_with(2, &[word]);
    }
    let file = bench.file("broken.json", "{");
    bench.run(&format!("route explain {file}")).refused_with(2, &["broken.json"]);
    for verb in ["status", "leave", "ticket", "token --out x"] {
        let ended = bench.run(&format!("{verb} --node http://127.0.0.1:1"));
        ended.refused_with(1, &["no node answers at http://127.0.0.1:1"]);
    }
}

#[tokio::test]
async fn the_example_file_works_and_flags_beat_variables_beat_files() {
    let bench = Bench::new();
    let (port, cluster) = ports();
    let arguments = format!(
        "start --config {} --model {} --http 127.0.0.1:{port} --listen 127.0.0.1:{cluster}",
        deploy("dynamo-node.toml").display(),
        tiny().display(),
    );
    let folder = bench.path("data").display().to_string();
    let variables = [
        ("DYNAMO_DATA_DIR", folder.as_str()),
        ("DYNAMO_HTTP", "127.0.0.1:1"),
        ("DYNAMO_SITE", "attic"),
    ];
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut node = bench.spawn_with(&arguments, &variables);
    eventually("it starts with the example file", async || {
        assert!(!node.has_ended());
        node.stdout().starts_with(&format!("ready http://127.0.0.1:{port} node=")).then_some(())
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/admin/v1/status");
    let status: Value = http().get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(status["nodes"][0]["site"], "attic");
    assert!(bench.path("data").join("node.key").exists());
    assert_eq!(node.stdout().lines().count(), 1, "stdout holds results only");
}

/// The `--flags` and variables of a text.
fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let separators = |c: char| c.is_whitespace() || "=[]<>(),`".contains(c);
    text.split(separators).filter(|word| word.starts_with(start)).collect()
}

#[test]
fn the_service_file_names_what_exists() {
    let bench = Bench::new();
    let unit = std::fs::read_to_string(deploy("dynamo-node.service")).unwrap();
    let commands: Vec<&str> = unit.lines().filter(|line| line.contains("ExecStart=")).collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let verb = if command.contains(" join ") { "join" } else { "start" };
        let help = bench.run(&format!("{verb} --help")).stdout;
        for flag in words(command, "--") {
            assert!(words(&help, "--").contains(&flag), "{verb} has no {flag}");
        }
        for variable in words(&unit, "DYNAMO_") {
            assert!(words(&help, "DYNAMO_").contains(&variable), "{verb} has no {variable}");
        }
    }
}

#[tokio::test]
async fn options_that_scripts_rely_on() {
    let bench = Bench::new();
    for verb in ["start", "join"] {
        let help = bench.run(&format!("{verb} --help")).stdout;
        let mut flags = vec![
            "--data-dir",
            "--http",
            "--listen",
            "--advertise",
            "--engine",
            "--model",
            "--site",
            "--policy",
            "--log-format",
            "--config",
            "--admin",
        ];
        if verb == "join" {
            flags.push("--token-file");
        }
        for flag in flags {
            assert!(words(&help, "--").contains(&flag), "{verb} has no {flag}");
        }
    }
    // JSON logs are JSON, line by line, on stderr.
    let start = format!(
        "start --log-format json --model {} --data-dir data {}",
        tiny().display(),
        free_ports()
    );
    let mut node = bench.spawn(&start);
    eventually("it starts", async || {
        assert!(!node.has_ended());
        node.stdout().starts_with("ready ").then_some(())
    })
    .await;
    let log = node.stderr();
    assert!(log.lines().count() > 0);
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        assert!(entry["level"].is_string(), "{line}");
    }
}
