//! The log that outlives the processes that write it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The step name of a model request.
pub(crate) const MODEL: &str = "model";
/// The step name of a compaction.
pub(crate) const COMPACTION: &str = "compaction";

/// A file to which all worker processes append, a line at a time. Clones share it.
#[derive(Clone)]
pub(crate) struct Log(Arc<File>);

/// A line of the log: `{microseconds} {process id} {begin|end} {step} {key}`.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Microseconds since the Unix epoch.
    pub(crate) time: u64,
    pub(crate) pid: u32,
    pub(crate) phase: Phase,
    /// [`MODEL`], [`COMPACTION`] or the name of a tool.
    pub(crate) step: String,
    /// The same for each attempt at a step. It starts with the session's id.
    pub(crate) key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Begin,
    End,
}

impl Log {
    fn path(folder: &Path) -> PathBuf {
        folder.join("steps.log")
    }

    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(Self::path(folder))?;
        Ok(Self(Arc::new(file)))
    }

    /// Appends a line in one write, so a step whose line is missing was never reached.
    pub(crate) fn append(&self, phase: Phase, step: &str, key: &str) {
        let phase = match phase {
            Phase::Begin => "begin",
            Phase::End => "end",
        };
        let line = format!("{} {} {phase} {step} {key}\n", now(), std::process::id());
        (&*self.0).write_all(line.as_bytes()).expect("the log can be written");
    }

    /// The length of the log, in bytes; 0 before its first line.
    pub(crate) fn len(folder: &Path) -> u64 {
        fs::metadata(Self::path(folder)).map_or(0, |file| file.len())
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Vec<Record>> {
        match fs::read_to_string(Self::path(folder)) {
            Ok(text) => Ok(text.lines().map(Record::parse).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl Record {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [time, pid, phase, step, key] = words[..] else { panic!("a line of the log: {line}") };
        Self {
            time: time.parse().expect("a time"),
            pid: pid.parse().expect("a process id"),
            phase: if phase == "begin" { Phase::Begin } else { Phase::End },
            step: step.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// Microseconds since the Unix epoch, on one clock for all processes.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_micros()).expect("the time fits into 64 bits")
}
