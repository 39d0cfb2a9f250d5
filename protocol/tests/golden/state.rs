//! Frames about replicated records.

use crate::cases::{Case, numbered, value};
use crate::values::bob;
use protocol::state::{Record, RecordId, RecordKey, RecordKind, Version};
use protocol::time::Span;
use protocol::wire::state::{Holding, Newest, Range, StateFrame, Summary};

fn id() -> RecordId {
    let key = RecordKey { place: [0x51; 16], name: [0x52; 16] };
    RecordId { key, kind: RecordKind::Response }
}

fn version() -> Version {
    Version { counter: 251, writer: bob(), write: 0x8877_6655_4433_2211 }
}

fn record() -> Record {
    let (id, version, value) = (id(), version(), b"stored".to_vec());
    Record { id, version, deleted: false, ttl: Span::secs(3600), value }
}

fn frames() -> Vec<(&'static str, StateFrame)> {
    let (op, holding) = (70_000, Holding { id: id(), version: version() });
    let newest = Some(Newest { version: version(), deleted: true });
    let summary = Summary { bucket: 0x51, count: 2, digest: 1 << 100 };
    let range = Range { bucket: 0x51, after: None, upto: Some(id()), held: vec![holding] };
    vec![
        ("put", StateFrame::Put { op, record: record() }),
        ("kept", StateFrame::Kept { op }),
        ("newer", StateFrame::Newer { op, version: version() }),
        ("not-kept", StateFrame::NotKept { op }),
        ("get", StateFrame::Get { op, id: id(), than: Some(version()), value: true }),
        ("got", StateFrame::Got { op, newest, record: Some(record()) }),
        ("digests", StateFrame::Digests(vec![summary])),
        ("range", StateFrame::Range(range)),
        ("want", StateFrame::Want(vec![id()])),
        ("push", StateFrame::Push(vec![record()])),
        ("offer", StateFrame::Offer(vec![holding])),
        ("holds", StateFrame::Holds(vec![holding])),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = numbered("state-frame", frames());
    cases.push(value(
        "state-frame-5-got-nothing",
        StateFrame::Got { op: 1, newest: None, record: None },
    ));
    let kinds = RecordKind::ALL.map(|kind| (kind.name(), kind));
    cases.extend(numbered("state-kind", kinds.to_vec()));
    cases.push(value("state-deleted", Record { deleted: true, value: Vec::new(), ..record() }));
    cases
}
