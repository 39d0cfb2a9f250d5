use super::*;

#[test]
fn the_later_write_counts_and_writers_break_ties() {
    let version = |counter, writer, write| Version { counter, writer: NodeId([writer; 32]), write };
    let rising = [version(1, 9, 9), version(2, 0, 5), version(2, 0, 6), version(2, 1, 0)];
    assert!(rising.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn records_of_one_place_lie_together() {
    let id = |place, name, kind| RecordId {
        key: RecordKey { place: [place; 16], name: [name; 16] },
        kind,
    };
    let mut ids = [
        id(2, 0, RecordKind::Response),
        id(1, 9, RecordKind::Quota),
        id(1, 9, RecordKind::Session),
    ];
    ids.sort();
    assert_eq!(ids.map(|id| id.key.place[0]), [1, 1, 2]);
}

#[test]
fn a_record_in_a_log_shows_nothing_of_its_value() {
    let id =
        RecordId { key: RecordKey { place: [1; 16], name: [2; 16] }, kind: RecordKind::Response };
    let version = Version { counter: 3, writer: NodeId([4; 32]), write: 5 };
    let value = b"secret".to_vec();
    let record = Record { id, version, deleted: false, ttl: Span::secs(7), value };
    let text = format!("{record:?}");
    assert!(
        text.contains("6 bytes") && !text.contains("secret") && !text.contains("115"),
        "{text}"
    );
}
