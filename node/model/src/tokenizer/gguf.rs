//! A tokenizer from a GGUF file's metadata.
//!
//! GGUF names a pre-tokenizer instead of describing it; the descriptions here are those of the
//! models' own `tokenizer.json` files.

use super::Tokenizer;
use crate::ModelError;
use crate::gguf::{Header, Value};
use std::path::Path;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{
    AddedToken, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    SplitDelimiterBehavior,
};

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SUPPORTED: &str = "gpt-2, smollm, qwen2, llama-bpe";

/// llama.cpp's token types that are matched in the text before anything else.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Builds the tokenizer that the metadata describes; `path` is for messages.
pub(crate) fn from_gguf(path: &Path, header: &Header) -> Result<Tokenizer, ModelError> {
    let meta = Meta { path, header };
    let kind = meta.text("model")?.unwrap_or("");
    if kind != "gpt2" {
        let field = "tokenizer.ggml.model";
        return Err(ModelError::unsupported(path, field, kind, "gpt2 (byte-level BPE)"));
    }
    let tokens = meta.texts("tokens")?;
    let mut vocab = Vocab::default();
    for (id, token) in tokens.iter().enumerate() {
        let id = u32::try_from(id).map_err(|e| ModelError::tokenizer(path, e))?;
        if vocab.insert((*token).to_owned(), id).is_some() {
            return Err(ModelError::damaged(path, format!("the token {token:?} occurs twice")));
        }
    }
    let merge = |merge: &&str| {
        let halves = merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        halves.ok_or_else(|| ModelError::damaged(path, format!("the merge {merge:?} has no space")))
    };
    let merges = meta.texts("merges")?.iter().map(merge).collect::<Result<Vec<_>, _>>()?;
    let pre = meta.text("pre")?.unwrap_or("gpt-2");
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(matches!(pre, "llama-bpe" | "llama3"))
        .build()
        .map_err(|e| ModelError::tokenizer(path, e))?;
    let mut library = tokenizers::Tokenizer::new(bpe);
    let lib = |e: tokenizers::Error| ModelError::tokenizer(path, e);
    if pre == "qwen2" {
        library.with_normalizer(Some(NormalizerWrapper::from(NFC))).map_err(lib)?;
    }
    library.with_pre_tokenizer(Some(pre_tokenizer(path, pre)?));
    library.with_decoder(Some(ByteLevel::new(false, false, false)));
    if let Some(processor) = meta.begin_and_end(&tokens)? {
        library.with_post_processor(Some(processor));
    }
    library.add_tokens(meta.added(&tokens)?).map_err(lib)?;
    Tokenizer::from_library(path, library)
}

/// Digest of everything in the metadata that shapes tokens, chat template included.
pub(crate) fn digest_gguf(header: &Header) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 gguf tokenizer");
    for (key, value) in header.metadata.range("tokenizer.".to_owned()..) {
        if key.starts_with("tokenizer.") {
            feed(&mut hasher, &Value::Text(key.clone()));
            feed(&mut hasher, value);
        }
    }
    *hasher.finalize().as_bytes()
}

fn feed(hasher: &mut blake3::Hasher, value: &Value) {
    let (tag, word) = match value {
        Value::Unsigned(n) => (0u8, *n),
        Value::Signed(n) => (1, n.cast_unsigned()),
        Value::Float(n) => (2, n.to_bits()),
        Value::Bool(flag) => (3, u64::from(*flag)),
        Value::Text(text) => (4, text.len() as u64),
        Value::Array(list) => (5, list.len() as u64),
    };
    hasher.update(&[tag]);
    hasher.update(&word.to_le_bytes());
    match value {
        Value::Text(text) => {
            hasher.update(text.as_bytes());
        }
        Value::Array(list) => list.iter().for_each(|value| feed(hasher, value)),
        _ => {}
    }
}

