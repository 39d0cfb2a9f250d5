//! `dynamo-crash`: kills a node again and again and looks at what it finds and answers afterwards.
#![allow(clippy::disallowed_methods)] // does I/O: asks for its own path

use clap::Parser;
use load::crash::{CrashOptions, crash};
use std::path::PathBuf;
use std::process::ExitCode;

/// Kills a node with SIGKILL at random moments under load, on one data folder, and checks after each
/// start that its disk tier is warm, within its limit, and that every answer is what it was before
/// anything was cached. Prints the figures as JSON; exit status 1 when something was wrong.
#[derive(Parser, Debug)]
#[command(name = "dynamo-crash", version)]
struct Args {
    /// The node binary. Default: dynamo-node beside this program.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// How often it is killed.
    #[arg(long, default_value_t = 1000)]
    kills: u32,
    /// Seed of prompts and moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time between start and kill, in milliseconds.
    #[arg(long, default_value_t = 1200)]
    life_ms: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("dynamo-node"));
    let Some(binary) = args.binary.or_else(beside).filter(|binary| binary.is_file()) else {
        eprintln!("error: there is no node binary beside this program");
        eprintln!("help: build it (./dev build) or name it with --binary");
        return ExitCode::FAILURE;
    };
    let options = CrashOptions {
        kills: args.kills,
        seed: args.seed,
        life: std::time::Duration::from_millis(args.life_ms),
        ..CrashOptions::new(binary)
    };
    match crash(&options, &mut |line| eprintln!("{line}")).await {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
