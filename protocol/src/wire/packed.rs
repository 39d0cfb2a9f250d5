//! Long lists of tokens and names as one string of bytes: a prompt has a hundred thousand, and
//! numbers one by one cost more than the bytes they take.

/// Tokens: the bytes of one, 1 to 4 (the fewest that hold the greatest), then each in so many bytes,
/// little endian. No tokens are no bytes.
pub(crate) mod tokens {
    use crate::hash::Token;
    use serde::{Deserializer, Serializer, de::Error};
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(tokens: &[Token], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&pack(tokens))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<Vec<Token>>, D::Error> {
        let bytes = super::bytes(from)?;
        unpack(&bytes)
            .map(Arc::new)
            .ok_or_else(|| D::Error::custom("the tokens are not packed as they should"))
    }

    fn pack(tokens: &[Token]) -> Vec<u8> {
        let Some(greatest) = tokens.iter().max() else { return Vec::new() };
        let width = match greatest.0 {
            0..=0xff => 1u8,
            0x100..=0xffff => 2,
            0x1_0000..=0xff_ffff => 3,
            _ => 4,
        };
        let mut out = Vec::with_capacity(1 + tokens.len() * usize::from(width));
        out.push(width);
        match width {
            1 => write(&mut out, tokens, |[a, ..]| [a]),
            2 => write(&mut out, tokens, |[a, b, ..]| [a, b]),
            3 => write(&mut out, tokens, |[a, b, c, _]| [a, b, c]),
            _ => write(&mut out, tokens, |all| all),
        }
        out
    }

    fn write<const N: usize>(
        out: &mut Vec<u8>,
        tokens: &[Token],
        cut: impl Fn([u8; 4]) -> [u8; N],
    ) {
        const AT_ONCE: usize = 64;
        for tokens in tokens.chunks(AT_ONCE) {
            let mut places = [[0; N]; AT_ONCE];
            for (place, token) in places.iter_mut().zip(tokens) {
                *place = cut(token.0.to_le_bytes());
            }
            let written = places.as_flattened().get(..tokens.len() * N);
            out.extend_from_slice(written.unwrap_or_default());
        }
    }

    fn unpack(bytes: &[u8]) -> Option<Vec<Token>> {
        let Some((width, bytes)) = bytes.split_first() else { return Some(Vec::new()) };
        match width {
            1 => read(bytes, |[a]| [a, 0, 0, 0]),
            2 => read(bytes, |[a, b]| [a, b, 0, 0]),
            3 => read(bytes, |[a, b, c]| [a, b, c, 0]),
            4 => read(bytes, |all| all),
            _ => None,
        }
    }

    fn read<const N: usize>(bytes: &[u8], fill: impl Fn([u8; N]) -> [u8; 4]) -> Option<Vec<Token>> {
        let (tokens, rest) = bytes.as_chunks::<N>();
        let token = |bytes: &[u8; N]| Token(u32::from_le_bytes(fill(*bytes)));
        rest.is_empty().then(|| tokens.iter().map(token).collect())
    }
}

/// Names: 16 bytes each, little endian.
pub(crate) mod names {
    use crate::hash::PrefixHash;
    use serde::{Deserializer, Serializer, de::Error};
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(names: &[PrefixHash], to: S) -> Result<S::Ok, S::Error> {
        let mut out = Vec::with_capacity(names.len() * 16);
        for name in names {
            out.extend_from_slice(&name.0.to_le_bytes());
        }
        to.serialize_bytes(&out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<Vec<PrefixHash>>, D::Error> {
        let bytes = super::bytes(from)?;
        let (names, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(D::Error::custom("the names are not 16 bytes each"));
        }
        let name = |name: &[u8; 16]| PrefixHash(u128::from_le_bytes(*name));
        Ok(Arc::new(names.iter().map(name).collect()))
    }
}

/// A string of bytes, lent where it can be.
fn bytes<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<std::borrow::Cow<'de, [u8]>, D::Error> {
    use std::borrow::Cow;
    use std::fmt;

    struct Bytes;
    impl<'de> serde::de::Visitor<'de> for Bytes {
        type Value = Cow<'de, [u8]>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string of bytes")
        }

        fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
            Ok(Cow::Borrowed(bytes))
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(Cow::Owned(bytes.to_vec()))
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Self::Value, E> {
            Ok(Cow::Owned(bytes))
        }
    }
    from.deserialize_bytes(Bytes)
}

#[cfg(test)]
mod tests;
