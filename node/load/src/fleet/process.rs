//! One node process.

use super::ports::{self, Ports};
use crate::error::LoadError;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Starts with new ports after the ones picked were taken by somebody else.
const PORT_TRIES: usize = 5;
/// Lines of the log shown with a failure.
const LOG_LINES: usize = 12;
/// Longest wait for a killed process to be gone.
const REAP_WITHIN: Duration = Duration::from_secs(5);

/// How a node is started, again and again.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) binary: PathBuf,
    pub(super) index: usize,
    pub(super) folder: PathBuf,
    pub(super) config: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) ready_within: Duration,
}

/// Address of a member and the file with a token.
pub(super) type Seed = (SocketAddr, PathBuf);

/// A node process of a [`super::Fleet`].
#[derive(Debug)]
pub struct Node {
    launch: Launch,
    ports: Ports,
    ready: Ready,
    process: Process,
}

/// A child process. Dropping it kills it and waits for its end.
#[derive(Debug)]
struct Process {
    child: Child,
    pid: u32,
    exit: Option<ExitStatus>,
}

impl Process {
    fn new(child: Child) -> Self {
        Self { pid: child.id().unwrap_or_default(), child, exit: None }
    }

    fn kill_now(&mut self) {
        if self.exit.is_none() {
            // An error means that it is gone already.
            let _ = self.child.start_kill();
        }
    }

    async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let exit = self.child.wait().await?;
        self.exit = Some(exit);
        Ok(exit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_now();
        let until = Instant::now() + REAP_WITHIN;
        while self.exit.is_none() && Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(exit) => self.exit = exit,
                Err(_) => break,
            }
        }
    }
}

/// The ready line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) http: String,
    pub(super) node: String,
    pub(super) cluster: String,
}

impl Ready {
    /// Reads `ready http://… node=… cluster=…`; none for any other line.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        if words.next() != Some("ready") {
            return None;
        }
        let mut ready = Self { http: String::new(), node: String::new(), cluster: String::new() };
        for word in words {
            if let Some(node) = word.strip_prefix("node=") {
                ready.node = node.to_owned();
            } else if let Some(cluster) = word.strip_prefix("cluster=") {
                ready.cluster = cluster.to_owned();
            } else if word.starts_with("http://") {
                ready.http = word.trim_end_matches('/').to_owned();
            }
        }
        let whole = ![&ready.http, &ready.node, &ready.cluster].iter().any(|part| part.is_empty());
        whole.then_some(ready)
    }
}

impl Node {
    /// Starts a node with fresh ports and waits for its ready line.
    pub(super) async fn start(launch: Launch, seed: Option<Seed>) -> Result<Self, LoadError> {
        let verb = match &seed {
            None => vec!["start".to_owned()],
            Some((peer, token)) => vec![
                "join".to_owned(),
                peer.to_string(),
                "--token-file".to_owned(),
                token.display().to_string(),
            ],
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let ports = ports::pick().map_err(LoadError::io("find free loopback ports"))?;
            let failure = match launch.run(&verb, ports).await {
                Ok((process, ready)) => {
                    return Ok(Self { launch, ports, ready, process });
                }
                Err(failure) => failure,
            };
            if tries == PORT_TRIES || !failure.port_taken() {
                return Err(failure.into_error());
            }
            // A first start that failed may have left half an identity; the next one is fresh.
            let _ = std::fs::remove_dir_all(launch.data_dir());
        }
    }

    /// Position in the fleet.
    pub fn index(&self) -> usize {
        self.launch.index
    }

    /// Base address of its HTTP listener, as `http://127.0.0.1:8000`.
    pub fn http(&self) -> &str {
        &self.ready.http
    }

    /// Address of its cluster listener.
    pub fn cluster_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.cluster))
    }

    /// Node id, as in its ready line.
    pub fn node_id(&self) -> &str {
        &self.ready.node
    }

    /// Cluster id, as in its ready line.
    pub fn cluster_id(&self) -> &str {
        &self.ready.cluster
    }

    /// Process id (of the last process, when it has ended).
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Its data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.launch.data_dir()
    }

    /// File with its log.
    pub fn log_file(&self) -> PathBuf {
        self.launch.log_file()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log_file())
    }

    /// False once it was seen to have ended by [`Self::kill9`] or [`Self::wait_exit`].
    pub fn running(&self) -> bool {
        self.process.exit.is_none()
    }

    /// Resident memory now, in bytes; none when it has ended.
    pub fn rss_bytes(&self) -> Option<u64> {
        self.memory("VmRSS:")
    }

    /// Highest resident memory so far, in bytes; none when it has ended.
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, key: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    }

    /// Ends it without warning (SIGKILL) and waits until it is gone.
    pub async fn kill9(&mut self) -> Result<(), LoadError> {
        self.signal(Signal::KILL)?;
        self.wait_exit(REAP_WITHIN).await.map(|_| ())
    }

    /// Asks it to end (SIGTERM); does not wait.
    pub fn terminate(&self) -> Result<(), LoadError> {
        self.signal(Signal::TERM)
    }

    fn signal(&self, signal: Signal) -> Result<(), LoadError> {
        if self.process.exit.is_some() {
            return Ok(()); // the id may belong to another process by now
        }
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| LoadError::io(format!("signal n{}", self.index()))(error.into()))
    }

    /// Waits for its end.
    pub async fn wait_exit(&mut self, within: Duration) -> Result<ExitStatus, LoadError> {
        if let Some(exit) = self.process.exit {
            return Ok(exit);
        }
        match tokio::time::timeout(within, self.process.wait()).await {
            Ok(Ok(exit)) => Ok(exit),
            Ok(Err(error)) => Err(LoadError::io(format!("wait for n{}", self.index()))(error)),
            Err(_) => Err(LoadError::Node {
                node: self.index(),
                what: format!("did not end within {} s", within.as_secs()),
                log: self.log_tail(),
            }),
        }
    }

    /// Starts it again on its data folder and ports, after it has ended.
    pub async fn restart(&mut self) -> Result<(), LoadError> {
        if self.running() {
            self.kill9().await?;
        }
        // A known member needs neither peer nor token.
        let verb = ["start".to_owned()];
        let (process, ready) =
            self.launch.run(&verb, self.ports).await.map_err(Failure::into_error)?;
        self.process = process;
        self.ready = ready;
        Ok(())
    }

    /// Kills it without waiting; for the fleet's drop.
    pub(super) fn kill_now(&mut self) {
        self.process.kill_now();
    }
}

