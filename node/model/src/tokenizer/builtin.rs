//! A tokenizer without files: each byte is a token.

use super::Tokenizer;
use super::bytes;
use crate::ModelError;
use std::path::Path;
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

impl Tokenizer {
    /// Byte `b` is token `b`; control tokens follow from 256 on. `path` is for messages.
    pub(crate) fn byte_level(path: &Path, specials: &[&str]) -> Result<Self, ModelError> {
        let mut vocab: Vocab =
            bytes::alphabet().map(|(letter, byte)| (letter.to_string(), byte.into())).collect();
        for special in specials {
            vocab.insert((*special).to_owned(), u32::try_from(vocab.len()).unwrap_or(u32::MAX));
        }
        let bpe = BPE::builder().vocab_and_merges(vocab, Vec::new()).build();
        let mut library =
            tokenizers::Tokenizer::new(bpe.map_err(|e| ModelError::tokenizer(path, e))?);
        library.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        library.with_decoder(Some(ByteLevel::new(false, false, false)));
        let specials = specials.iter().map(|text| AddedToken::from(*text, true));
        let added = library.add_special_tokens(specials.collect::<Vec<_>>());
        added.map_err(|e| ModelError::tokenizer(path, e))?;
        Self::from_library(path, library)
    }
}
