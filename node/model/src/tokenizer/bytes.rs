//! The bytes behind the tokens of a byte-level vocabulary.

use tokenizers::DecoderWrapper;

/// For each token id its bytes, in one buffer.
pub(super) struct ByteTable {
    bytes: Vec<u8>,
    /// Where the bytes of id `i` end; they begin where those of `i - 1` end.
    ends: Vec<u32>,
}

impl ByteTable {
    /// `None` when the tokenizer does not decode byte by byte.
    pub(super) fn new(library: &tokenizers::Tokenizer, size: usize) -> Option<Self> {
        let DecoderWrapper::ByteLevel(_) = library.get_decoder()? else {
            return None;
        };
        let mut table = Self { bytes: Vec::new(), ends: Vec::with_capacity(size) };
        for id in 0..u32::try_from(size).ok()? {
            if let Some(token) = library.id_to_token(id) {
                append(&mut table.bytes, &token);
            }
            table.ends.push(u32::try_from(table.bytes.len()).ok()?);
        }
        Some(table)
    }

    /// The token's bytes; empty for unknown ids.
    pub(super) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let begin = id.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |b| *b);
        let end = self.ends.get(id).copied().unwrap_or(begin);
        self.bytes.get(begin as usize..end as usize).unwrap_or_default()
    }
}

/// A token spelt in the byte alphabet stands for those bytes; any other (an added token such as
/// `<tool_call>…` with letters outside the alphabet) for its own text.
fn append(out: &mut Vec<u8>, token: &str) {
    let before = out.len();
    for letter in token.chars() {
        match byte(letter) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(before);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// Whether the vocabulary spells a space as U+2581 and lonely bytes as `<0x0A>`, as SentencePiece
/// does with byte fallback.
pub(super) fn falls_back(library: &tokenizers::Tokenizer) -> bool {
    fn is(decoder: &DecoderWrapper) -> bool {
        match decoder {
            DecoderWrapper::ByteFallback(_) => true,
            DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(is),
            _ => false,
        }
    }
    library.get_decoder().is_some_and(is)
}

/// The bytes of a token of such a vocabulary.
pub(super) fn fallback(token: &str) -> Vec<u8> {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match digits.filter(|digits| digits.len() == 2).map(|digits| u8::from_str_radix(digits, 16)) {
        Some(Ok(byte)) => vec![byte],
        _ => token.replace('\u{2581}', " ").into_bytes(),
    }
}

/// The letters of the byte alphabet, each with its byte.
pub(super) fn alphabet() -> impl Iterator<Item = (char, u8)> {
    ('\0'..='\u{143}').filter_map(|letter| Some((letter, byte(letter)?)))
}

/// GPT-2's alphabet: printable Latin-1 letters stand for themselves, the other 68 bytes, in order,
/// for U+0100 and following. Source: `bytes_to_unicode` in openai/gpt-2, src/encoder.py.
fn byte(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(), // 0x00 to 0x20
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(), // 0x7f to 0xa0
        0x143 => Some(0xad),
        _ => None,
    }
}
