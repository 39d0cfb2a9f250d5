//! A model, opened.

mod builtin;
#[cfg(test)]
mod tests;

use crate::ModelError;
use crate::config::{self, FromTensors, ModelConfig};
use crate::fields::Fields;
use crate::folder::{Folder, not_a_model};
use crate::gguf::{Header, TensorInfo, Value};
use crate::grammar::Grammars;
use crate::processor::Processor;
use crate::template::{ChatTemplate, Date};
use crate::tokenizer::{self, Tokenizer};
use crate::weights::{self, Opened, Weights};
use candle_core::quantized::GgmlDType;
use protocol::card::{BlobDigest, ModelCard};
use protocol::hash::{HASH_VERSION, RoutingNamespace, Token};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening a model cannot find in its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// The day that chat templates tell the model that cannot do without one; without it those fail
    /// when they render. Templates that have a day of their own for want of it keep that: their
    /// prompts are the same every day and on every node.
    pub today: Option<Date>,
}

impl OpenOptions {
    /// The day, for a template that cannot do without: one that only some templates ask for would
    /// make their prompts new every day.
    pub(crate) fn day_for(&self, template: Option<&str>) -> Option<Date> {
        self.today.filter(|_| template.is_some_and(demands_day))
    }
}

/// Everything read from a model's files, and checked: any decoder of its family can run it.
#[derive(Debug)]
pub struct Model {
    name: String,
    config: ModelConfig,
    processor: Arc<Processor>,
    /// The content of `tokenizer.json`, where there is one.
    tokenizer_file: Option<Arc<[u8]>>,
    weights: Weights,
    routing: RoutingNamespace,
}

/// What both file formats come to.
struct Parts {
    config: ModelConfig,
    tokenizer: Tokenizer,
    tokenizer_file: Option<Vec<u8>>,
    tokenizer_digest: [u8; 32],
    weights: Weights,
    template: Option<(PathBuf, String)>,
    specials: Vec<(String, String)>,
    extra_eos: Vec<u32>,
}

/// Control tokens that end a turn in the families served here. Files often name only one of a
/// model's ends; where these exist as control tokens they end an answer too.
const KNOWN_ENDS: [&str; 7] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "</s>",
];

impl Model {
    /// Opens a folder with `config.json`, safetensors and `tokenizer.json`, a GGUF file, or a
    /// folder with exactly one GGUF file. Reads all bytes once (for the digest).
    ///
    /// # Errors
    /// Everything that is wrong with the files; each error says what to do.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`Self::open`], with options.
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, ModelError> {
        let meta = fs::metadata(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => ModelError::Missing { path: path.to_owned() },
            _ => ModelError::read(path, e),
        })?;
        let gguf = if meta.is_file() { Some(path.to_owned()) } else { lone_gguf(path)? };
        let parts = match &gguf {
            Some(file) => Parts::gguf(file)?,
            None => Parts::folder(path)?,
        };
        parts.finish(path, name(path, meta.is_file()), options)
    }

    /// The served name by default: the file's stem or the folder's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sizes and constants of the decoder.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// All but the weights.
    pub fn processor(&self) -> &Arc<Processor> {
        &self.processor
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.processor.tokenizer()
    }

    /// Tokens that end an answer: end of sequence and end of turn; sorted.
    pub fn stop_tokens(&self) -> &[Token] {
        self.processor.stop_tokens()
    }

    /// The chat template.
    pub fn template(&self) -> &ChatTemplate {
        self.processor.template()
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The compiler of constraints on its answers.
    pub fn grammars(&self) -> Arc<Grammars> {
        self.processor.grammars()
    }

    /// What must be equal for equal names of prefixes: digests of weights and tokenizer.
    pub fn routing(&self) -> RoutingNamespace {
        self.routing.clone()
    }

    /// What other nodes need to take requests for this model, served under `name` and `aliases`
    /// with answers in `format`; beside it the tokenizer's bytes, which the card names.
    pub fn card(&self, name: &str, aliases: &[String], format: &str) -> (ModelCard, Arc<[u8]>) {
        let file = self.tokenizer_file.clone();
        let tokenizer = file.unwrap_or_else(|| self.tokenizer().to_json().into());
        let template = self.template();
        let card = ModelCard {
            name: name.to_owned(),
            aliases: aliases.to_vec(),
            format: format.to_owned(),
            routing: self.routing(),
            stop_tokens: self.stop_tokens().to_vec(),
            template: template.source().map(str::to_owned),
            specials: template.specials().to_vec(),
            tokenizer: BlobDigest::of(&tokenizer),
        };
        (card, tokenizer)
    }
}

fn name(path: &Path, file: bool) -> String {
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = if file { full.file_stem() } else { full.file_name() };
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The GGUF file of a folder that has no `config.json`, or an error that says what is missing.
fn lone_gguf(folder: &Path) -> Result<Option<PathBuf>, ModelError> {
    if folder.join("config.json").exists() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| ModelError::read(folder, e))? {
        let path = entry.map_err(|e| ModelError::read(folder, e))?.path();
        if path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("gguf")) {
            found.push(path);
        }
    }
    match found.as_slice() {
        [one] => Ok(Some(one.clone())),
        [] => Err(not_a_model(folder, "config.json or one .gguf file, found neither")),
        several => {
            let found = several.len();
            let looked_for = format!("one .gguf file, found {found}; name the file itself");
            Err(not_a_model(folder, looked_for))
        }
    }
}

