//! From what the user names to a model that is read.

mod hub;

use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::fault::Fault;
use frontend::Format;
use model::{Date, Model, OpenOptions};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The cache folder of the environment.
fn cache_home() -> PathBuf {
    cache_home_of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

/// An empty variable is none.
fn cache_home_of(xdg: Option<OsString>, home: Option<OsString>) -> PathBuf {
    let set = |path: Option<OsString>| path.filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || set(home).unwrap_or_else(|| PathBuf::from("/var/lib")).join(".cache");
    set(xdg).unwrap_or_else(home)
}

/// Folder of the models that can be named without a path.
fn cache_dir() -> PathBuf {
    cache_home().join("dynamo-node/models")
}

/// The file or folder behind a name or path.
fn locate(name: &str) -> Result<PathBuf, Fault> {
    let path = Path::new(name);
    if name.contains('/') || name.ends_with(".gguf") || path.exists() {
        return match hub::Name::parse(name) {
            _ if path.exists() => Ok(path.to_owned()),
            Some(name) => hub::get(&name),
            None => Err(Fault::new(
                format!("there is no model at {name}"),
                format!(
                    "give --model an existing folder or GGUF file, a name in the model cache, or \
                     one of the Hugging Face hub ({})",
                    hub::SYNTAX
                ),
            )),
        };
    }
    find(&cache_dir(), name)
}

/// The model of this name in a folder of models.
fn find(folder: &Path, name: &str) -> Result<PathBuf, Fault> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut known: Vec<(String, PathBuf)> = entries
        .map(|entry| {
            let file = entry.file_name().to_string_lossy().to_ascii_lowercase();
            (file.strip_suffix(".gguf").unwrap_or(&file).to_owned(), entry.path())
        })
        .collect();
    known.sort();
    let wanted = name.to_ascii_lowercase();
    let wanted = wanted.strip_suffix(".gguf").unwrap_or(&wanted);
    let mut fits: Vec<&(String, PathBuf)> =
        known.iter().filter(|(stem, _)| stem == wanted).collect();
    if fits.is_empty() {
        // `smollm2-135m-instruct` names `SmolLM2-135M-Instruct.Q4_1.gguf` too.
        let short = |stem: &str| stem.rsplit_once('.').is_some_and(|(short, _)| short == wanted);
        fits = known.iter().filter(|(stem, _)| short(stem)).collect();
    }
    let list = |models: &[&(String, PathBuf)]| -> String {
        let stems: Vec<&str> = models.iter().map(|(stem, _)| stem.as_str()).collect();
        stems.join(", ")
    };
    match fits.as_slice() {
        [(_, path)] => Ok(path.clone()),
        [] => {
            let all = list(&known.iter().collect::<Vec<_>>());
            let there =
                if all.is_empty() { "it is empty".into() } else { format!("it holds {all}") };
            Err(Fault::new(
                format!("the model {name:?} is not in {} ({there})", folder.display()),
                "run `./dev setup` for the newcomer's model, or give --model a folder or GGUF file",
            ))
        }
        several => Err(Fault::new(
            format!("{name:?} may be any of {} in {}", list(several), folder.display()),
            "give --model one of these names, or the path of one",
        )),
    }
}

/// The newcomer's model.
const FIRST: &str = "smollm2-135m-instruct";

/// Name or path of the configured model.
pub(crate) fn wanted(config: &EngineConfig) -> &str {
    match config.model.as_str() {
        "" if config.is_mock() => Model::BUILTIN,
        "" => FIRST,
        model => model,
    }
}

/// Reads the configured model. Slow: call it off the async threads.
pub(crate) fn open(config: &EngineConfig) -> Result<Arc<Model>, Fault> {
    let wanted = wanted(config);
    if wanted == Model::BUILTIN {
        let help = "this is a defect; please report it";
        return Model::builtin().map(Arc::new).map_err(|error| Fault::new(error, help));
    }
    let path = locate(wanted)?;
    let today = Some(Date::of_unix(Clock::unix().0));
    Model::open_with(&path, &OpenOptions { today })
        .map(Arc::new)
        .map_err(|error| Fault::new(format!("{}: {error}", path.display()), "check --model"))
}

/// How it writes reasoning and calls: as configured (and checked), else as its files tell.
pub(crate) fn format(config: &EngineConfig, model: &Model) -> Format {
    config.format.parse().unwrap_or_else(|_| Format::of(model.processor()))
}

/// Name under which it is served.
pub(crate) fn served_name(config: &EngineConfig, model: &Model) -> String {
    let hub = hub::Name::parse(&config.model).filter(|_| !Path::new(&config.model).exists());
    match hub {
        _ if !config.served_name.is_empty() => config.served_name.clone(),
        // As clients of other servers know it; its folder bears the name of a commit.
        Some(name) => name.repo,
        None => model.name().to_owned(),
    }
}

#[cfg(test)]
mod tests;
