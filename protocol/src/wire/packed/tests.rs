use crate::hash::{PrefixHash, Token};
use crate::wire::{WireError, decode, encode};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Lists {
    #[serde(with = "super::tokens")]
    tokens: Arc<Vec<Token>>,
    #[serde(with = "super::names")]
    names: Arc<Vec<PrefixHash>>,
}

fn bytes(tokens: &[u32]) -> Vec<u8> {
    let tokens: Vec<Token> = tokens.iter().copied().map(Token).collect();
    encode(&Lists { tokens: tokens.into(), names: Arc::default() }).unwrap()
}

#[test]
fn the_greatest_token_decides_the_width() {
    assert_eq!(bytes(&[]), [0, 0]);
    assert_eq!(bytes(&[1, 255]), [3, 1, 1, 255, 0]);
    assert_eq!(bytes(&[256, 1]), [5, 2, 0, 1, 1, 0, 0]);
    assert_eq!(bytes(&[0x1_0000]), [4, 3, 0, 0, 1, 0]);
    assert_eq!(bytes(&[u32::MAX]), [5, 4, 255, 255, 255, 255, 0]);
    let names = vec![PrefixHash(2), PrefixHash(1 << 64)].into();
    let packed = encode(&Lists { tokens: Arc::default(), names }).unwrap();
    let expected = [[0, 32, 2].as_slice(), &[0; 15], &[0; 8], &[1], &[0; 7]].concat();
    assert_eq!(packed, expected);
}

#[test]
fn what_is_not_packed_so_is_refused() {
    for wrong in [
        [1, 5, 0].as_slice(),
        &[1, 0, 0],
        &[4, 2, 1, 0, 1, 0],
        &[3, 4, 0, 0, 0],
        &[0, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert!(matches!(decode::<Lists>(wrong), Err(WireError::Malformed(_))), "{wrong:?}");
    }
    // A width that is wider than needed is read.
    let wide = decode::<Lists>(&[5, 2, 7, 0, 1, 0, 0]).unwrap();
    assert_eq!(*wide.tokens, [Token(7), Token(1)]);
}

proptest! {
    #[test]
    fn lists_come_back(tokens: Vec<u32>, shift in 0u32..32, names: Vec<u128>) {
        let tokens: Vec<_> = tokens.into_iter().map(|token| Token(token >> shift)).collect();
        let names: Vec<_> = names.into_iter().map(PrefixHash).collect();
        let lists = Lists { tokens: tokens.into(), names: names.into() };
        prop_assert_eq!(decode::<Lists>(&encode(&lists).unwrap()), Ok(lists));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = decode::<Lists>(&bytes);
    }
}
