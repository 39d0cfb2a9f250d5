//! `dynamo-node bench frontend`: a whole small run, whose figures are there and make sense.

use crate::command::Bench;
use load::frontend::{FrontendReport, Path};

#[test]
fn a_quick_look_at_the_frontend_gives_all_figures() {
    let bench = Bench::new();
    let ended = bench.run("bench frontend --quick --json");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: FrontendReport = serde_json::from_str(&ended.stdout).unwrap();
    // Five arms at each concurrency, a session for each history, nine looks at the memory.
    assert_eq!((report.short.len(), report.turns.len(), report.memory.len()), (10, 2, 9));
    for short in &report.short {
        assert!(short.requests > 0 && short.failed == 0, "{short:?}");
        assert!(short.entry_us > 0.0 && short.latency_ms.p99 >= short.latency_ms.p50, "{short:?}");
        assert_eq!(short.serving_us.is_some(), short.path == Path::Hop, "{short:?}");
    }
    for turns in &report.turns {
        assert!(turns.tokens > 2_000 && turns.new_tokens > 100, "{turns:?}");
        let spent = [turns.entry_ms, turns.serving_ms, turns.first_ms, turns.unseen_ms];
        assert!(spent.iter().all(|ms| *ms > 0.0), "{turns:?}");
    }
    let last = report.memory.last().unwrap();
    assert_eq!((last.requests, last.abandoned), (400, 40), "{last:?}");
    assert!(last.entry_mib > 1.0 && last.serving_mib > 1.0, "{last:?}");
    assert!(!report.table().is_empty());
}
