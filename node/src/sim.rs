//! `sim`: simulated clusters. Measures the wall time, which the simulated world must not know.

use crate::cli::SimArgs;
use crate::fault::Fault;
use crate::files;
use crate::print::print;
use sim::{Options, Report, Scenario, Trace, run, shrink};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// Bytes of a trace, unpacked.
/// Longest scenario.
const SCENARIO_MAX: u64 = 4 << 20;
const TRACE_MAX: u64 = 2 << 30;

/// Runs the seeds and prints the reports; fails when a checker found something.
pub(crate) fn simulate(args: &SimArgs) -> Result<(), Fault> {
    let trace = args.trace.as_deref().map(read_trace).transpose()?;
    let given = args.scenario.as_deref().map(read_scenario).transpose()?;
    let options = Options { trace: trace.as_ref(), ..Options::default() };
    let mut bad = 0u64;
    let end = args.seed.checked_add(args.seeds).ok_or_else(|| {
        Fault::usage("there are not so many seeds behind --seed", "begin with a smaller one")
    })?;
    for seed in args.seed..end {
        let scenario = scenario(args, given.as_ref(), seed)?;
        let begun = Instant::now();
        let mut report = run(&scenario, seed, &options).map_err(unfit)?;
        let wall_s = begun.elapsed().as_secs_f64().max(1e-9);
        report.figures.insert("wall_s".into(), wall_s);
        report.figures.insert("events_per_wall_s".into(), report.events as f64 / wall_s);
        report.figures.insert("virtual_s_per_wall_s".into(), report.virtual_s / wall_s);
        show(args, &report)?;
        if !report.is_fine() {
            bad += 1;
            explain(&scenario, &report, &options, args.trace.as_deref());
        }
    }
    match bad {
        0 => Ok(()),
        _ => Err(Fault::new(
            format!("{bad} of {} seeds violate what must hold", args.seeds),
            "save the scenario above to a file and run the command above it",
        )),
    }
}

/// The scenario of a seed: the given one, else drawn; the flags go before both.
fn scenario(args: &SimArgs, given: Option<&Scenario>, seed: u64) -> Result<Scenario, Fault> {
    let mut scenario = given.cloned().unwrap_or_else(|| Scenario::drawn(seed));
    if let Some(nodes) = args.nodes {
        scenario.nodes = nodes;
    }
    if let Some(seconds) = args.seconds {
        scenario.seconds = seconds;
    }
    if let Some(policy) = &args.policy {
        scenario.policy.clone_from(policy);
    }
    scenario.check().map_err(unfit)?;
    Ok(scenario)
}

fn unfit(error: sim::ScenarioError) -> Fault {
    Fault::usage(error.to_string(), "node/sim/src/scenario.rs lists every key with its unit")
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Fault> {
    files::read(path, most).map_err(|error| {
        Fault::usage(format!("{} cannot be read: {error}", path.display()), "check the path")
    })
}

fn read_scenario(path: &Path) -> Result<Scenario, Fault> {
    Scenario::parse(&String::from_utf8_lossy(&read(path, SCENARIO_MAX)?)).map_err(unfit)
}

fn read_trace(path: &Path) -> Result<Trace, Fault> {
    let mut bytes = read(path, TRACE_MAX)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        let unpacked = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        unpacked.take(TRACE_MAX).read_to_end(&mut plain).map_err(|error| {
            Fault::usage(format!("{}: {error}", path.display()), "the file is damaged: unpack it")
        })?;
        bytes = plain;
    }
    let wrong = |error: sim::TraceError| {
        Fault::usage(error.to_string(), "JSON lines of requests or sessions: node/sim/src/trace.rs")
    };
    Trace::parse(&String::from_utf8_lossy(&bytes)).map_err(wrong)
}

fn show(args: &SimArgs, report: &Report) -> Result<(), Fault> {
    if args.json {
        let defect = |error| Fault::new(error, "this is a defect; please report it");
        // One object for one seed; for several, one line each.
        let text = match args.seeds {
            1 => serde_json::to_string_pretty(report),
            _ => serde_json::to_string(report),
        };
        print(format_args!("{}", text.map_err(defect)?));
        return Ok(());
    }
    let figure = |name: &str| report.figures.get(name).copied().unwrap_or(0.0);
    print(format_args!(
        "seed {:<6} {:>4} nodes {:>7.1} s {:>9} events  served {:>6}  TTFT p50 {:>7.1} p90 {:>8.1} ms  \
         computed {:>4.1} %  {:>6.0} s/s  digest {}  {}",
        report.seed,
        report.nodes,
        report.virtual_s,
        report.events,
        figure("requests_served"),
        figure("ttft_p50_ms"),
        figure("ttft_p90_ms"),
        100.0 * figure("prompt_computed_share"),
        figure("virtual_s_per_wall_s"),
        report.digest.get(..8).unwrap_or_default(),
        if report.is_fine() { "fine" } else { "VIOLATED" },
    ));
    Ok(())
}

/// Says what went wrong, the last events before it, and the smallest scenario that shows it.
fn explain(scenario: &Scenario, report: &Report, options: &Options<'_>, trace: Option<&Path>) {
    let Some(violation) = report.violations.first() else { return };
    let seed = report.seed;
    eprintln!(
        "seed {seed}: {} at {:.6} s on node {}: {}",
        violation.checker,
        violation.at_ns as f64 / 1e9,
        violation.node,
        violation.text
    );
    eprintln!("looks for a smaller scenario …");
    let small = shrink(scenario, seed, violation.checker, options);
    let kept = Options { keep_events: true, ..*options };
    if let Ok(again) = run(&small.scenario, seed, &kept) {
        again.last_events.iter().for_each(|line| eprintln!("  {line}"));
        again.violations.iter().for_each(|v| eprintln!("  {}: {}", v.checker, v.text));
    }
    let trace = trace.map(|path| format!(" --trace {}", path.display())).unwrap_or_default();
    eprintln!("dynamo-node sim --seed {seed}{trace} --scenario FILE   # FILE holds:");
    eprintln!("{}", small.scenario.to_toml());
}
