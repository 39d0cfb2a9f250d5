//! dynamo-node: one binary on every machine. This crate composes the parts and decides nothing:
//! an `if` about placement or eviction here is a bug.
//!
//! Start at [`serve`] for the path of a request and at [`node`] for what a running node consists
//! of.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)] // does I/O

mod actors;
mod admin;
mod bench;
mod catalog;
mod cli;
mod client;
mod clock;
mod cluster;
mod config;
mod explain;
mod fault;
mod files;
mod host;
mod http;
mod keys;
mod logging;
mod membership;
mod metrics;
mod models;
mod node;
mod print;
mod queue;
mod reread;
mod rim;
mod run;
mod serve;
mod sim;
mod startup;
mod state;
mod status;
mod switchboard;

use clap::Parser;
use cli::{BenchCommand, Cli, Command, RouteCommand};
use fault::Fault;
use std::process::ExitCode;

/// A request makes and drops some hundred small values on several threads, and a long session buffers
/// of its history's size: the system's allocator takes a sixth of the CPU time for these, and gives
/// large ones back to the system each time. It must not ask for large pages: a buffer of some hundred
/// kilobytes would have the system clear 2 MiB. (Weights ask for them on their own.)
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match cli::fault(&error) {
            Some(fault) => return fail(&fault),
            None => error.exit(), // help or version was asked for
        },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(cli.command));
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            outcome
        }
        Err(error) => Err(Fault::new(error, "the system refuses threads to this process")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) if fault.begins_again() => fail(&begin_again(fault)),
        Err(fault) => fail(&fault),
    }
}

/// Replaces this process by a new one with the same arguments; comes back only when that fails.
fn begin_again(fault: Fault) -> Fault {
    use std::os::unix::process::CommandExt;
    eprintln!("begins anew: {fault}");
    let Ok(program) = std::env::current_exe() else { return fault };
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    eprintln!("cannot begin anew: {error}");
    fault
}

fn fail(fault: &Fault) -> ExitCode {
    eprintln!("{fault}");
    ExitCode::from(fault.code())
}

async fn run(command: Command) -> Result<(), Fault> {
    match command {
        Command::Start(args) => startup::start(&args).await,
        Command::Join(args) => startup::join(&args).await,
        Command::Status(args) => client::status(&args).await,
        Command::Leave(args) => client::leave(&args).await,
        Command::Ticket(args) => client::ticket(&args).await,
        Command::Token(args) => client::token(&args).await,
        Command::Route { command: RouteCommand::Explain { request, client, json } } => {
            client::explain(&client, &request, json).await
        }
        Command::WhyMiss(args) => client::why_miss(args).await,
        Command::Bench { command: BenchCommand::Agents(args) } => bench::agents(&args).await,
        Command::Bench { command: BenchCommand::Store(args) } => bench::store(args).await,
        Command::Bench { command: BenchCommand::Frontend(args) } => bench::frontend(&args).await,
        Command::Bench { command: BenchCommand::Echo } => http::echo().await,
        Command::Sim(args) => sim::simulate(&args),
    }
}