fn pre_tokenizer(path: &Path, pre: &str) -> Result<PreTokenizerWrapper, ModelError> {
    let gpt2 = ByteLevel::new(false, true, true);
    let split = |expression: &str| {
        let pattern = SplitPattern::Regex(expression.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        let split = split.map_err(|e| ModelError::tokenizer(path, e))?;
        let bytes = ByteLevel::new(false, false, false);
        Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
    };
    match pre {
        "gpt-2" | "gpt2" | "default" => Ok(gpt2.into()),
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into()),
        "qwen2" => split(QWEN2),
        "llama-bpe" | "llama3" | "llama-v3" => split(LLAMA3),
        other => Err(ModelError::unsupported(path, "tokenizer.ggml.pre", other, SUPPORTED)),
    }
}

/// The `tokenizer.ggml.*` fields.
struct Meta<'a> {
    path: &'a Path,
    header: &'a Header,
}

impl<'a> Meta<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.header.metadata.get(&format!("tokenizer.ggml.{name}"))
    }

    fn wrong(&self, name: &str, expected: &str) -> ModelError {
        ModelError::field(self.path, format!("tokenizer.ggml.{name}"), format!("is not {expected}"))
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, ModelError> {
        let text = |value: &'a Value| value.text().ok_or_else(|| self.wrong(name, "a string"));
        self.get(name).map(text).transpose()
    }

    fn flag(&self, name: &str) -> Result<bool, ModelError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<&'a str>, ModelError> {
        let list = self.get(name).and_then(Value::array);
        let list = list.ok_or_else(|| self.wrong(name, "a list of strings"))?;
        let texts = list.iter().map(Value::text).collect::<Option<Vec<_>>>();
        texts.ok_or_else(|| self.wrong(name, "a list of strings"))
    }

    /// A special token by the field that holds its id.
    fn token<'t>(
        &self,
        name: &str,
        tokens: &[&'t str],
    ) -> Result<Option<(&'t str, u32)>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let id = value.unsigned().and_then(|id| u32::try_from(id).ok());
        let token = id.and_then(|id| Some((*tokens.get(id as usize)?, id)));
        token.map(Some).ok_or_else(|| self.wrong(name, "the id of a token"))
    }

    /// What is put around a text when special tokens are asked for.
    fn begin_and_end(&self, tokens: &[&str]) -> Result<Option<PostProcessorWrapper>, ModelError> {
        let mut pattern = Vec::new();
        let mut used = Vec::new();
        if self.flag("add_bos_token")?
            && let Some((text, id)) = self.token("bos_token_id", tokens)?
        {
            pattern.push(text.to_owned());
            used.push((text.to_owned(), id));
        }
        pattern.push("$A".to_owned());
        if self.flag("add_eos_token")?
            && let Some((text, id)) = self.token("eos_token_id", tokens)?
        {
            pattern.push(text.to_owned());
            used.push((text.to_owned(), id));
        }
        if used.is_empty() {
            return Ok(None);
        }
        let mut builder = TemplateProcessing::builder();
        let template =
            builder.try_single(pattern).map_err(|e| ModelError::tokenizer(self.path, e))?;
        let template = template.special_tokens(used).build();
        template.map(|t| Some(t.into())).map_err(|e| ModelError::tokenizer(self.path, e))
    }

    /// Tokens that are matched in the text as they are; control tokens are special.
    fn added(&self, tokens: &[&str]) -> Result<Vec<AddedToken>, ModelError> {
        let Some(types) = self.get("token_type") else {
            return Ok(Vec::new());
        };
        let types = types.array().filter(|types| types.len() == tokens.len());
        let types = types.ok_or_else(|| self.wrong("token_type", "a list as long as tokens"))?;
        let typed = tokens.iter().zip(types);
        let added = typed.filter_map(|(token, kind)| match kind.unsigned() {
            Some(kind @ (CONTROL | USER_DEFINED)) if !token.is_empty() => {
                Some(AddedToken::from(*token, kind == CONTROL).normalized(false))
            }
            _ => None,
        });
        Ok(added.collect())
    }
}
