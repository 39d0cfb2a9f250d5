//! `dynamo-demo`: three nodes serve an agent conversation, one is killed, the talk goes on.
#![allow(clippy::disallowed_methods)] // does I/O: waits for signals, asks for its own path

use anyhow::Context;
use clap::Parser;
use load::demo::{DemoOptions, demo};
use load::fleet::interrupted;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Three nodes serve an agent conversation, one is killed, the talk goes on. Prints PASS, or FAIL
/// and why.
#[derive(Parser, Debug)]
#[command(name = "dynamo-demo", version)]
struct Args {
    /// The node binary. Default: dynamo-node beside this program.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Model of every node: a name in the model cache, a folder or a GGUF file.
    #[arg(long, env = "DYNAMO_MODEL", value_name = "NAME|PATH")]
    model: Option<String>,
    /// Leave the nodes running until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Seed of the agents' words and pauses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn binary(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let binary = match given {
        Some(binary) => binary,
        None => std::env::current_exe()
            .context("cannot find this program's own folder")?
            .with_file_name("dynamo-node"),
    };
    anyhow::ensure!(
        binary.is_file(),
        "there is no node binary at {}; build it (./dev build) or name it with --binary",
        binary.display()
    );
    Ok(binary)
}

async fn run(args: Args) -> anyhow::Result<bool> {
    let mut options = DemoOptions::new(binary(args.binary)?);
    options.model = args.model;
    options.keep = args.keep;
    options.seed = args.seed;
    let mut stdout = std::io::stdout();
    let demo = demo(&options, &mut stdout).await?;
    writeln!(stdout, "{}", demo.verdict())?;
    stdout.flush()?;
    if args.keep {
        interrupted().await;
    }
    Ok(demo.failures.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAIL: {error:#}");
            ExitCode::FAILURE
        }
    }
}
