//! What comparing costs a node: 64 nodes, 10,000 records, one comparison with all peers.
//!
//! `cargo run -p state --example compare`
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // it measures

use protocol::event::{MemberState, MemberView};
use protocol::id::{Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::state::{Record, RecordId, RecordKey, RecordKind, Version};
use protocol::time::{Span, Time};
use protocol::wire::state::{StateFrame, Summary};
use state::{Config, In, Out, State};
use std::time::Instant;

const NODES: u8 = 64;
const RECORDS: u64 = 10_000;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn record(n: u64) -> Record {
    let spread = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = RecordKey { place: spread.to_be_bytes(), name: [1; 16] };
    let version = Version { counter: 1, writer: node(1), write: n };
    let id = RecordId { key, kind: RecordKind::Response };
    Record { id, version, deleted: false, ttl: Span::secs(3600), value: vec![1; 100] }
}

fn member(n: u8) -> In {
    In::Member(Box::new(MemberView {
        node: node(n),
        incarnation: Incarnation { counter: 1, nonce: 0 },
        state: MemberState::Alive,
        contact: Default::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    }))
}

fn main() {
    let now = Time::ZERO + Span::secs(1);
    let config = Config::new(node(1), Incarnation::default());
    let mut machine = State::new(config, now, (0..RECORDS).map(record).collect());
    let mut out = Vec::new();
    for n in 2..=NODES {
        machine.handle(now, member(n), &mut out);
    }
    let summaries: Vec<Summary> =
        (0..=255).map(|bucket| Summary { bucket, count: 0, digest: 0 }).collect();
    for round in 1..=3 {
        let begun = Instant::now();
        for n in 2..=NODES {
            let frame = StateFrame::Digests(summaries.clone());
            machine.handle(now, In::Frame { from: node(n), frame }, &mut out);
        }
        let differ = out.drain(..).filter(|out| matches!(out, Out::Send { .. })).count();
        println!("round {round}: {:.1} ms, {differ} frames", begun.elapsed().as_secs_f64() * 1e3);
    }
}
