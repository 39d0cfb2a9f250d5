//! `dynamo-node sim`: same seed, same digest, in every process.

use crate::command::Bench;
use crate::kit::binary;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn digest(bench: &Bench, seed: u32) -> String {
    let ended = bench.run(&format!("sim --nodes 3 --seconds 3 --seed {seed} --json"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    for key in ["seed", "digest", "events", "virtual_s", "nodes", "violations", "figures"] {
        assert!(!report[key].is_null(), "{key} is missing");
    }
    assert_eq!(report["seed"], seed);
    report["digest"].as_str().unwrap().to_owned()
}

#[test]
fn a_seed_has_one_digest_in_all_processes() {
    let bench = Bench::new();
    let first = digest(&bench, 5);
    assert_eq!(first, digest(&bench, 5));
    assert_ne!(first, digest(&bench, 6));
}

#[test]
fn wrong_files_and_flags_are_refused_in_words() {
    let bench = Bench::new();
    std::fs::write(bench.path("wrong.toml"), "nodez = 3\n").unwrap();
    std::fs::write(bench.path("wrong.jsonl"), "no json\n").unwrap();
    std::fs::write(bench.path("endless.toml"), "[faults]\nfreeze_max_ms = 99999999\n").unwrap();
    for (flags, word) in [
        ("--scenario wrong.toml", "nodez"),
        ("--scenario absent.toml", "absent.toml"),
        ("--trace wrong.jsonl", "line 1"),
        ("--nodes 0", "nodes is 0"),
        ("--policy best", "best"),
        ("--seed 18446744073709551615", "seed"),
        ("--scenario endless.toml", "freeze_max_ms"),
    ] {
        let ended = bench.run(&format!("sim {flags}"));
        assert_eq!(ended.code, Some(2), "{flags}: {ended:?}");
        assert!(ended.stderr.contains(word), "{flags}: {ended:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let mut child = Command::new(binary())
        .args(["sim", "--nodes", "2", "--seconds", "1", "--seeds", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // The reader, and with it the pipe, is closed after a line.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("seed"), "{first}");
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}
