//! The hub over HTTP.

use super::cache::{self, disk_fault};
use super::plain;
use crate::fault::Fault;
use futures::StreamExt;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, RANGE, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Where the hub is by default.
const HUB: &str = "https://huggingface.co";
/// Longest wait for a connection, and for the next bytes of an answer.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// How often a request is made again that failed in passing; each time it waits twice as long.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait that the hub may ask for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Largest list of files, in bytes.
const LIST_MAX: usize = 64 << 20;
/// Between two lines about a file that is being fetched.
const PROGRESS: Duration = Duration::from_secs(5);

/// True when the environment forbids to ask the hub.
pub(super) fn offline() -> bool {
    let set = |name: &str| std::env::var(name).is_ok_and(|value| is_true(&value));
    set("HF_HUB_OFFLINE") || set("TRANSFORMERS_OFFLINE")
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}

/// Why the hub did not give something.
pub(super) enum Trouble {
    /// It may next time, and the cache may do until then.
    Passing(String),
    /// What came is not what the hub says it is; the cache may do.
    Damaged(String),
    Final(Fault),
}

/// A file of a repository.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) path: String,
    url: String,
    /// What the hub calls its content: a SHA-256 where it is large.
    pub(super) etag: String,
    /// Bytes, where the hub tells.
    pub(super) size: Option<u64>,
}

/// The hub that the environment names.
pub(super) struct Hub {
    endpoint: String,
    token: Option<HeaderValue>,
    http: Client,
    /// Follows only what stays at the hub: what is said of a file is said there.
    asks: Client,
}

