//! Runs the command line and looks at how it ends.

use crate::kit::{PATIENCE, binary};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Fails unless it ended with this code and told why in one line, and what helps in another.
    /// Returns both lines.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32) -> (String, String) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = |start: &str| {
            let lines: Vec<&str> =
                self.stderr.lines().filter(|line| line.starts_with(start)).collect();
            assert_eq!(lines.len(), 1, "one line `{start}`: {}", self.stderr);
            lines[0].to_owned()
        };
        assert_eq!(self.stdout, "", "nothing on stdout");
        (line("error: "), line("help: "))
    }

    /// As [`Self::refused`], and the error contains these words.
    #[track_caller]
    pub(crate) fn refused_with(&self, code: i32, words: &[&str]) {
        let (error, _) = self.refused(code);
        for word in words {
            assert!(error.contains(word), "{error:?} does not say {word:?}");
        }
    }
}

/// A process of the binary under test. Killed and reaped when dropped.
pub(crate) struct Process {
    child: Child,
    folder: PathBuf,
    number: usize,
}

impl Process {
    /// Waits for its end.
    pub(crate) fn ended(mut self, within: Duration) -> Ended {
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it still runs after {within:?}: {}", self.read("err"));
            std::thread::sleep(Duration::from_millis(10));
        };
        Ended { code: status.code(), stdout: self.read("out"), stderr: self.read("err") }
    }

    /// True when it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has written to stdout so far.
    pub(crate) fn stdout(&self) -> String {
        self.read("out")
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.read("err")
    }

    fn read(&self, stream: &str) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.{stream}", self.number))).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder in which commands run; `{}` in nothing, paths are relative to it.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    runs: std::cell::Cell<usize>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), runs: std::cell::Cell::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path as text.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Starts the binary with arguments separated by spaces, in this folder.
    pub(crate) fn spawn(&self, arguments: &str) -> Process {
        self.spawn_with(&arguments.split_whitespace().collect::<Vec<_>>(), &[])
    }

    pub(crate) fn spawn_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Process {
        let number = self.runs.replace(self.runs.get() + 1);
        let create = |stream: &str| File::create(self.path(&format!("{number}.{stream}"))).unwrap();
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(create("out"))
            .stderr(create("err"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DYNAMO_") {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().copied());
        let child = command.spawn().unwrap();
        Process { child, folder: self.folder.path().to_owned(), number }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &str) -> Ended {
        self.spawn(arguments).ended(PATIENCE)
    }
}

/// `--http … --listen …` with ports that are free now.
pub(crate) fn free_ports() -> String {
    let (http, cluster) = ports();
    format!("--http 127.0.0.1:{http} --listen 127.0.0.1:{cluster}")
}

/// A port free for TCP, and one free for both TCP and UDP.
pub(crate) fn ports() -> (u16, u16) {
    let http = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    loop {
        let cluster = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = cluster.local_addr().unwrap().port();
        let next = port.checked_add(1).map(|next| TcpListener::bind((Ipv4Addr::LOCALHOST, next)));
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && next.is_some_and(|n| n.is_ok()) {
            return (http.local_addr().unwrap().port(), port);
        }
    }
}

/// Copies a folder with all that is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target);
        } else {
            std::fs::copy(&source, &target).unwrap();
        }
    }
}
