use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn records_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let records = Records::open(dir.path()).unwrap();
        records.put("member", b"a", b"one").unwrap();
        records.put("member", b"b", b"two").unwrap();
        records.put("members", b"c", b"another kind").unwrap();
        records.delete("member", b"a").unwrap();
    }
    let records = Records::open(dir.path()).unwrap();
    assert_eq!(records.get("member", b"a").unwrap(), None);
    assert_eq!(records.get("member", b"b").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(records.keys("member").unwrap(), vec![b"b".to_vec()]);
}

#[test]
fn a_folder_in_use_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Records::open(dir.path()).unwrap();
    let second = Records::open(dir.path());
    assert!(matches!(second, Err(RecordsError::InUse(_))), "{second:?}");
}

#[test]
fn every_boot_counts_and_a_restored_copy_jumps_ahead() {
    let dir = tempfile::tempdir().unwrap();
    for boot in 1..=3 {
        let records = Records::open(dir.path()).unwrap();
        let life = records.next_incarnation(7).unwrap();
        assert_eq!(life, Incarnation { counter: boot, nonce: 7 });
    }
    let records = Records::open(dir.path()).unwrap();
    records.raise_incarnation(40).unwrap();
    records.raise_incarnation(5).unwrap();
    assert_eq!(records.next_incarnation(1).unwrap().counter, 41);
}

#[test]
fn damage_and_newer_versions_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    records.put("k", b"x", b"value").unwrap();
    let at = place("k", b"x");
    let good = records.db.get(&at).unwrap().unwrap();
    for index in 1..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 1;
        records.db.put(&at, bad).unwrap();
        assert!(matches!(records.get("k", b"x"), Err(RecordsError::Damaged { .. })), "{index}");
    }
    let mut newer = good.clone();
    newer[0] = VERSION + 1;
    records.db.put(&at, newer).unwrap();
    assert!(matches!(records.get("k", b"x"), Err(RecordsError::Newer { .. })));
    // A record is bound to its place: a copy under another key is no record.
    records.db.put(place("k", b"y"), good).unwrap();
    assert!(matches!(records.get("k", b"y"), Err(RecordsError::Damaged { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn records_are_a_map(
        steps in prop::collection::vec(
            (0u8..3, "[a-c]{1,2}", prop::collection::vec(any::<u8>(), 0..4), any::<Option<Vec<u8>>>()),
            1..24,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut model: BTreeMap<(String, Vec<u8>), Vec<u8>> = BTreeMap::new();
        let mut records = Records::open(dir.path()).unwrap();
        for (reopen, kind, key, value) in steps {
            if reopen == 0 {
                drop(records);
                records = Records::open(dir.path()).unwrap();
            }
            match value {
                Some(value) => {
                    records.put(&kind, &key, &value).unwrap();
                    model.insert((kind.clone(), key), value);
                }
                None => {
                    records.delete(&kind, &key).unwrap();
                    model.remove(&(kind.clone(), key));
                }
            }
            let keys: Vec<Vec<u8>> =
                model.keys().filter(|(k, _)| *k == kind).map(|(_, key)| key.clone()).collect();
            prop_assert_eq!(records.keys(&kind).unwrap(), keys);
        }
        for ((kind, key), value) in model {
            prop_assert_eq!(records.get(&kind, &key).unwrap(), Some(value));
        }
    }
}

#[test]
fn many_changes_are_made_in_order_and_at_once() {
    let dir = tempfile::tempdir().unwrap();
    {
        let records = Records::open(dir.path()).unwrap();
        records.put("state", b"a", b"old").unwrap();
        let change = |key: &[u8], value: Option<&[u8]>| (key.to_vec(), value.map(<[u8]>::to_vec));
        let changes = [
            change(b"a", None),
            change(b"b", Some(b"one")),
            change(b"b", Some(b"two")),
            change(b"c", Some(b"gone")),
            change(b"c", None),
        ];
        records.apply("state", changes).unwrap();
    }
    let records = Records::open(dir.path()).unwrap();
    assert_eq!(records.keys("state").unwrap(), [b"b".to_vec()]);
    assert_eq!(records.get("state", b"b").unwrap().as_deref(), Some(&b"two"[..]));
}
