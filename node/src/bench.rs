//! `bench agents`: fresh nodes per arm, agents over HTTP, one report.

use crate::cli::BenchAgents;
use crate::fault::Fault;
use load::bench::{BenchOptions, bench_agents};

/// Runs the arms and prints the report.
pub(crate) async fn agents(args: &BenchAgents) -> Result<(), Fault> {
    for policy in &args.policy {
        policy.parse::<router::Policy>().map_err(|error| {
            Fault::usage(error.to_string(), "name policies as in --policy round-robin,kv")
        })?;
    }
    let binary = std::env::current_exe()
        .map_err(|error| Fault::new(error, "the path of this program cannot be found"))?;
    let options = BenchOptions {
        sessions: args.sessions.clone(),
        policies: args.policy.clone(),
        nodes: args.nodes,
        model: args.model.clone(),
        turns: args.turns,
        seed: args.seed,
        ..BenchOptions::new(binary)
    };
    let report = bench_agents(&options, |text| eprintln!("{text}"))
        .await
        .map_err(|error| Fault::new(error, "see the message and the nodes' logs"))?;
    if args.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Fault::new(error, "this is a defect; please report it"))?;
        println!("{json}");
    } else {
        println!("{}", report.table());
    }
    Ok(())
}
