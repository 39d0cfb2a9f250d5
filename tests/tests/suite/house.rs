//! The rules of the house: who may depend on whom, how long a file may be.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The edge table: crate → workspace crates it may use (docs/architecture.md).
fn table() -> BTreeMap<&'static str, Vec<&'static str>> {
    let all = vec![
        "protocol", "kernels", "model", "kvstore", "gossip", "router", "state", "wiring", "tiers",
        "transfer", "engine", "frontend", "load", "mock", "sim",
    ];
    BTreeMap::from([
        ("protocol", vec![]),
        ("kernels", vec![]),
        ("model", vec!["protocol", "kernels"]),
        ("kvstore", vec!["protocol"]),
        ("gossip", vec!["protocol"]),
        ("router", vec!["protocol"]),
        ("state", vec!["protocol"]),
        ("mock", vec!["protocol"]),
        ("wiring", vec!["protocol", "kvstore", "gossip", "router", "state", "mock"]),
        (
            "sim",
            vec!["protocol", "kvstore", "gossip", "router", "state", "wiring", "mock", "tiers"],
        ),
        ("tiers", vec!["protocol", "kernels"]),
        ("transfer", vec!["protocol", "kernels"]),
        ("engine", vec!["protocol", "kernels", "model", "mock"]),
        ("frontend", vec!["protocol", "model"]),
        ("load", vec!["protocol"]),
        ("dynamo-node", all.clone()),
        ("e2e", all),
    ])
}

/// What pure crates must not link, directly.
const IMPURE: [&str; 11] = [
    "tokio",
    "ractor",
    "libp2p",
    "quinn",
    "rustls",
    "axum",
    "reqwest",
    "rocksdb",
    "getrandom",
    "tracing",
    "rustix",
];
const PURE: [&str; 8] =
    ["protocol", "kvstore", "gossip", "router", "state", "wiring", "mock", "sim"];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_use_only_what_the_table_lists() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
    let table = table();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = table.get(name) else {
            wrong.push(format!("{name} is not in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let in_product = dependency["kind"].is_null();
            if names.contains(&on) && !allowed.contains(&on) {
                wrong.push(format!("{name} must not use {on}"));
            }
            if in_product && PURE.contains(&name) && IMPURE.contains(&on) {
                wrong.push(format!("{name} is pure and must not use {on}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(names.len(), table.len(), "crates and table differ");
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && !matches!(name.to_str(), Some("target" | ".git")) {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_have_one_reason_to_change() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let long: Vec<String> = files
        .iter()
        .map(|file| (file, std::fs::read_to_string(file).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > 600)
        .map(|(file, lines)| format!("{} has {lines} lines", file.display()))
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn unsafe_stays_in_kernels() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let word = ["uns", "afe "].concat();
    let outside: Vec<_> = files
        .iter()
        .filter(|file| !file.starts_with(root().join("kernels")))
        .filter(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines().any(|line| {
                let code = line.trim_start();
                !code.starts_with("//")
                    && [word.clone() + "{", word.clone() + "fn", word.clone() + "impl"]
                        .iter()
                        .any(|form| code.contains(form.as_str()))
            })
        })
        .collect();
    assert_eq!(outside, Vec::<&PathBuf>::new());
}