/// A start that did not reach the ready line.
struct Failure {
    node: usize,
    binary: PathBuf,
    cause: Cause,
    log: String,
}

enum Cause {
    Spawn(std::io::Error),
    Files(String, std::io::Error),
    Silent(u64),
    Ended(Option<ExitStatus>),
}

impl Failure {
    fn port_taken(&self) -> bool {
        let log = self.log.to_lowercase();
        matches!(self.cause, Cause::Ended(_))
            && (log.contains("in use") || log.contains("eaddrinuse"))
    }

    fn into_error(self) -> LoadError {
        let what = match self.cause {
            Cause::Spawn(source) => {
                return LoadError::Spawn { binary: self.binary, source };
            }
            Cause::Files(what, source) => return LoadError::Io { what, source },
            Cause::Silent(seconds) => format!("was not ready within {seconds} s"),
            Cause::Ended(Some(exit)) => format!("ended before it was ready ({exit})"),
            Cause::Ended(None) => "closed its stdout before it was ready".to_owned(),
        };
        LoadError::Node { node: self.node, what, log: self.log }
    }
}

impl Launch {
    fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn failure(&self, cause: Cause) -> Failure {
        let log = log_tail(&self.log_file());
        Failure { node: self.index, binary: self.binary.clone(), cause, log }
    }

    /// Starts the process and waits for its ready line.
    async fn run(&self, verb: &[String], ports: Ports) -> Result<(Process, Ready), Failure> {
        let mut command = self
            .command(verb, ports)
            .map_err(|error| self.failure(Cause::Files("prepare a node's folder".into(), error)))?;
        let child = command.spawn().map_err(|error| self.failure(Cause::Spawn(error)))?;
        let mut process = Process::new(child);
        let Some(stdout) = process.child.stdout.take() else {
            return Err(self.failure(Cause::Ended(None)));
        };
        let mut lines = BufReader::new(stdout).lines();
        match tokio::time::timeout(self.ready_within, first_ready(&mut lines)).await {
            Ok(Some(ready)) => {
                let log = self.log_file();
                // Ends by itself when the process closes its stdout.
                tokio::spawn(keep_reading(lines, log));
                Ok((process, ready))
            }
            Ok(None) => {
                let exit = tokio::time::timeout(REAP_WITHIN, process.wait()).await;
                Err(self.failure(Cause::Ended(exit.ok().and_then(Result::ok))))
            }
            Err(_) => Err(self.failure(Cause::Silent(self.ready_within.as_secs()))),
        }
    }

    fn command(&self, verb: &[String], ports: Ports) -> std::io::Result<Command> {
        std::fs::create_dir_all(&self.folder)?;
        let config = self.folder.join("config.toml");
        std::fs::write(&config, &self.config)?;
        let log = std::fs::File::options().create(true).append(true).open(self.log_file())?;
        let mut command = Command::new(&self.binary);
        command
            .args(verb)
            .args(["--http".to_owned(), format!("127.0.0.1:{}", ports.http)])
            .args(["--listen".to_owned(), format!("127.0.0.1:{}", ports.cluster)])
            .arg("--data-dir")
            .arg(self.data_dir())
            .arg("--config")
            .arg(config)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DYNAMO_") {
                command.env_remove(name);
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

async fn first_ready(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<Ready> {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(ready) = Ready::read(&line) {
            return Some(ready);
        }
    }
    None
}

/// A full pipe would stop the node: what else it prints goes to its log.
async fn keep_reading(mut lines: Lines<BufReader<ChildStdout>>, log: PathBuf) {
    let mut file = tokio::fs::File::options().append(true).open(&log).await.ok();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(file) = &mut file {
            let _ = file.write_all(format!("stdout: {line}\n").as_bytes()).await;
            let _ = file.flush().await;
        }
    }
}

fn log_tail(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    if tail.is_empty() {
        return "    (the log is empty)".to_owned();
    }
    let shown = tail.iter().map(|line| {
        let line: String = line.chars().take(200).collect();
        format!("    {line}")
    });
    shown.collect::<Vec<_>>().join("\n")
}
