//! Models by their names on the Hugging Face hub, kept in the cache that its own tools use.
//!
//! Environment, as with these tools: `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`,
//! `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`. Only files that a node reads are fetched, weights last, so
//! that whoever finds the weights finds everything. A file is in its place when it is whole: its
//! length is right and, where the hub tells it, its SHA-256.

mod cache;
mod fetch;
#[cfg(test)]
mod tests;

use crate::fault::Fault;
use cache::Cache;
use fetch::{Hub, Trouble};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How a name is written, for messages.
pub(super) const SYNTAX: &str = "org/name, org/name@revision or org/name:FILE.gguf";
/// Small files of a folder that are read when they are there.
const SMALL: [&str; 7] = [
    "config.json",
    "tokenizer.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];
/// Those without which there is no model.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A repository of the hub, at a revision, and perhaps one file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// `org/name`.
    pub(crate) repo: String,
    /// Branch, tag or commit.
    revision: String,
    /// A GGUF file in it.
    file: Option<String>,
}

impl Name {
    /// Reads `org/name`, `org/name@revision`, `org/name:FILE.gguf` or both together; none for a
    /// text that cannot be a name of the hub.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let (org, name) = repo.split_once('/')?;
        let part = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            let odd = part.starts_with(['.', '-']) || part.contains("..") || part.contains("--");
            (1..=96).contains(&part.len()) && part.chars().all(known) && !odd
        };
        // A file that was forgotten to be copied is no repository.
        let path = file.is_none() && (name.ends_with(".gguf") || name.ends_with(".safetensors"));
        let file_is_good = file.is_none_or(|file| plain(file) && file.ends_with(".gguf"));
        if !part(org) || !part(name) || path || !plain(revision) || !file_is_good {
            return None;
        }
        let (repo, revision) = (repo.to_owned(), revision.to_owned());
        Some(Self { repo, revision, file: file.map(str::to_owned) })
    }
}

/// True for a relative path without any way out of its folder.
fn plain(path: &str) -> bool {
    let good = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | ' ');
        !part.is_empty() && part != "." && part != ".." && part.chars().all(known)
    };
    path.len() <= 255 && path.split('/').all(good)
}

/// The folder or file of a model, fetched where it is not in the cache. Slow, and blocking.
pub(crate) fn get(name: &Name) -> Result<PathBuf, Fault> {
    let runtime = tokio::runtime::Handle::current();
    let cache = Cache::of_environment(&name.repo);
    if fetch::offline() {
        return kept(&cache, name)?.ok_or_else(|| {
            Fault::new(
                format!("HF_HUB_OFFLINE is set, and {} is not whole in {cache}", name.repo),
                "start once without HF_HUB_OFFLINE, or give --model a folder or GGUF file",
            )
        });
    }
    let hub = Hub::of_environment()?;
    match runtime.block_on(fetched(&hub, &cache, name)) {
        Ok(path) => Ok(path),
        Err(Trouble::Final(fault)) => Err(fault),
        Err(Trouble::Passing(why)) => {
            in_its_place(kept(&cache, name)?, &why, || hub.unreachable(&why))
        }
        Err(Trouble::Damaged(why)) => {
            let help = "something between the hub and this machine changes files, or the hub's are \
                        damaged: try again later, or another hub in HF_ENDPOINT";
            in_its_place(kept(&cache, name)?, &why, || Fault::new(&why, help))
        }
    }
}

/// What is in the cache instead of what the hub did not give.
fn in_its_place(
    kept: Option<PathBuf>,
    why: &str,
    fault: impl FnOnce() -> Fault,
) -> Result<PathBuf, Fault> {
    let path = kept.ok_or_else(fault)?;
    tracing::warn!("{why}; going on with what is in the cache");
    Ok(path)
}

/// The model in the cache, if it is whole there.
fn kept(cache: &Cache, name: &Name) -> Result<Option<PathBuf>, Fault> {
    let Some(commit) = cache.commit(&name.revision) else { return Ok(None) };
    let folder = cache.snapshot(&commit);
    let files = cache.files(&commit);
    let Ok(choice) = choose(name, &files) else { return Ok(None) };
    let whole = match &choice {
        Choice::File(file) => folder.join(file).is_file(),
        Choice::Folder => weights(&folder, &files)
            .is_ok_and(|weights| weights.iter().all(|file| folder.join(file).is_file())),
    };
    Ok(whole.then(|| choice.path(&folder)))
}

