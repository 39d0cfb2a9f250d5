use super::*;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Sample {
    Plain,
    Fields { id: u64, text: String, flag: bool },
    Nested(Vec<Vec<String>>, Option<i32>, [u8; 4]),
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let texts = prop::collection::vec(prop::collection::vec(".{0,8}", 0..4), 0..4);
    prop_oneof![
        Just(Sample::Plain),
        (any::<u64>(), ".{0,20}", any::<bool>()).prop_map(|(id, text, flag)| Sample::Fields {
            id,
            text,
            flag
        }),
        (texts, any::<Option<i32>>(), any::<[u8; 4]>())
            .prop_map(|(texts, number, bytes)| Sample::Nested(texts, number, bytes)),
    ]
}

fn malformed<T: DeserializeOwned>(bytes: &[u8]) -> String {
    match decode::<T>(bytes) {
        Err(WireError::Malformed(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{bytes:02x?} was decoded"),
    }
}

/// A length as the encoding writes it.
fn length(n: u64) -> Vec<u8> {
    encode(&n).unwrap()
}

proptest! {
    #[test]
    fn values_come_back(sample in any_sample()) {
        let bytes = encode(&sample).unwrap();
        prop_assert_eq!(decode::<Sample>(&bytes), Ok(sample));
    }

    #[test]
    fn no_value_is_the_beginning_of_another(sample in any_sample(), more in 1usize..5) {
        let bytes = encode(&sample).unwrap();
        for cut in 0..bytes.len() {
            prop_assert!(matches!(decode::<Sample>(&bytes[..cut]), Err(WireError::Malformed(_))));
        }
        let longer = [bytes.as_slice(), &vec![0; more]].concat();
        prop_assert_eq!(decode::<Sample>(&longer), Err(WireError::Trailing(more)));
    }

    #[test]
    fn integers_take_the_documented_bytes(value: u64, sign: i64) {
        let mut expected = match value {
            0..=250 => vec![value as u8],
            251..=0xffff => [&[251], &value.to_le_bytes()[..2]].concat(),
            0x1_0000..=0xffff_ffff => [&[252], &value.to_le_bytes()[..4]].concat(),
            _ => [&[253], &value.to_le_bytes()[..]].concat(),
        };
        prop_assert_eq!(encode(&value).unwrap(), expected.clone());
        expected = encode(&((sign << 1) ^ (sign >> 63)).cast_unsigned()).unwrap();
        prop_assert_eq!(encode(&sign).unwrap(), expected);
    }
}

/// The table of docs/formats.md.
#[test]
fn the_encoding_is_the_documented_one() {
    fn check<T: Serialize>(value: T, bytes: &[u8]) {
        assert_eq!(encode(&value).unwrap(), bytes);
    }
    check(250u64, &[250]);
    check(251u64, &[251, 251, 0]);
    check(0x1_0000u32, &[252, 0, 0, 1, 0]);
    check(1u64 << 32, &[253, 0, 0, 0, 0, 1, 0, 0, 0]);
    check(1u128 << 64, &[[254].as_slice(), &[0; 8], &[1], &[0; 7]].concat());
    check(255u8, &[255]);
    check(-1i32, &[1]);
    check(1i32, &[2]);
    check(1.0f32, &[0, 0, 0x80, 0x3f]);
    check((false, true), &[0, 1]);
    check((None::<u8>, Some(7u8)), &[0, 1, 7]);
    check("ü", &[2, 0xc3, 0xbc]);
    check(vec![1u32, 300], &[2, 1, 251, 44, 1]);
    check([1u8, 2], &[1, 2]);
    check(Sample::Plain, &[0]);
    check(Sample::Fields { id: 3, text: "a".into(), flag: true }, &[1, 3, 1, b'a', 1]);
}

#[test]
fn frames_over_the_limit_are_refused_unread() {
    let long = vec![0; FRAME_MAX + 1];
    let refused = Err(WireError::TooLong(FRAME_MAX + 1, FRAME_MAX));
    assert_eq!(decode::<Vec<u8>>(&long), refused);
    assert_eq!(decode::<()>(&[]), Ok(()));
}

/// A length that no frame could hold is refused before memory is reserved for it: reserving what
/// these claim would end the process.
#[test]
fn lengths_alone_cost_nothing() {
    for claimed in [u64::MAX, u64::MAX / 8, 1 << 62, 1 << 50, 1 << 40] {
        malformed::<Vec<u8>>(&length(claimed));
        malformed::<Vec<u128>>(&length(claimed));
        malformed::<Vec<Vec<String>>>(&[[3].as_slice(), &length(claimed)].concat());
        malformed::<String>(&length(claimed));
        malformed::<Sample>(&[[2].as_slice(), &length(claimed)].concat());
        malformed::<Sample>(&[[1, 0].as_slice(), &length(claimed)].concat());
    }
    // Texts are the one thing for which memory is reserved at once: up to the limit only.
    let over = FRAME_MAX as u64 + 1;
    assert_eq!(malformed::<String>(&length(over)), "LimitExceeded");
    assert!(malformed::<String>(&length(1000)).starts_with("UnexpectedEnd"));
}

/// The limit counts integers at their full width, so that small numbers cannot multiply in memory.
#[test]
fn the_limit_counts_what_is_decoded() {
    let fits = FRAME_MAX / 8 - 1;
    assert_eq!(decode(&encode(&vec![0u64; fits]).unwrap()), Ok(vec![0u64; fits]));
    let over = encode(&vec![0u64; fits + 1]).unwrap();
    assert!(over.len() < FRAME_MAX / 7);
    assert_eq!(malformed::<Vec<u64>>(&over), "LimitExceeded");
}

#[test]
fn what_no_encoder_writes_is_refused() {
    malformed::<bool>(&[2]);
    malformed::<Option<u8>>(&[2, 0]);
    malformed::<String>(&[1, 0xff]);
    malformed::<u16>(&[252, 0, 0, 0, 0]);
    malformed::<u32>(&[255]);
    let unknown = malformed::<Sample>(&[3]);
    assert!(unknown.contains("expected variant index 0 <= i < 3"), "{unknown}");
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    struct Endless;
    impl Serialize for Endless {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq((0u8..9).filter(|n| n % 2 == 0))
        }
    }
    assert!(matches!(encode(&Endless), Err(WireError::Encode(_))));
}
