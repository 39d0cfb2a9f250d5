//! The model without files.

use super::{Model, OpenOptions, Parts};
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;
use crate::{Arch, ModelConfig, ModelError, RopeScaling};
use std::path::{Path, PathBuf};

/// Its name.
const NAME: &str = "builtin";
/// Control tokens, behind the 256 bytes.
const SPECIALS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"];
/// Longest context in tokens.
const CONTEXT: usize = 262_144;
/// ChatML: one form for every role. Tools and their calls are said in words by the folding of
/// messages: Hermes' form.
const TEMPLATE: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

impl Model {
    /// Name of the model without files.
    pub const BUILTIN: &str = NAME;

    /// A model without files, for engines that need no weights: each byte is a token (its value),
    /// behind them come ChatML's control tokens; context of 262,144 tokens. The digests follow from
    /// these, so all nodes of one version agree. No engine can compute with it.
    ///
    /// # Errors
    /// None that a test would not have found.
    pub fn builtin() -> Result<Self, ModelError> {
        let path = Path::new(NAME);
        let tokenizer = Tokenizer::byte_level(path, &SPECIALS)?;
        let mut digest = blake3::Hasher::new_derive_key("dynamo-node 2026-11 byte-level tokenizer");
        for special in SPECIALS {
            digest.update(&(special.len() as u64).to_le_bytes());
            digest.update(special.as_bytes());
        }
        let config = ModelConfig {
            arch: Arch::Llama,
            hidden: 64,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 64,
            intermediate: 64,
            vocab: tokenizer.vocab_size(),
            rms_eps: 1e-5,
            rope_theta: 1e4,
            rope_scaling: RopeScaling::None,
            max_position: CONTEXT,
            tie_word_embeddings: true,
            bos: None,
            eos: tokenizer.token("<|im_end|>").map(|token| token.0).into_iter().collect(),
        };
        let parts = Parts {
            config,
            tokenizer,
            tokenizer_file: None,
            tokenizer_digest: *digest.finalize().as_bytes(),
            weights: Weights::none(),
            template: Some((PathBuf::from(NAME), TEMPLATE.to_owned())),
            specials: Vec::new(),
            extra_eos: Vec::new(),
        };
        parts.finish(path, NAME.to_owned(), &OpenOptions::default())
    }
}
