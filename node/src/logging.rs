//! Logs go to stderr, as text or JSON. Prompts, tokens, salts and keys are never logged.

use crate::config::LogConfig;
use crate::fault::Fault;
use tracing_subscriber::EnvFilter;

/// Starts logging for this process.
pub(crate) fn start(config: &LogConfig) -> Result<(), Fault> {
    let filter = EnvFilter::try_new(&config.level).map_err(|error| {
        Fault::usage(
            format!("log.level {:?} is not a filter: {error}", config.level),
            "use a level (error, warn, info, debug, trace) or info,gossip=debug",
        )
    })?;
    // A line that cannot be written is lost. Telling so at the same place would be a panic.
    let builder = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if config.format == "json" {
        builder.json().init();
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
    Ok(())
}
