//! Frames between gossip machines.

use crate::cases::{Case, numbered, value};
use crate::values::{
    ann, batch, bob, buckets, cert, heartbeat, hello, life, runs, snapshot, wanted,
};
use protocol::event::{EventRun, Holder, Seq, Suspicion};
use protocol::id::EngineId;
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::state::StateFrame;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = numbered("gossip-direct", direct());
    // What one exchange carries.
    cases.push(value(
        "gossip-exchange",
        vec![Direct::Probe { nonce: 7 }, Direct::Batches(Vec::new()), Direct::Ack { nonce: 8 }],
    ));
    cases.push(value("gossip-direct-4-want-snapshot-all", Direct::WantSnapshot { origin: None }));
    cases.extend(numbered(
        "gossip-published",
        vec![
            ("heartbeat", Published::Heartbeat(Box::new(heartbeat()))),
            ("admitted", Published::Admitted(Box::new(cert(bob())))),
        ],
    ));
    cases.push(value("event-payload", runs()));
    let run = |at: usize| runs().swap_remove(at);
    cases.extend(numbered::<EventRun>(
        "event-run",
        vec![("stored", run(0)), ("removed", run(1)), ("cleared", run(2)), ("computing", run(3))],
    ));
    cases.extend(numbered(
        "event-holder",
        vec![
            ("engine", Holder::Engine(EngineId(1))),
            ("dram", Holder::Dram),
            ("nvme", Holder::Nvme),
            ("computing", Holder::Computing(EngineId(1))),
        ],
    ));
    cases
}

fn direct() -> Vec<(&'static str, Direct)> {
    let (origin, incarnation) = (ann().node(), life());
    vec![
        ("hello", Direct::Hello(Box::new(hello()))),
        ("members", Direct::Members(vec![cert(ann().node()), cert(bob())])),
        ("batches", Direct::Batches(vec![batch()])),
        ("want", Direct::Want { origin, incarnation, from: Seq(298), to: Seq(300) }),
        ("want-snapshot", Direct::WantSnapshot { origin: Some(origin) }),
        ("snapshots", Direct::Snapshots(vec![snapshot()])),
        ("goodbye", Direct::Goodbye { incarnation }),
        ("probe", Direct::Probe { nonce: 0x8877_6655_4433_2211 }),
        ("ack", Direct::Ack { nonce: 0x8877_6655_4433_2211 }),
        ("probe-for", Direct::ProbeFor { subject: bob(), nonce: 250 }),
        ("echo", Direct::Echo(Box::new(heartbeat()))),
        ("heard", Direct::Heard(Box::new(heartbeat()))),
        ("suspects", Direct::Suspects(vec![Suspicion { subject: bob(), incarnation, beat: 251 }])),
        ("want-buckets", Direct::WantBuckets(Box::new(wanted()))),
        ("buckets", Direct::Buckets(Box::new(buckets()))),
        ("state", Direct::State(Box::new(StateFrame::Kept { op: 7 }))),
    ]
}
