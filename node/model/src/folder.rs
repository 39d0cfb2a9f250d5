//! The files of a Hugging Face model folder.

use crate::ModelError;
use crate::fields::Fields;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Configuration files beyond this are not read.
const MAX_CONFIG: u64 = 64 << 20;
/// The largest real `tokenizer.json` files have about 30 MB.
const MAX_TOKENIZER: u64 = 1 << 30;

/// What the small files of a folder say; the weights stay on disk.
pub(crate) struct Folder {
    pub(crate) config_path: PathBuf,
    pub(crate) config: Map<String, Value>,
    pub(crate) weights: Vec<PathBuf>,
    pub(crate) tokenizer_path: PathBuf,
    pub(crate) tokenizer: Vec<u8>,
    pub(crate) template: Option<(PathBuf, String)>,
    /// Variables of the template: `bos_token`, `eos_token`, …
    pub(crate) specials: Vec<(String, String)>,
    /// Ends of sequence that `generation_config.json` adds.
    pub(crate) generation_eos: Vec<u32>,
}

impl Folder {
    pub(crate) fn read(folder: &Path) -> Result<Self, ModelError> {
        let config_path = folder.join("config.json");
        let config = object(&config_path)?.ok_or_else(|| not_a_model(folder, "config.json"))?;
        let weights = weight_files(folder)?;
        let tokenizer_path = folder.join("tokenizer.json");
        let tokenizer = read(&tokenizer_path, MAX_TOKENIZER)?
            .ok_or_else(|| not_a_model(folder, "tokenizer.json"))?;
        let generation_path = folder.join("generation_config.json");
        let generation_eos = match object(&generation_path)? {
            Some(map) => Fields::new(&generation_path, &map).ids("eos_token_id")?,
            None => Vec::new(),
        };
        let mut specials = Vec::new();
        let mut template = None;
        for name in ["tokenizer_config.json", "special_tokens_map.json", "chat_template.json"] {
            let path = folder.join(name);
            let Some(map) = object(&path)? else { continue };
            add_specials(&mut specials, &map);
            if template.is_none() {
                template = template_in(&path, &map)?.map(|text| (path, text));
            }
        }
        let own = folder.join("chat_template.jinja"); // the newer form goes first
        if let Some(bytes) = read(&own, MAX_CONFIG)? {
            let text = String::from_utf8(bytes);
            let text = text.map_err(|_| ModelError::damaged(&own, "it is not UTF-8"))?;
            template = Some((own, text));
        }
        Ok(Self {
            config_path,
            config,
            weights,
            tokenizer_path,
            tokenizer,
            template,
            specials,
            generation_eos,
        })
    }
}

pub(crate) fn not_a_model(path: &Path, looked_for: impl Into<String>) -> ModelError {
    ModelError::NotAModel { path: path.to_owned(), looked_for: looked_for.into() }
}

/// A whole file, unless it is absent.
fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, ModelError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ModelError::read(path, e)),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| ModelError::read(path, e))?;
    if bytes.len() as u64 > most {
        return Err(ModelError::damaged(path, format!("it is larger than {most} bytes")));
    }
    Ok(Some(bytes))
}

fn object(path: &Path) -> Result<Option<Map<String, Value>>, ModelError> {
    let Some(bytes) = read(path, MAX_CONFIG)? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(ModelError::damaged(path, "it is not a JSON object")),
        Err(e) => Err(ModelError::damaged(path, format!("it is not JSON: {e}"))),
    }
}

/// `model.safetensors`, or the files that the index names, or all safetensors files.
fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let single = folder.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![single]);
    }
    let index_path = folder.join("model.safetensors.index.json");
    if let Some(index) = object(&index_path)? {
        return indexed(folder, &index_path, &index);
    }
    let entries = fs::read_dir(folder).map_err(|e| ModelError::read(folder, e))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| ModelError::read(folder, e))?.path();
        if path.extension().is_some_and(|ext| ext == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(not_a_model(folder, "*.safetensors"));
    }
    Ok(files)
}

fn indexed(
    folder: &Path,
    path: &Path,
    index: &Map<String, Value>,
) -> Result<Vec<PathBuf>, ModelError> {
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| ModelError::field(path, "weight_map", "is not an object"))?;
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        let plain = |name: &&str| !name.is_empty() && !name.contains(['/', '\\']) && *name != "..";
        let Some(name) = file.as_str().filter(plain) else {
            let field = format!("weight_map.{tensor}");
            return Err(ModelError::field(path, field, "is not the name of a file in this folder"));
        };
        names.insert(name);
    }
    let files: Vec<PathBuf> = names.into_iter().map(|name| folder.join(name)).collect();
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => {
            Err(not_a_model(folder, format!("{}, which the index names", missing.display())))
        }
        None if files.is_empty() => Err(ModelError::field(path, "weight_map", "is empty")),
        None => Ok(files),
    }
}

/// `bos_token` and the like: strings, or objects with the string inside. The first file wins.
fn add_specials(specials: &mut Vec<(String, String)>, map: &Map<String, Value>) {
    for (name, value) in map {
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        let known = specials.iter().any(|(have, _)| have == name);
        if let (Some(text), true, false) = (text, name.ends_with("_token"), known) {
            specials.push((name.clone(), text.to_owned()));
        }
    }
}

/// `chat_template` is one text, or a list of named ones of which `default` is taken.
fn template_in(path: &Path, map: &Map<String, Value>) -> Result<Option<String>, ModelError> {
    match map.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(list)) => {
            let named = |entry: &&Value| entry.get("name").is_some_and(|name| name == "default");
            let chosen = list.iter().find(named).and_then(|entry| entry.get("template")?.as_str());
            Ok(chosen.map(str::to_owned))
        }
        Some(_) => Err(ModelError::field(path, "chat_template", "is not a string")),
    }
}
