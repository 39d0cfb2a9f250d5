//! Models by their names on a hub: fetched once, whole or not at all, and used without it later.

mod fake;

use crate::command::{Bench, Ended, free_ports};
use crate::kit::{PATIENCE, binary, http};
use crate::models::tiny;
use fake::{Asked, COMMIT, Hub, Mood, files};
use load::fleet::{Fleet, FleetOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const NAME: &str = "tiny/Qwen3";
const SECRET: &str = "hf_aSecretOfTheTest";
const WEIGHTS: &str = "model.safetensors";

/// The tiny model as a repository, with what nobody should fetch.
fn repository() -> BTreeMap<String, Vec<u8>> {
    let mut files = files(&tiny());
    for name in ["pytorch_model.bin", "README.md", "onnx/model.onnx"] {
        files.insert(name.into(), b"not for us".to_vec());
    }
    files
}

fn weights() -> Vec<u8> {
    repository().remove(WEIGHTS).unwrap()
}

fn environment(hub: &str, home: &Path) -> Vec<(String, String)> {
    let mut all = vec![
        ("HF_ENDPOINT", hub.to_owned()),
        ("HF_HOME", home.display().to_string()),
        ("HF_HUB_CACHE", String::new()),
        ("HUGGINGFACE_HUB_CACHE", String::new()),
        ("HF_HUB_OFFLINE", String::new()),
        ("HF_TOKEN", SECRET.to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ];
    all.dedup_by_key(|(name, _)| *name);
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Starts a node by name; returns what it answers and its log.
async fn answer(
    model: &str,
    mut env: Vec<(String, String)>,
    more: &[(&str, &str)],
) -> (Value, String) {
    env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let mut options = FleetOptions::new(binary(), 1);
    options.model = Some(model.to_owned());
    options.config = "[dram]\nmib = 64\n".into();
    options.env = env;
    let fleet = Fleet::start(options).await.unwrap();
    let url = |path: &str| format!("{}{path}", fleet.node(0).http());
    let listed: Value = http().get(url("/v1/models")).send().await.unwrap().json().await.unwrap();
    assert_eq!(listed["data"][0]["id"], NAME, "it is served as its repository is named");
    let body = json!({
        "model": NAME,
        "messages": [{ "role": "user", "content": "Hello" }],
        "max_tokens": 12, "temperature": 0,
    });
    let request = http().post(url("/v1/chat/completions")).json(&body);
    let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
    let message = answer["choices"][0]["message"].take();
    assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    (message, std::fs::read_to_string(fleet.node(0).log_file()).unwrap())
}

fn asked_for(asked: &[Asked], what: &str) -> usize {
    asked.iter().filter(|asked| asked.what.contains(what)).count()
}

#[tokio::test]
async fn a_model_is_fetched_once_and_used_without_the_hub() {
    let home = tempfile::tempdir().unwrap();
    let hub = Hub::start(NAME, repository(), Mood::default());
    let env = environment(&hub.endpoint, home.path());
    let (first, log) = answer(NAME, env.clone(), &[]).await;
    let asked = hub.asked();
    for unwanted in ["pytorch_model.bin", "README.md", "onnx"] {
        assert_eq!(asked_for(&asked, unwanted), 0, "{asked:?}");
    }
    for wanted in ["GET /store/model.safetensors", "tokenizer.json", "chat_template.jinja"] {
        assert!(asked_for(&asked, wanted) > 0, "{wanted}: {asked:?}");
    }
    let weights = |asked: &&Asked| asked.what.starts_with("GET /store");
    assert!(asked.iter().filter(weights).all(|asked| !asked.token), "a token for the hub only");
    assert!(asked.iter().filter(|asked| !weights(asked)).all(|asked| asked.token));
    assert!(!log.contains(SECRET) && !log.contains("signed="), "{log}");

    let (again, _) = answer(NAME, env.clone(), &[]).await;
    let asked = hub.asked();
    assert!(asked.iter().all(|asked| asked.what.starts_with("GET /api/")), "{asked:?}");
    let (offline, _) = answer(NAME, env.clone(), &[("HF_HUB_OFFLINE", "1")]).await;
    assert_eq!(hub.asked(), [], "nothing is asked offline");
    drop(hub);
    let (alone, log) = answer(NAME, env, &[]).await;
    assert!(log.contains("going on with what is in the cache"), "{log}");
    assert!([again, offline, alone].iter().all(|answer| *answer == first));
}

#[tokio::test]
async fn a_cache_that_other_tools_filled_is_used() {
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("hub/models--tiny--Qwen3");
    let snapshot = repo.join("snapshots").join(COMMIT);
    for folder in [&repo.join("blobs"), &repo.join("refs"), &snapshot] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(repo.join("refs/main"), COMMIT).unwrap();
    for (name, bytes) in files(&tiny()) {
        let blob = fake::sha256(&bytes);
        std::fs::write(repo.join("blobs").join(&blob), bytes).unwrap();
        let link = format!("../../blobs/{blob}");
        std::os::unix::fs::symlink(link, snapshot.join(name)).unwrap();
    }
    let env = environment("http://127.0.0.1:9", home.path());
    let by_commit = format!("{NAME}@{COMMIT}");
    let offline = [("HF_HUB_OFFLINE", "1")];
    let (named, _) = answer(NAME, env.clone(), &offline).await;
    assert_eq!(answer(&by_commit, env, &offline).await.0, named);
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_was() {
    let home = tempfile::tempdir().unwrap();
    let mood = Mood { cuts: vec![100_000, 300_000], ..Mood::default() };
    let hub = Hub::start(NAME, repository(), mood);
    answer(NAME, environment(&hub.endpoint, home.path()), &[]).await;
    assert_eq!(ranges(&hub), ["", "bytes=100000-", "bytes=300000-"]);
}

/// What was asked for of large files.
fn ranges(hub: &Hub) -> Vec<String> {
    let asked = hub.asked().into_iter().filter(|asked| asked.what.starts_with("GET /store"));
    asked.map(|asked| asked.range.unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_hub_that_is_busy_costs_nothing_that_has_come() {
    let home = tempfile::tempdir().unwrap();
    let mood = Mood { cuts: vec![100_000], busy: 1, ..Mood::default() };
    let hub = Hub::start(NAME, repository(), mood);
    answer(NAME, environment(&hub.endpoint, home.path()), &[]).await;
    let rest = "bytes=100000-";
    assert_eq!(ranges(&hub), ["", rest, rest]);
}

/// The name under which a file grows in the cache.
fn growing(home: &Path) -> std::path::PathBuf {
    let blobs = home.join("hub/models--tiny--Qwen3/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    blobs.join(format!("{}.incomplete", fake::sha256(&weights())))
}

#[tokio::test]
async fn what_an_earlier_process_left_is_gone_on_with_or_begun_anew() {
    for (left, mood) in [
        (weights()[..200_000].to_vec(), Mood::default()),
        (weights()[..200_000].to_vec(), Mood { whole_only: true, ..Mood::default() }),
        (vec![7; 200_000], Mood::default()),
        (weights(), Mood::default()),
        ([weights(), weights()].concat(), Mood::default()),
    ] {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(growing(home.path()), left).unwrap();
        let hub = Hub::start(NAME, repository(), mood);
        answer(NAME, environment(&hub.endpoint, home.path()), &[]).await;
        let blob = growing(home.path()).with_extension("");
        assert_eq!(std::fs::read(blob).unwrap(), weights(), "what is in its place is whole");
    }
}

/// A start that must fail.
fn refused(model: &str, hub: &str, more: &[(&str, &str)]) -> Ended {
    refused_in(&Bench::new(), model, hub, more)
}

fn refused_in(bench: &Bench, model: &str, hub: &str, more: &[(&str, &str)]) -> Ended {
    let env = environment(hub, &bench.path("hf"));
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
    let arguments = format!("start --data-dir d --model {model} {}", free_ports());
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let ended = bench.spawn_with(&arguments, &[&env, more].concat()).ended(PATIENCE);
    assert!(!ended.stderr.contains(SECRET), "{}", ended.stderr);
    ended
}

#[track_caller]
fn says(ended: &Ended, error: &[&str], help: &[&str]) {
    let (said, helps) = ended.refused(1);
    for word in error {
        assert!(said.contains(word), "{said:?} does not say {word:?}");
    }
    for word in help {
        assert!(helps.contains(word), "{helps:?} does not say {word:?}");
    }
}

#[test]
fn a_hub_that_is_not_there() {
    let away = "http://127.0.0.1:9";
    says(&refused(NAME, away, &[]), &[away], &["HF_ENDPOINT", "--model"]);
    let offline = refused(NAME, away, &[("HF_HUB_OFFLINE", "1")]);
    says(&offline, &["HF_HUB_OFFLINE", NAME], &["without HF_HUB_OFFLINE"]);
    for (odd, why) in [
        ("somewhere", "not a URL"),
        ("http://127.0.0.1:9/?x=1", "more than an address"),
        ("http://name:word@127.0.0.1:9", "holds a name or password"),
    ] {
        let ended = refused(NAME, odd, &[]);
        ended.refused_with(2, &["HF_ENDPOINT", why]);
        assert!(!ended.stderr.contains("word@"), "{}", ended.stderr);
    }
}

#[test]
fn files_that_are_not_what_the_hub_says() {
    for (mood, error, help) in [
        (Mood { spoils: true, ..Mood::default() }, "another SHA-256", "changes files"),
        (Mood { adds: 64 << 20, ..Mood::default() }, "more bytes come than it told", "proxies"),
    ] {
        let hub = Hub::start(NAME, repository(), mood);
        let bench = Bench::new();
        let ended = refused_in(&bench, NAME, &hub.endpoint, &[]);
        says(&ended, &[error], &[help]);
        let blobs = bench.path("hf/hub/models--tiny--Qwen3/blobs");
        let sizes = std::fs::read_dir(blobs).unwrap().map(|file| file.unwrap().metadata().unwrap());
        let most = sizes.map(|meta| meta.len()).max().unwrap();
        assert!(most < weights().len() as u64, "{most} bytes were left of what is no model");
    }
}

#[test]
fn a_hub_that_refuses() {
    for (status, word, token, error, help) in [
        (401, "RepoNotFound", SECRET, "HF_TOKEN may not read it", "HF_TOKEN is valid"),
        (401, "", " ", "private or gated", "set HF_TOKEN"),
        (403, "GatedRepo", SECRET, "accepted its terms", "accept them at"),
        (404, "RepoNotFound", SECRET, "no such repository", "spelling"),
        (404, "RevisionNotFound", SECRET, "no such revision", "spelling"),
    ] {
        let mood = Mood { refuses: Some((status, word)), ..Mood::default() };
        let hub = Hub::start(NAME, repository(), mood);
        let ended = refused(NAME, &hub.endpoint, &[("HF_TOKEN", token)]);
        says(&ended, &[error, NAME, &status.to_string()], &[help]);
    }
}

#[test]
fn repositories_that_do_not_help() {
    let hub = |names: &[&str], mood: Mood| {
        let files = names.iter().map(|name| ((*name).to_owned(), b"{}".to_vec()));
        Hub::start(NAME, files.collect(), mood)
    };
    let torch = hub(&["config.json", "tokenizer.json", "pytorch_model.bin"], Mood::default());
    says(&refused(NAME, &torch.endpoint, &[]), &["nothing that can be used"], &["safetensors"]);
    let ggufs = hub(&["a.gguf", "b.gguf"], Mood::default());
    says(&refused(NAME, &ggufs.endpoint, &[]), &["a.gguf, b.gguf"], &["tiny/Qwen3:FILE.gguf"]);
    let ended = refused("tiny/Qwen3:c.gguf", &ggufs.endpoint, &[]);
    says(&ended, &["no file c.gguf"], &["a.gguf, b.gguf"]);
    let ended = refused("tiny/Qwen3:b.gguf", &ggufs.endpoint, &[]);
    says(&ended, &["b.gguf"], &["--model"]); // fetched, and found to be no GGUF file
    let mood = Mood { boasts: 1 << 60, ..Mood::default() };
    let huge = Hub::start(NAME, repository(), mood);
    says(&refused(NAME, &huge.endpoint, &[]), &["MB are free"], &["HF_HOME"]);
}
