//! A hub of models on loopback, and the other host that large files come from.

use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The only commit.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the hub was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) what: String,
    pub(crate) range: Option<String>,
    /// Whether it came with a token.
    pub(crate) token: bool,
}

/// How the hub behaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mood {
    /// Refuses everything: status, and the hub's word for it.
    pub(crate) refuses: Option<(u16, &'static str)>,
    /// The first answers with a large file end after so many bytes.
    pub(crate) cuts: Vec<usize>,
    /// Knows nothing of ranges.
    pub(crate) whole_only: bool,
    /// Says that large files are larger than they are.
    pub(crate) boasts: u64,
    /// Large files come with a byte changed.
    pub(crate) spoils: bool,
    /// So many more bytes come with a large file than it has.
    pub(crate) adds: usize,
    /// So many times the rest of a large file is not given now.
    pub(crate) busy: usize,
}

struct Shared {
    repo: String,
    files: BTreeMap<String, Vec<u8>>,
    mood: Mutex<Mood>,
    asked: Mutex<Vec<Asked>>,
    closed: AtomicBool,
    /// Where large files are.
    store: Mutex<String>,
}

/// A running hub; nobody answers at its address once it is dropped.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    pub(crate) endpoint: String,
    ports: Vec<u16>,
}

impl Hub {
    /// A hub with one repository that holds these files.
    pub(crate) fn start(repo: &str, files: BTreeMap<String, Vec<u8>>, mood: Mood) -> Self {
        let shared = Arc::new(Shared {
            repo: repo.into(),
            files,
            mood: Mutex::new(mood),
            asked: Mutex::default(),
            closed: AtomicBool::new(false),
            store: Mutex::default(),
        });
        let mut ports = Vec::new();
        for store in [true, false] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            ports.push(listener.local_addr().unwrap().port());
            if store {
                *shared.store.lock().unwrap() = format!("http://127.0.0.1:{}", ports[0]);
            }
            let shared = shared.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if shared.closed.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = shared.clone();
                    std::thread::spawn(move || shared.serve(stream));
                }
            });
        }
        Self { shared, endpoint: format!("http://127.0.0.1:{}", ports[1]), ports }
    }

    /// What was asked since the last look.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        for port in &self.ports {
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        }
    }
}

/// The files of a folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let read = |path: &Path| std::fs::read(path).unwrap();
    entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(&entry.path())))
        .collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut range, mut token) = (String::new(), None, false);
        lines.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            match name.to_ascii_lowercase().as_str() {
                "range" => range = Some(value.trim().to_owned()),
                "authorization" => token = true,
                _ => {}
            }
        }
        let mut words = first.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
        let what = format!("{method} {path}");
        self.asked.lock().unwrap().push(Asked { what, range: range.clone(), token });
        let answer = self.answer(method, path, range.as_deref());
        let _ = stream.write_all(&answer);
        // What was promised beyond that will not come.
        let _ = stream.shutdown(Shutdown::Write);
        let _ = lines.read(&mut [0; 1]);
    }

    fn answer(&self, method: &str, path: &str, range: Option<&str>) -> Vec<u8> {
        let head = |status: &str, headers: &str, length: usize| {
            format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
            )
        };
        let mut mood = self.mood.lock().unwrap();
        if let Some((status, word)) = mood.refuses {
            return head(&format!("{status} No"), &format!("x-error-code: {word}\r\n"), 0).into();
        }
        if path == format!("/api/models/{}/revision/main", self.repo) {
            let names = self.files.keys().map(|name| json!({ "rfilename": name }));
            let list = json!({ "sha": COMMIT, "siblings": names.collect::<Vec<_>>() }).to_string();
            return [head("200 OK", "", list.len()), list].concat().into();
        }
        let path = path.split('?').next().unwrap();
        let name = path.rsplit('/').next().unwrap();
        let resolve = path.starts_with(&format!("/{}/resolve/{COMMIT}/", self.repo));
        let (true, Some(bytes)) = (resolve || path.starts_with("/store/"), self.files.get(name))
        else {
            return head("404 Not Found", "x-error-code: RepoNotFound\r\n", 0).into();
        };
        let large = bytes.len() > 200_000;
        let hash = sha256(bytes);
        if resolve && large {
            let headers = format!(
                "x-linked-etag: \"{hash}\"\r\nx-linked-size: {}\r\nlocation: {}/store/{name}?signed=secret\r\n",
                bytes.len() as u64 + mood.boasts,
                self.store.lock().unwrap(),
            );
            return head("302 Found", &headers, 0).into();
        }
        let from = range.filter(|_| !mood.whole_only).map_or(0, |range| {
            let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
            from.unwrap().parse::<usize>().unwrap()
        });
        if from > 0 && mood.busy > 0 {
            mood.busy -= 1;
            return head("503 Service Unavailable", "", 0).into();
        }
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let mut bytes = bytes.clone();
        if large {
            bytes.extend(std::iter::repeat_n(0, mood.adds));
            bytes[0] ^= u8::from(mood.spoils);
        }
        let (last, all) = (bytes.len() - 1, bytes.len());
        let headers = match from {
            0 => format!("etag: \"{}\"\r\n", &hash[..40]),
            _ => format!("content-range: bytes {from}-{last}/{all}\r\n"),
        };
        let head = head(status, &headers, all - from).into_bytes();
        if method == "HEAD" {
            return head;
        }
        let end = match large && !mood.cuts.is_empty() {
            true => mood.cuts.remove(0).min(all),
            false => all,
        };
        [head.as_slice(), &bytes[from.min(end)..end]].concat()
    }
}