/// The token of the environment, or the one that the hub's tools keep.
fn token() -> Option<HeaderValue> {
    let said = std::env::var("HF_TOKEN").ok().map(Zeroizing::new);
    let implicit = || {
        let off = std::env::var("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_ok_and(|v| is_true(&v));
        let path = std::env::var_os("HF_TOKEN_PATH").map(std::path::PathBuf::from);
        let path = path.unwrap_or_else(|| cache::home().join("token"));
        (!off).then(|| std::fs::read_to_string(path).ok().map(Zeroizing::new)).flatten()
    };
    let token = said.filter(|token| !token.trim().is_empty()).or_else(implicit)?;
    let bearer = Zeroizing::new(format!("Bearer {}", token.trim()));
    let mut header = HeaderValue::from_str(&bearer).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Certificates are checked by what the system trusts.
fn tls() -> Result<ClientConfig, rustls::Error> {
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
    };
    match builder()?.with_platform_verifier() {
        Ok(config) => Ok(config.with_no_client_auth()),
        // A system without certificates can still use a hub without TLS.
        Err(error) => {
            tracing::debug!("no certificates of the system: {error}");
            let none = RootCertStore::empty();
            Ok(builder()?.with_root_certificates(none).with_no_client_auth())
        }
    }
}

impl Hub {
    pub(super) fn of_environment() -> Result<Self, Fault> {
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|text| !text.trim().is_empty());
        let endpoint = endpoint.as_deref().unwrap_or(HUB).trim().trim_end_matches('/').to_owned();
        let help = "HF_ENDPOINT is the address of a hub, as https://huggingface.co";
        if endpoint.split('/').nth(2).is_some_and(|host| host.contains('@')) {
            return Err(Fault::usage(
                "HF_ENDPOINT holds a name or password",
                "set HF_TOKEN instead",
            ));
        }
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(Fault::usage(format!("HF_ENDPOINT {endpoint:?} is not a URL"), help));
        }
        if endpoint.contains(['?', '#']) {
            return Err(Fault::usage("HF_ENDPOINT holds more than an address and a path", help));
        }
        let fault = |error: &dyn std::fmt::Display| Fault::new(error, help);
        let config = tls().map_err(|error| fault(&error))?;
        let builder = || {
            Client::builder()
                .tls_backend_preconfigured(config.clone())
                .connect_timeout(CONNECT)
                .read_timeout(SILENCE)
                .user_agent(concat!("dynamo-node/", env!("CARGO_PKG_VERSION")))
        };
        let home = reqwest::redirect::Policy::custom(|attempt| {
            let from = attempt.previous().last().map(|url| url.origin());
            match from == Some(attempt.url().origin()) && attempt.previous().len() < 8 {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        });
        let http = builder().build().map_err(|error| fault(&error))?;
        let asks = builder().redirect(home).build().map_err(|error| fault(&error))?;
        Ok(Self { endpoint, token: token(), http, asks })
    }

    /// What is said when the hub did not answer and the cache does not help.
    pub(super) fn unreachable(&self, why: &str) -> Fault {
        Fault::new(
            why,
            format!(
                "check the way to {} (HF_ENDPOINT names another hub, HTTPS_PROXY a proxy); what is \
                 there already is kept. --model takes a folder or GGUF file too",
                self.endpoint
            ),
        )
    }

    /// The commit of a revision, and the paths of its files.
    pub(super) async fn files(
        &self,
        repo: &str,
        revision: &str,
    ) -> Result<(String, Vec<String>), Trouble> {
        let revision = revision.replace('/', "%2F");
        let url = format!("{}/api/models/{repo}/revision/{revision}", self.endpoint);
        let answer = self.ask(repo, || self.request(&self.http, Method::GET, &url)).await?;
        let mut body = Vec::new();
        let mut pieces = answer.bytes_stream();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(|error| passing(&url, &error))?);
            if body.len() > LIST_MAX {
                return Err(self.odd(&url, "it is too long"));
            }
        }
        let Ok(info) = serde_json::from_slice::<Value>(&body) else {
            return Err(self.odd(&url, "it is not JSON"));
        };
        let commit = info["sha"].as_str().filter(|sha| cache::is_commit(sha));
        let commit = commit.ok_or_else(|| self.odd(&url, "it names no commit"))?.to_owned();
        let files = info["siblings"].as_array().into_iter().flatten();
        let files = files.filter_map(|file| file["rfilename"].as_str());
        Ok((commit, files.filter(|path| plain(path)).map(str::to_owned).collect()))
    }

    /// What the hub says of a file.
    pub(super) async fn look(
        &self,
        repo: &str,
        commit: &str,
        path: &str,
    ) -> Result<Remote, Trouble> {
        let url = format!("{}/{repo}/resolve/{commit}/{}", self.endpoint, path.replace(' ', "%20"));
        let ask = || {
            let request = self.request(&self.asks, Method::HEAD, &url);
            request.header(reqwest::header::ACCEPT_ENCODING, "identity")
        };
        let answer = self.ask(repo, ask).await?;
        let headers = answer.headers();
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str()));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let good = |etag: &String| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            (1..=128).contains(&etag.len()) && etag.chars().all(known)
        };
        let etag = etag.filter(good).ok_or_else(|| self.odd(&url, "it has no usable ETag"))?;
        let size = text(headers, "x-linked-size").or_else(|| {
            let direct = answer.status().is_success();
            text(headers, "content-length").filter(|_| direct)
        });
        let size = size.and_then(|size| size.parse().ok());
        Ok(Remote { path: path.to_owned(), url, etag, size })
    }

    /// Fetches a file; what is there of it already is not fetched again.
    pub(super) async fn download(&self, file: &Remote, into: &Path) -> Result<(), Trouble> {
        let mut wait = FIRST_WAIT;
        for _ in 0..TRIES {
            match self.attempt(file, into).await {
                Err(Trouble::Passing(why) | Trouble::Damaged(why)) => {
                    tracing::warn!("{why}; trying again");
                }
                end => return end,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.attempt(file, into).await
    }

    async fn attempt(&self, file: &Remote, into: &Path) -> Result<(), Trouble> {
        let disk = |error: io::Error| Trouble::Final(disk_fault(into, &error));
        let mut growing = Growing::open(into, file.size).map_err(disk)?;
        if file.size != Some(growing.length) {
            let mut request = self.request(&self.http, Method::GET, &file.url);
            if growing.length > 0 {
                request = request.header(RANGE, format!("bytes={}-", growing.length));
            }
            let answer = request.send().await.map_err(|error| passing(&file.url, &error))?;
            let range = text(answer.headers(), CONTENT_RANGE.as_str()).unwrap_or_default();
            let goes_on = answer.status() == StatusCode::PARTIAL_CONTENT
                && range.starts_with(&format!("bytes {}-", growing.length));
            let status = answer.status();
            // A refusal says nothing of what is there: it is gone on with later.
            if !goes_on && (status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE) {
                growing.restart().map_err(disk)?;
            }
            if !goes_on && status != StatusCode::OK {
                let of = file.url.strip_prefix(&self.endpoint).unwrap_or(&file.url);
                let repo = of.split("/resolve/").next().unwrap_or(of).trim_start_matches('/');
                return Err(self.refused(repo, &answer));
            }
            let mut pieces = answer.bytes_stream();
            let mut told = Instant::now();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|error| passing(&file.url, &error))?;
                if file.size.is_some_and(|size| growing.length + piece.len() as u64 > size) {
                    growing.restart().map_err(disk)?;
                    return Err(self.odd(&file.url, "more bytes come than it told"));
                }
                growing.write(&piece).map_err(disk)?;
                if told.elapsed() > PROGRESS {
                    told = Instant::now();
                    let mb = |bytes: u64| bytes / 1_000_000;
                    let of = file.size.map(mb);
                    tracing::info!(file = file.path, mb = mb(growing.length), of, "downloading");
                }
            }
        }
        let size = growing.length;
        let digest = growing.end().map_err(disk)?;
        let right = match file.size {
            Some(right) if right != size => {
                Err(Trouble::Passing(format!("{}: {size} of {right} bytes came", file.url)))
            }
            // The hub names large files by their SHA-256, small ones otherwise.
            _ if file.etag.len() == 64 && !file.etag.eq_ignore_ascii_case(&digest) => {
                let why = "what came has another SHA-256 than it should";
                Err(Trouble::Damaged(format!("{}: {why}", file.url)))
            }
            _ => Ok(()),
        };
        if right.is_err() && file.size.is_none_or(|right| size >= right) {
            let _ = std::fs::remove_file(into);
        }
        right
    }

    fn request(&self, client: &Client, method: Method, url: &str) -> RequestBuilder {
        let request = client.request(method, url);
        match &self.token {
            Some(token) => request.header(reqwest::header::AUTHORIZATION, token),
            None => request,
        }
    }

    /// Sends a request, again and again when it fails in passing.
    async fn ask(
        &self,
        repo: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, Trouble> {
        let mut wait = FIRST_WAIT;
        let mut left = TRIES;
        loop {
            let trouble = match request().send().await {
                Ok(answer) if answer.status().is_success() || answer.status().is_redirection() => {
                    return Ok(answer);
                }
                Ok(answer) => {
                    let after = text(answer.headers(), RETRY_AFTER.as_str());
                    let after = after.and_then(|after| after.parse().ok().map(Duration::from_secs));
                    wait = after.unwrap_or(wait).min(WAIT_MAX);
                    self.refused(repo, &answer)
                }
                // Nobody is there: waiting for it helps no one who has the model already.
                Err(error) if error.is_connect() => return Err(passing(&self.endpoint, &error)),
                Err(error) => passing(&self.endpoint, &error),
            };
            match (trouble, left) {
                (Trouble::Passing(why), 1..) => tracing::warn!("{why}; trying again"),
                (trouble, _) => return Err(trouble),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
            left -= 1;
        }
    }

    /// What an answer without success means.
    fn refused(&self, repo: &str, answer: &Response) -> Trouble {
        let status = answer.status();
        let code = text(answer.headers(), "x-error-code").unwrap_or_default();
        let at = format!("{}/{repo}", self.endpoint);
        let what = |words: &str| format!("{at}: {words} (HTTP {})", status.as_u16());
        let spelling = "check the spelling; --model takes a folder or GGUF file too";
        let fault = match (code.as_str(), status.as_u16()) {
            (_, 408 | 416 | 429 | 500..) => {
                return Trouble::Passing(what("the hub cannot answer now"));
            }
            ("GatedRepo", _) | (_, 403) => Fault::new(
                what("its files are only for those who accepted its terms"),
                format!("accept them at {at}, and set HF_TOKEN to a token of that account"),
            ),
            ("RevisionNotFound", _) => Fault::new(what("there is no such revision"), spelling),
            ("EntryNotFound", _) => Fault::new(what("a file that it lists is gone"), spelling),
            (_, 401) if self.token.is_some() => Fault::new(
                what("there is no such repository, or HF_TOKEN may not read it"),
                "check the spelling, and that HF_TOKEN is valid and may read it",
            ),
            (_, 401) => Fault::new(
                what("there is no such repository, or it is private or gated"),
                format!("check the spelling; else accept its terms at {at} and set HF_TOKEN"),
            ),
            (_, 404) => Fault::new(what("there is no such repository"), spelling),
            _ => Fault::new(what("the hub refuses"), spelling),
        };
        Trouble::Final(fault)
    }

    fn odd(&self, url: &str, why: &str) -> Trouble {
        Trouble::Final(Fault::new(
            format!("{url} did not answer as a hub does: {why}"),
            "check HF_ENDPOINT and what stands between (proxies, portals)",
        ))
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// What went wrong under way, down to its cause, without the address of a signed file.
fn passing(url: &str, error: &reqwest::Error) -> Trouble {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Trouble::Passing(format!("cannot reach {url}: {cause}"))
}

/// A file that is not whole yet.
struct Growing {
    file: File,
    length: u64,
    digest: Sha256,
}

impl Growing {
    fn open(path: &Path, whole: Option<u64>) -> io::Result<Self> {
        let file =
            File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let mut growing = Self { file, length: 0, digest: Sha256::new() };
        // What is longer than it should be, or of unknown length, is not gone on with.
        let there = growing.file.metadata()?.len();
        if whole.is_none_or(|whole| there > whole) {
            growing.restart()?;
            return Ok(growing);
        }
        let mut buffer = vec![0; 1 << 20];
        loop {
            match growing.file.read(&mut buffer)? {
                0 => return Ok(growing),
                n => {
                    growing.digest.update(buffer.get(..n).unwrap_or_default());
                    growing.length += n as u64;
                }
            }
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        (self.length, self.digest) = (0, Sha256::new());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes it durable; returns the SHA-256 of all of it.
    fn end(self) -> io::Result<String> {
        self.file.sync_all()?;
        Ok(self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
