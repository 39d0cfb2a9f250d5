use super::*;
use protocol::time::Span;

const KIND: RecordKind = RecordKind::Response;

fn record(name: u8, counter: u64, bytes: usize, secs: u64) -> Record {
    let key = RecordKey { place: [1; 16], name: [name; 16] };
    let version = Version { counter, writer: NodeId([9; 32]), write: counter };
    let id = RecordId { key, kind: KIND };
    Record { id, version, deleted: false, ttl: Span::secs(secs), value: vec![name; bytes] }
}

fn table(records: u64, bytes: u64) -> Table {
    Table::new(Limit { records, bytes })
}

fn take(table: &mut Table, now: u64, record: Record) -> (Taken, Vec<u8>) {
    let mut evicted = Vec::new();
    let taken = table.take(Time::ZERO + Span::secs(now), record, None, &mut evicted);
    (taken, evicted.iter().map(|id| id.key.name[0]).collect())
}

fn stats(table: &Table) -> (u64, u64, u64) {
    let mut stats = Stats::default();
    table.count(&mut stats);
    let kinds = stats.kinds.iter().map(|kind| kind.records + kind.deletions);
    assert_eq!(kinds.sum::<u64>(), stats.records + stats.deletions, "each is of a kind");
    (stats.records, stats.deletions, stats.bytes)
}

#[test]
fn the_greater_version_stays() {
    let mut table = table(10, 1 << 20);
    let mut is_new = |record| matches!(take(&mut table, 0, record).0, Taken::New(_));
    assert!(is_new(record(1, 5, 10, 60)));
    assert!(!is_new(record(1, 5, 10, 60)));
    assert!(!is_new(record(1, 4, 20, 60)));
    assert!(is_new(record(1, 6, 30, 60)));
    assert_eq!(stats(&table), (1, 0, 30));
}

#[test]
fn what_would_expire_first_goes_first_and_deletions_last() {
    let mut table = table(3, 1 << 20);
    let deleted = Record { deleted: true, value: Vec::new(), ..record(1, 1, 0, 1) };
    take(&mut table, 0, deleted);
    take(&mut table, 0, record(2, 1, 5, 30));
    take(&mut table, 0, record(3, 1, 5, 20));
    let (taken, evicted) = take(&mut table, 0, record(4, 1, 5, 10));
    assert!(matches!(taken, Taken::NoRoom) && evicted.is_empty(), "it would itself be the first");
    assert_eq!(take(&mut table, 0, record(5, 1, 5, 40)).1, [3]);
    assert_eq!(take(&mut table, 0, record(6, 1, 5, 50)).1, [2]);
    assert_eq!(stats(&table), (2, 1, 10));
}

#[test]
fn bytes_are_limited_too_and_counted_right() {
    let mut table = table(100, 4 * (1000 + RECORD_BYTES));
    for name in 1..=4 {
        assert!(take(&mut table, 0, record(name, 1, 1000, u64::from(name) * 10)).1.is_empty());
    }
    assert_eq!(take(&mut table, 0, record(5, 1, 2000, 100)).1, [1, 2]);
    assert_eq!(stats(&table), (3, 0, 4000));
    let (taken, _) = take(&mut table, 0, record(6, 1, 1 << 20, 200));
    assert!(matches!(taken, Taken::NoRoom));
}

#[test]
fn what_has_expired_is_not_there_though_it_is_not_removed_yet() {
    let mut table = table(10, 1 << 20);
    take(&mut table, 0, record(1, 5, 10, 60));
    let id = record(1, 0, 0, 0).id;
    let at = |secs| Time::ZERO + Span::secs(secs);
    assert!(table.get(at(59), &id).is_some() && table.expired(at(59)).is_none());
    assert!(table.get(at(60), &id).is_none());
    assert_eq!(table.expired(at(60)), Some(id));
    assert!(matches!(take(&mut table, 61, record(1, 1, 3, 60)).0, Taken::New(_)), "a new life");
    assert_eq!(stats(&table), (1, 0, 3));
}

#[test]
fn no_life_is_longer_than_allowed() {
    let mut table = table(10, 1 << 20);
    take(&mut table, 0, record(1, 1, 1, u64::MAX / 2_000_000_000));
    assert_eq!(table.expired(Time::ZERO + TTL_MAX), Some(record(1, 0, 0, 0).id));
}
