//! `bench agents`: fresh nodes per arm, agents over HTTP, one report. `bench store`: the NVMe tier
//! beside others. `bench frontend`: what a request costs a node.

use crate::cli::{BenchAgents, BenchFrontend, BenchStore};
use crate::fault::Fault;
use crate::print::print;
use load::bench::{BenchOptions, bench_agents};
use load::frontend::{FrontendOptions, bench_frontend};
use serde::Serialize;
use std::path::PathBuf;

/// This program, to be started as a node.
fn binary() -> Result<PathBuf, Fault> {
    std::env::current_exe()
        .map_err(|error| Fault::new(error, "the path of this program cannot be found"))
}

/// Prints a report as its `table`, or as JSON.
fn tell(report: &impl Serialize, table: String, json: bool) -> Result<(), Fault> {
    print(match json {
        false => table,
        true => serde_json::to_string_pretty(report)
            .map_err(|error| Fault::new(error, "this is a defect; please report it"))?,
    });
    Ok(())
}

/// Measures the frontend and prints the report.
pub(crate) async fn frontend(args: &BenchFrontend) -> Result<(), Fault> {
    let profile = if cfg!(debug_assertions) { "development" } else { "release" };
    let mut options = FrontendOptions::new(binary()?, profile);
    if args.quick {
        options = options.quick();
    }
    options.concurrency = args.concurrency.clone().unwrap_or(options.concurrency);
    options.requests = args.requests.unwrap_or(options.requests);
    options.history = args.history.clone().unwrap_or(options.history);
    options.turns = args.turns.unwrap_or(options.turns);
    options.memory_requests = args.memory_requests.unwrap_or(options.memory_requests);
    options.abandoned = args.abandoned.unwrap_or(options.abandoned);
    let report = bench_frontend(&options, |text| eprintln!("{text}"))
        .await
        .map_err(|error| Fault::new(error, "see the message and the nodes' logs"))?;
    tell(&report, report.table(), args.json)
}

/// Runs the arms and prints the report.
pub(crate) async fn agents(args: &BenchAgents) -> Result<(), Fault> {
    for policy in &args.policy {
        policy.parse::<router::Policy>().map_err(|error| {
            Fault::usage(error.to_string(), "name policies as in --policy round-robin,kv")
        })?;
    }
    let options = BenchOptions {
        sessions: args.sessions.clone(),
        policies: args.policy.clone(),
        nodes: args.nodes,
        model: args.model.clone(),
        turns: args.turns,
        seed: args.seed,
        ..BenchOptions::new(binary()?)
    };
    let report = bench_agents(&options, |text| eprintln!("{text}"))
        .await
        .map_err(|error| Fault::new(error, "see the message and the nodes' logs"))?;
    tell(&report, report.table(), args.json)
}

/// Measures the NVMe tier and prints the report.
pub(crate) async fn store(args: BenchStore) -> Result<(), Fault> {
    let sizes: Option<Vec<u64>> = args
        .kib
        .iter()
        .map(|kib| kib.checked_mul(1024).filter(|b| *b > 0 && *b <= 1 << 30))
        .collect();
    let sizes = sizes.ok_or_else(|| {
        Fault::usage("--kib takes sizes from 1 KiB to 1 GiB", "for example --kib 64,1024,4096")
    })?;
    let bench = tiers::bench::StoreBench {
        dir: args.dir.join(format!("dynamo-bench-store-{}", std::process::id())),
        sizes,
        bytes: args.mib << 20,
        rounds: args.rounds,
        threads: args.threads as usize,
        records: args.records,
    };
    if !args.dir.is_dir() {
        return Err(Fault::usage(
            format!("{} is no folder", args.dir.display()),
            "name a folder on a disk with room, as in --dir /var/tmp",
        ));
    }
    let made = bench.dir.clone();
    let run = tokio::task::spawn_blocking(move || {
        tiers::bench::bench_store(&bench, |text| eprintln!("{text}"))
    });
    let outcome = tokio::select! {
        outcome = run => outcome.map_err(|error| Fault::new(error, "please report it"))?,
        () = load::fleet::interrupted() => {
            let _ = std::fs::remove_dir_all(&made);
            return Err(Fault::new("stopped by a signal", "what it had written is removed"));
        }
    };
    let report = outcome.map_err(|error| {
        Fault::new(
            format!("{}: {error}", args.dir.display()),
            "name a folder on a disk with room, as in --dir /var/tmp",
        )
    })?;
    tell(&report, report.table(), args.json)
}
