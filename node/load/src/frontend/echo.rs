//! The process that only echoes: `dynamo-node bench echo`.

use crate::error::LoadError;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Longest wait for its first line.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A running echo; dropping it ends it.
pub(super) struct Echo {
    host: SocketAddr,
    child: Child,
}

impl Echo {
    pub(super) async fn start(binary: &Path) -> Result<Self, LoadError> {
        let spawned = Command::new(binary)
            .args(["bench", "echo"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child =
            spawned.map_err(|source| LoadError::Spawn { binary: binary.to_owned(), source })?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout);
            let _ = tokio::time::timeout(READY_WITHIN, lines.read_line(&mut line)).await;
        }
        let address = line.trim_end().strip_prefix("ready http://");
        let host = address.and_then(|address| address.parse().ok());
        let host = host.ok_or_else(|| LoadError::Answer {
            url: "dynamo-node bench echo".into(),
            reason: format!("expected `ready http://IP:PORT`, it said {line:?}"),
        })?;
        Ok(Self { host, child })
    }

    pub(super) fn host(&self) -> SocketAddr {
        self.host
    }

    /// Process id; 0, which no process has, when it has ended.
    pub(super) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }
}
