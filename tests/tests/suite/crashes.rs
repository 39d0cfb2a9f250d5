//! A node that is killed again and again; `dynamo-crash` does the same for as long as wanted.

use crate::kit::{PATIENCE, binary};
use load::crash::{CrashOptions, crash};
use std::time::Duration;

#[tokio::test]
async fn a_killed_node_finds_its_blocks_and_answers_as_before() {
    let options = CrashOptions {
        kills: 8,
        life: Duration::from_millis(400),
        nvme_mib: 32,
        within: PATIENCE * 3,
        ..CrashOptions::new(binary())
    };
    let report = crash(&options, &mut |line| eprintln!("{line}")).await.unwrap();
    assert_eq!(report.violations, Vec::<String>::new(), "{report:?}");
    assert_eq!(report.kills, 8);
    assert!(report.answers > 0 && report.blocks_before > 0, "nothing was at stake: {report:?}");
}
