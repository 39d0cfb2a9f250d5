use super::*;
use crate::nvme::tests::{Maker, NOW};
use proptest::prelude::*;

proptest! {
    #[test]
    fn keys_sort_by_tokens_and_come_back(
        tokens in any::<(u32, u32)>(), prefix in any::<(u128, u128)>(), slot in any::<u32>(),
    ) {
        let key = |tokens, prefix| RecordKey {
            tokens, prefix: PrefixHash(prefix), slot: SlotId(slot),
        };
        let (a, b) = (key(tokens.0, prefix.0), key(tokens.1, prefix.1));
        prop_assert_eq!(RecordKey::decode(&a.encode()), Some(a));
        prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
        prop_assert!(a.encode().as_slice() < META_KEY);
    }

    #[test]
    fn garbage_is_no_record(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(unseal::<Record>(b"key", &bytes).is_err());
        let _ = RecordKey::decode(&bytes);
    }
}

#[test]
fn any_changed_bit_shows() {
    let block = Maker::new(64).block(5, None);
    let record = Record::new(&block, NOW);
    let good = seal(b"key", &record).unwrap();
    assert_eq!(unseal::<Record>(b"key", &good), Ok(record.clone()));
    assert_eq!(unseal::<Record>(b"kez", &good), Err(Bad::Damaged));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(unseal::<Record>(b"key", &bad).is_err(), "bit {bit}");
    }
    let newer = seal_as(VERSION + 1, b"key", &record).unwrap();
    assert_eq!(unseal::<Record>(b"key", &newer), Err(Bad::Newer(VERSION + 1)));
}

#[test]
fn records_are_small() {
    let block = Maker::new(64).block(5, None);
    let bytes = seal(b"key", &Record::new(&block, NOW)).unwrap();
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
}
