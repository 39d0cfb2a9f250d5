//! The other comparison arm: `fio`, where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the bandwidth in KiB/s stands in fio's terse output, version 3.
const READ_KIB: usize = 6;
const WRITE_KIB: usize = 47;

pub(super) struct Fio {
    dir: PathBuf,
    value: u64,
    job_bytes: u64,
    jobs: usize,
}

impl Fio {
    /// `None`, with a note, when it is not installed.
    pub(super) fn find(
        dir: &Path,
        value: u64,
        job_bytes: u64,
        jobs: usize,
        notes: &mut Vec<String>,
    ) -> Option<Self> {
        match Command::new("fio").arg("--version").output() {
            Ok(output) if output.status.success() => {
                Some(Self { dir: dir.to_owned(), value, job_bytes, jobs: jobs.max(1) })
            }
            _ => {
                notes.push("fio is not installed: no comparison with it".to_owned());
                None
            }
        }
    }

    /// GB/s of one run; writes are synced every so many, or once at the end.
    pub(super) fn run(
        &self,
        kind: &str,
        sync_every: usize,
        notes: &mut Vec<String>,
    ) -> Option<f64> {
        let mut command = Command::new("fio");
        command.current_dir(&self.dir).args([
            "--name=job",
            "--thread",
            "--ioengine=psync",
            "--direct=1",
            "--group_reporting",
            "--fallocate=native",
            "--end_fsync=1",
            "--output-format=terse",
            "--terse-version=3",
        ]);
        if sync_every > 0 {
            command.arg(format!("--fdatasync={sync_every}"));
        }
        command.arg(format!("--rw={kind}")).arg(format!("--bs={}", self.value));
        command.arg(format!("--size={}", self.job_bytes)).arg(format!("--numjobs={}", self.jobs));
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let field = if kind == "write" { WRITE_KIB } else { READ_KIB };
        let line = text.lines().find(|line| line.starts_with("3;"));
        let rate = line.and_then(|line| line.split(';').nth(field)?.parse::<f64>().ok());
        if rate.is_none() {
            let why = String::from_utf8_lossy(&output.stderr);
            notes.push(format!("fio failed: {}", why.lines().next().unwrap_or("no output")));
        }
        rate.map(|kib| kib * 1024.0 / 1e9)
    }
}
