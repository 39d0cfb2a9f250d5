use super::*;
use protocol::id::NodeId;
use protocol::state::{RecordKey, RecordKind, Version};

fn record(name: u8, ttl: Span) -> Record {
    let key = RecordKey { place: [1; 16], name: [name; 16] };
    let id = RecordId { key, kind: RecordKind::Response };
    let version = Version { counter: 3, writer: NodeId([4; 32]), write: 5 };
    Record { id, version, deleted: false, ttl, value: vec![name; 100] }
}

fn store(records: &Records, at: u64, record: &Record) {
    let stored = Stored { at: UnixTime(at), record: record.clone() };
    let value = protocol::wire::encode(&stored).unwrap();
    records.apply(KIND, [(key(&record.id), Some(value))]).unwrap();
}

#[test]
fn what_is_loaded_has_aged() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    store(&records, 1000, &record(1, Span::secs(60)));
    store(&records, 1000, &record(2, Span::secs(600)));
    store(&records, 5000, &record(3, Span::secs(600)));
    let found = load(&records, UnixTime(1100)).unwrap();
    let left: Vec<_> = found.iter().map(|r| (r.id.key.name[0], r.ttl)).collect();
    // The last was written by a clock that was ahead.
    assert_eq!(left, [(1, Span::ZERO), (2, Span::secs(500)), (3, Span::secs(600))]);
}

#[test]
fn a_record_under_another_name_or_that_is_none_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    let good = record(1, Span::secs(60));
    store(&records, 1000, &good);
    let stored = Stored { at: UnixTime(1000), record: record(2, Span::secs(60)) };
    let misplaced = protocol::wire::encode(&stored).unwrap();
    records.put(KIND, &key(&record(3, Span::ZERO).id), &misplaced).unwrap();
    records.put(KIND, b"short", b"no record").unwrap();
    assert_eq!(load(&records, UnixTime(1000)).unwrap(), [good]);
    assert_eq!(records.keys(KIND).unwrap().len(), 1, "and leaves the disk");
}