async fn fetched(hub: &Hub, cache: &Cache, name: &Name) -> Result<PathBuf, Trouble> {
    let (commit, files) = hub.files(&name.repo, &name.revision).await?;
    let folder = cache.snapshot(&commit);
    let choice = choose(name, &files).map_err(Trouble::Final)?;
    let get = async |files: &[String]| -> Result<(), Trouble> {
        let mut wanted = Vec::new();
        for file in files.iter().filter(|file| !folder.join(file).is_file()) {
            wanted.push(hub.look(&name.repo, &commit, file).await?);
        }
        let sizes = wanted.iter().filter_map(|file| file.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        cache.has_room(&wanted).map_err(Trouble::Final)?;
        if bytes > 1 << 20 {
            tracing::info!(model = name.repo, mb = bytes / 1_000_000, into = %cache, "downloading");
        }
        for file in &wanted {
            cache.keep(hub, &commit, file).await?;
        }
        Ok(())
    };
    match &choice {
        Choice::File(file) => get(std::slice::from_ref(file)).await?,
        Choice::Folder => {
            let small = |file: &&String| SMALL.contains(&file.as_str()) || *file == INDEX;
            let small: Vec<String> = files.iter().filter(small).cloned().collect();
            get(&small).await?;
            get(&weights(&folder, &files).map_err(Trouble::Final)?).await?;
        }
    }
    cache.refer(&name.revision, &commit).map_err(Trouble::Final)?;
    Ok(choice.path(&folder))
}

/// What of a repository is the model.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    File(String),
    Folder,
}

impl Choice {
    fn path(&self, snapshot: &Path) -> PathBuf {
        match self {
            Self::File(file) => snapshot.join(file),
            Self::Folder => snapshot.to_owned(),
        }
    }
}

fn choose(name: &Name, files: &[String]) -> Result<Choice, Fault> {
    let repo = &name.repo;
    let ggufs: Vec<&String> = files.iter().filter(|file| file.ends_with(".gguf")).collect();
    let list = || {
        let names: Vec<&str> = ggufs.iter().take(24).map(|file| file.as_str()).collect();
        names.join(", ")
    };
    if let Some(file) = &name.file {
        if files.contains(file) {
            return Ok(Choice::File(file.clone()));
        }
        return Err(match ggufs.is_empty() {
            true => Fault::new(
                format!("{repo} has no file {file}, nor any other GGUF file"),
                format!("name the repository without a file: --model {repo}"),
            ),
            false => Fault::new(format!("{repo} has no file {file}"), format!("it has {}", list())),
        });
    }
    let has = |file: &str| files.iter().any(|have| have == file);
    let weights = files.iter().any(|file| file.ends_with(".safetensors") && !file.contains('/'));
    if weights && NEEDED.iter().all(|file| has(file)) {
        return Ok(Choice::Folder);
    }
    match ggufs.as_slice() {
        [] => Err(Fault::new(
            format!(
                "{repo} has nothing that can be used: neither config.json, tokenizer.json and \
                 *.safetensors, nor a GGUF file"
            ),
            "choose a repository with safetensors or GGUF files; .bin, .pt and ONNX are not read",
        )),
        [one] => Ok(Choice::File((*one).clone())),
        _ => Err(Fault::new(
            format!("{repo} has several GGUF files: {}", list()),
            format!("name one: --model {repo}:FILE.gguf"),
        )),
    }
}

/// The files of weights of a folder, the same that are read when it is opened.
fn weights(folder: &Path, files: &[String]) -> Result<Vec<String>, Fault> {
    if files.iter().any(|file| file == SINGLE) {
        return Ok(vec![SINGLE.to_owned()]);
    }
    if !files.iter().any(|file| file == INDEX) {
        let top = |file: &&String| file.ends_with(".safetensors") && !file.contains('/');
        return Ok(files.iter().filter(top).cloned().collect());
    }
    let path = folder.join(INDEX);
    let fault = |why: &dyn std::fmt::Display| {
        Fault::new(format!("{}: {why}", path.display()), "the repository is damaged; try another")
    };
    let text = std::fs::read(&path).map_err(|error| fault(&error))?;
    let index: serde_json::Value = serde_json::from_slice(&text).map_err(|error| fault(&error))?;
    let map = index["weight_map"].as_object().ok_or_else(|| fault(&"it has no weight_map"))?;
    let names: BTreeSet<&str> = map.values().filter_map(serde_json::Value::as_str).collect();
    match names.iter().find(|name| !plain(name) || name.contains('/')) {
        Some(odd) => Err(fault(&format_args!("{odd:?} is not the name of a file beside it"))),
        None => Ok(names.into_iter().map(str::to_owned).collect()),
    }
}
