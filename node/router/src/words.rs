//! An explanation as a table for people.

use crate::place::{Candidate, Explanation};
use std::fmt;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "policy {}, model {}, {} prompt tokens, {} index granules",
            self.policy, self.model, self.tokens, self.granules
        )?;
        writeln!(
            f,
            "  {:<12} {:>9} {:>8} {:>9} {:>9} {:>8} {:>7}  local/peer/computed",
            "node/engine", "cost ms", "queue", "onboard", "prefill", "decode", "gpu"
        )?;
        for (at, candidate) in self.candidates.iter().enumerate() {
            let mark = if self.winner == Some(at) { '→' } else { ' ' };
            write!(f, "{mark} ")?;
            row(f, candidate)?;
        }
        write!(f, "{}", self.why)
    }
}

fn row(f: &mut fmt::Formatter<'_>, candidate: &Candidate) -> fmt::Result {
    let node: String = candidate.node.chars().take(8).collect();
    let name = format!("{node}/{}", candidate.engine);
    if let Some(reason) = candidate.excluded {
        return writeln!(f, "{name:<12} {reason}");
    }
    let cost = &candidate.estimate;
    writeln!(
        f,
        "{name:<12} {:>9.1} {:>8.1} {:>9.1} {:>9.1} {:>8.1} {:>7.1}  {}/{}/{}",
        cost.cost_ms,
        cost.queue_ms,
        cost.onboard_ms,
        cost.prefill_ms,
        cost.decode_ms,
        cost.gpu_ms,
        cost.local_tokens,
        cost.peer_tokens,
        cost.computed_tokens
    )?;
    for fetch in &candidate.sources {
        let from: String = fetch.node.chars().take(8).collect();
        writeln!(
            f,
            "    tokens {}..{} from {from}, given up after {:.0} ms",
            fetch.start, fetch.end, fetch.deadline_ms
        )?;
    }
    Ok(())
}
