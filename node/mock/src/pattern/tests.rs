use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn tokens(from: u32, count: u32) -> Vec<Token> {
    (from..from + count).map(Token).collect()
}

#[test]
fn it_depends_on_parent_tokens_order_and_length() {
    let parent = Pattern::of(None, &tokens(0, 16));
    let mut reversed = tokens(0, 16);
    reversed.reverse();
    let mut zero = tokens(0, 16);
    zero.push(Token(0));
    let all = [
        parent,
        Pattern::of(Some(parent), &tokens(0, 16)),
        Pattern::of(Some(Pattern(0)), &tokens(0, 16)),
        Pattern::of(None, &tokens(0, 15)),
        Pattern::of(None, &tokens(0, 17)),
        Pattern::of(None, &zero),
        Pattern::of(None, &reversed),
        Pattern::of(None, &[]),
        Pattern::of(Some(parent), &[]),
        parent.and(Pattern(1)),
        Pattern(1).and(parent),
    ];
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn single_tokens_and_bits_do_not_collide() {
    let mut seen = BTreeSet::new();
    for token in 0..20_000 {
        assert!(seen.insert(Pattern::of(None, &[Token(token)])));
        assert!(seen.insert(Pattern::of(Some(Pattern(u128::from(token) << 40)), &[Token(7)])));
    }
    // Draws are spread evenly: each of 16 words about 1,250 times.
    let mut counts = [0; 16];
    for token in 0..20_000 {
        counts[(Pattern::of(None, &[Token(token)]).draw(3) % 16) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (1000..1500).contains(count)), "{counts:?}");
}

#[test]
fn the_bytes_of_a_pattern_are_fixed() {
    // Nodes of different versions exchange these bytes.
    let mut bytes = [0; 32];
    Pattern::of(None, &tokens(1, 16)).fill(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "c45d319f321bcd77d0e1477d38f7079aa8e9c48297c47b59cc43c76a6b0ef5b1");
}

#[test]
fn short_bytes_are_no_pattern() {
    for length in 0..Pattern::BYTES_MIN {
        let mut bytes = vec![0; length];
        Pattern(5).fill(&mut bytes);
        assert_eq!(Pattern::recognise(&bytes), None);
    }
    assert_eq!(Pattern::recognise(&[0; 64]), None);
}

proptest! {
    #[test]
    fn every_byte_is_checked(value: u128, length in Pattern::BYTES_MIN..300, at: usize, flip in 1u8..) {
        let mut bytes = vec![0; length];
        Pattern(value).fill(&mut bytes);
        prop_assert_eq!(Pattern::recognise(&bytes), Some(Pattern(value)));
        let at = at % length;
        bytes[at] ^= flip;
        prop_assert_eq!(Pattern::recognise(&bytes), None);
    }

    #[test]
    fn a_torn_mix_of_two_is_none(a: u128, b: u128, cut in 1usize..256) {
        prop_assume!(a != b);
        let (mut first, mut second) = (vec![0; 256], vec![0; 256]);
        Pattern(a).fill(&mut first);
        Pattern(b).fill(&mut second);
        first[cut..].copy_from_slice(&second[cut..]);
        prop_assume!(first != second);
        prop_assert_eq!(Pattern::recognise(&first), None);
    }
}
