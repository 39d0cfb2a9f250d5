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
    Table::new(Limit { records, bytes, deletions: 2 })
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

fn deletion(name: u8, secs: u64) -> Record {
    Record { deleted: true, ..record(name, 9, 0, secs) }
}

#[test]
fn what_would_expire_first_goes_first_and_deletions_have_their_own_room() {
    let mut table = table(2, 1 << 20);
    take(&mut table, 0, deletion(1, 1));
    take(&mut table, 0, record(2, 1, 5, 30));
    take(&mut table, 0, record(3, 1, 5, 20));
    let (taken, evicted) = take(&mut table, 0, record(4, 1, 5, 10));
    assert!(
        matches!(taken, Taken::NoRoom(_)) && evicted.is_empty(),
        "it would itself be the first"
    );
    assert_eq!(take(&mut table, 0, record(5, 1, 5, 40)).1, [3]);
    assert_eq!(take(&mut table, 0, record(6, 1, 5, 50)).1, [2]);
    assert_eq!(stats(&table), (2, 1, 10));
    assert!(take(&mut table, 0, deletion(7, 3)).1.is_empty());
    assert_eq!(take(&mut table, 0, deletion(8, 2)).1, [1]);
    assert_eq!(stats(&table), (2, 2, 10));
}

#[test]
fn what_is_deleted_goes_though_the_deletion_has_no_room() {
    let mut table = table(10, 1 << 20);
    take(&mut table, 0, record(1, 1, 5, 30));
    take(&mut table, 0, deletion(2, 60));
    take(&mut table, 0, deletion(3, 60));
    let (taken, evicted) = take(&mut table, 0, deletion(1, 20));
    assert!(matches!(taken, Taken::NoRoom(_)));
    assert_eq!((evicted, stats(&table)), (vec![1], (0, 2, 0)));
}

#[test]
fn nothing_goes_for_a_newcomer_that_is_refused_all_the_same() {
    let mut table = table(100, 10 * (1024 + RECORD_BYTES));
    for name in 1..=10 {
        take(&mut table, 0, record(name, 1, 1024, u64::from(name) * 10));
    }
    let long = |name| record(name, 2, 12 * 1024, 95);
    for name in [20, 5] {
        let (taken, evicted) = take(&mut table, 0, long(name));
        assert!(matches!(taken, Taken::NoRoom(_)) && evicted.is_empty());
    }
    assert_eq!(stats(&table), (10, 0, 10 * 1024));
    // It replaces a record of its own name, whose room counts.
    let (taken, evicted) = take(&mut table, 0, record(5, 2, 2048, 95));
    assert!(matches!(taken, Taken::New(_)));
    assert_eq!((evicted, stats(&table)), (vec![1], (9, 0, 8 * 1024 + 2048)));
}

#[test]
fn what_went_for_room_is_remembered_until_it_would_find_some() {
    let mut table = table(2, 1 << 20);
    for name in 1..=4 {
        take(&mut table, 0, record(name, 3, 5, u64::from(name) * 10));
    }
    let refused = |table: &Table| -> Vec<u8> {
        let (first, last) = (bucket_ends(0).0, bucket_ends(255).1);
        table.refused.range(first, last).map(|refusal| refusal.place.3.key.name[0]).collect()
    };
    assert_eq!(refused(&table), [1, 2]);
    let older = take(&mut table, 0, record(2, 1, 5, 90)).0;
    assert!(matches!(older, Taken::Older(version) if version.counter == 3));
    let at = |secs| Time::ZERO + Span::secs(secs);
    table.reconsider(at(1));
    assert_eq!(refused(&table), [1, 2]);
    table.reconsider(at(10));
    assert_eq!(refused(&table), [2], "the time of the other is over");
    table.remove(&record(3, 0, 0, 0).id);
    table.reconsider(at(11));
    assert_eq!(refused(&table), [0; 0]);
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
    assert!(matches!(taken, Taken::NoRoom(_)));
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