impl Parts {
    fn folder(path: &Path) -> Result<Self, ModelError> {
        let folder = Folder::read(path)?;
        let config = config::from_json(&Fields::new(&folder.config_path, &folder.config))?;
        let tokenizer = Tokenizer::from_json(&folder.tokenizer_path, &folder.tokenizer)?;
        let mut digest = blake3::Hasher::new_derive_key("dynamo-node 2026-11 tokenizer.json");
        digest.update(&folder.tokenizer);
        Ok(Self {
            weights: Opened::safetensors(&folder.weights)?.check(&config, path)?,
            config,
            tokenizer,
            tokenizer_digest: *digest.finalize().as_bytes(),
            tokenizer_file: Some(folder.tokenizer),
            template: folder.template,
            specials: folder.specials,
            extra_eos: folder.generation_eos,
        })
    }

    fn gguf(path: &Path) -> Result<Self, ModelError> {
        let file = weights::map(path)?;
        let header = Header::read(file.bytes()).map_err(|e| weights::gguf_error(path, e))?;
        let scalars = header.scalars();
        let rope = header.tensors.get("rope_freqs.weight");
        let config = config::from_gguf(
            &Fields::new(path, &scalars),
            FromTensors {
                vocab: header.tensors.get("token_embd.weight").and_then(rows),
                has_head: header.tensors.contains_key("output.weight"),
                rope_factors: rope.map(|info| floats(info, file.bytes())),
            },
        )?;
        let tokenizer = tokenizer::from_gguf(path, &header)?;
        let template = header.metadata.get("tokenizer.chat_template").and_then(Value::text);
        Ok(Self {
            template: template.map(|text| (path.to_owned(), text.to_owned())),
            specials: specials(&header),
            weights: Opened::gguf(file, &header).interleaved(&config).check(&config, path)?,
            tokenizer_digest: tokenizer::digest_gguf(&header),
            tokenizer_file: None,
            config,
            tokenizer,
            extra_eos: Vec::new(),
        })
    }

    fn finish(
        mut self,
        path: &Path,
        name: String,
        options: &OpenOptions,
    ) -> Result<Model, ModelError> {
        let (ids, rows) = (self.tokenizer.vocab_size(), self.config.vocab);
        if ids > rows {
            let detail = format!("it has {ids} tokens, but the model's embedding has {rows} rows");
            return Err(ModelError::tokenizer(path, detail));
        }
        let source = self.template.as_ref().map(|(_, text)| text.as_str());
        let today = options.day_for(source);
        let template = ChatTemplate::compile(source, self.specials.clone(), today);
        let template = template.map_err(|detail| {
            let path = self.template.as_ref().map_or(path, |(path, _)| path);
            ModelError::Template { path: path.to_owned(), detail }
        })?;
        let stop_tokens = self.ends(path)?;
        self.config.eos = stop_tokens.iter().map(|token| token.0).collect();
        let mut digest = blake3::Hasher::new_derive_key("dynamo-node 2026-11 tokenizer, template");
        digest.update(&self.tokenizer_digest);
        digest.update(template.source().unwrap_or_default().as_bytes());
        let routing = RoutingNamespace {
            weights: self.weights.digest(&self.config),
            tokenizer: *digest.finalize().as_bytes(),
            lora: None,
            hash_version: HASH_VERSION,
        };
        Ok(Model {
            name,
            config: self.config,
            processor: Arc::new(Processor::new(self.tokenizer, template, stop_tokens)),
            tokenizer_file: self.tokenizer_file.map(Arc::from),
            weights: self.weights,
            routing,
        })
    }

    fn ends(&self, path: &Path) -> Result<Vec<Token>, ModelError> {
        let mut ends: Vec<Token> =
            self.config.eos.iter().chain(&self.extra_eos).copied().map(Token).collect();
        let eos_text = self.specials.iter().find(|(name, _)| name == "eos_token");
        ends.extend(eos_text.and_then(|(_, text)| self.tokenizer.token(text)));
        let known = KNOWN_ENDS.iter().filter_map(|text| self.tokenizer.token(text));
        ends.extend(known.filter(|token| self.tokenizer.is_special(*token)));
        ends.sort();
        ends.dedup();
        match ends.last() {
            Some(last) if last.0 as usize >= self.config.vocab => {
                let problem =
                    format!("is {}, beyond the vocabulary of {}", last.0, self.config.vocab);
                Err(ModelError::field(path, "eos_token_id", problem))
            }
            _ => Ok(ends),
        }
    }
}

/// Whether a template fails without a day: it asks for one and has none of its own for want of it.
fn demands_day(template: &str) -> bool {
    template.contains("strftime_now") && !template.contains("strftime_now is defined")
}

fn rows(info: &TensorInfo) -> Option<usize> {
    info.shape.first().copied().filter(|_| info.shape.len() == 2)
}

/// The values of a tensor of f32; empty for any other type, which the caller refuses by its count.
fn floats(info: &TensorInfo, file: &[u8]) -> Vec<f32> {
    if info.dtype != GgmlDType::F32 {
        return Vec::new();
    }
    let bytes = file.get(info.start..).and_then(|tail| tail.get(..info.len)).unwrap_or_default();
    let float = |chunk: &[u8]| chunk.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
    bytes.chunks_exact(4).map(float).collect()
}

/// Template variables for special tokens, as transformers names them.
fn specials(header: &Header) -> Vec<(String, String)> {
    let tokens = header.metadata.get("tokenizer.ggml.tokens").and_then(Value::array);
    let names = [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("pad_token", "padding"),
    ];
    let text = |(variable, key): (&str, &str)| {
        let id = header.metadata.get(&format!("tokenizer.ggml.{key}_token_id"))?.unsigned()?;
        let text = tokens?.get(usize::try_from(id).ok()?)?.text()?;
        Some((variable.to_owned(), text.to_owned()))
    };
    names.into_iter().filter_map(text).collect()
}
