//! The parent process, which kills the child and checks the store that is left.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use turnstream::session::{Entry, Session, Store, restore_history};
use turnstream::{Error, Item};

use crate::seeded_random::Dice;

use super::location::{SESSION_ID, StoreLocation};
use super::store_kind::StoreKind;

/// The failures that were found, and the counts of what was tried.
#[derive(Default)]
struct Report {
    /// The number of kills of the child process.
    kill_count: u32,
    /// Printed lines that are missing in the store, by their index among all printed lines.
    lost_lines: HashSet<usize>,
    duplicates: HashSet<String>,
    /// The number of kills after which the settled history was still invalid.
    invalid_history_count: usize,
    torn_line_count: u32,
    /// The number of kills that left a run unfinished.
    unfinished_run_count: u32,
    server_kill_count: u32,
}

impl Report {
    fn has_no_failures(&self) -> bool {
        self.lost_lines.is_empty() && self.duplicates.is_empty() && self.invalid_history_count == 0
    }

    /// Counts a lost line once, however many times it is found missing.
    fn record_lost(&mut self, at: usize, line: &str) {
        if self.lost_lines.insert(at) {
            println!("lost: {line}");
        }
    }

    fn record_duplicate(&mut self, what: &str) {
        if self.duplicates.insert(what.to_owned()) {
            println!("doubled: {what}");
        }
    }
}

/// How many times the store's server is killed, and the command that kills and restarts it.
pub(crate) struct ServerKills {
    pub(crate) kills: u32,
    pub(crate) restart: String,
}

/// Runs the campaign and returns the exit code.
pub(crate) async fn run(
    kind: impl StoreKind,
    kills: u32,
    seed: u64,
    server: Option<ServerKills>,
) -> i32 {
    let name = format!("turnstream-crash-{}-{}", kind.name(), std::process::id());
    let place = StoreLocation { kind, folder: std::env::temp_dir().join(name) };
    let mut report = Report::default();
    let result = match fs::create_dir_all(&place.folder) {
        Ok(()) => kill_and_verify(&place, kills, seed, server, &mut report).await,
        Err(error) => Err(format!("`{}` cannot be created: {error}", place.folder.display())),
    };
    let is_fine = result.is_ok() && report.has_no_failures();
    if let Err(message) = result {
        eprintln!("error: {message}");
    }
    let Report {
        kill_count: kills,
        lost_lines: lost,
        duplicates: doubled,
        invalid_history_count: unlawful,
        torn_line_count: torn,
        unfinished_run_count: unfinished,
        server_kill_count: server_kills,
    } = report;
    if server_kills > 0 {
        println!("server kills {server_kills}");
    }
    println!("unfinished runs {unfinished}, torn lines {torn}, unsettled histories {unlawful}");
    println!("kills {kills}, lost {}, doubled {}", lost.len(), doubled.len());
    match is_fine {
        true => drop(fs::remove_dir_all(&place.folder)),
        false => eprintln!("the files are kept in {}", place.folder.display()),
    }
    i32::from(!is_fine)
}

/// Continues to the last kill, even if a check fails.
///
/// # Errors
///
/// If it cannot continue: a child does not start or exits on its own, or the store cannot be read.
async fn kill_and_verify(
    place: &StoreLocation<impl StoreKind>,
    kills: u32,
    seed: u64,
    server: Option<ServerKills>,
    report: &mut Report,
) -> Result<(), String> {
    let dice = Dice::new(seed.wrapping_add(1));
    let mut reports = Vec::new();
    for kill in 1..=kills {
        // Spreads the server kills evenly over the kills.
        let is_due = |it: &&ServerKills| kill * it.kills / kills > report.server_kill_count;
        let server = server.as_ref().filter(is_due);
        report.server_kill_count += u32::from(server.is_some());
        reports.extend(run_and_kill_child(place, &dice, server)?);
        report.kill_count = kill;
        if let Some(lines) = place.session_file()
            && dice.roll(5) == 0
        {
            // Simulates a write that a crash has cut off in the middle.
            let torn = append_torn_line(&lines)
                .map_err(|error| format!("a torn line cannot be written: {error}"))?;
            report.torn_line_count += u32::from(torn);
        }
        let was_fine = report.has_no_failures();
        verify_store(place, &reports, report).await.map_err(|error| error.to_string())?;
        if was_fine && !report.has_no_failures() {
            println!("first failure after kill {kill}");
        }
    }
    // The session must still be writable, whatever the last kill has left.
    ensure_writable(place).await.map_err(|error| error.to_string())
}

/// Starts a child and kills it, after restarting its server if one is given. Returns the lines that
/// the child printed.
fn run_and_kill_child(
    place: &StoreLocation<impl StoreKind>,
    dice: &Dice,
    server: Option<&ServerKills>,
) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--store", place.kind.value(), "--seed", &dice.roll(1 << 30).to_string()]);
    command.arg("--child").arg(&place.folder).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("the child cannot be started: {error}"))?;
    let out = child.stdout.take().ok_or("the child has no stdout")?;
    let mut out = BufReader::new(out);
    let mut lines = Vec::new();
    let mut read = |lines: &mut Vec<String>| {
        let mut line = String::new();
        let read = out.read_line(&mut line).map_err(|error| error.to_string())?;
        // An incomplete line is ignored: it proves nothing.
        if let Some(line) = line.strip_suffix('\n') {
            lines.push(line.to_owned());
        }
        Ok::<bool, String>(read > 0)
    };
    // With a count of 0, the child is killed while it starts.
    let wanted = dice.roll(14);
    for line in 0..=wanted {
        if line == wanted / 2
            && let Some(server) = server
        {
            // The child has to survive the restart, and print more lines when the server is back.
            let status = Command::new("sh").args(["-c", &server.restart]).status();
            let status = status.map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("the server cannot be restarted: {status}"));
            }
        }
        if line < wanted && !read(&mut lines)? {
            let status = child.wait().map_err(|error| error.to_string())?;
            return Err(format!("the child ended on its own: {status}"));
        }
    }
    // Most appends take less than a few milliseconds, too short for a sleep.
    let longest = if wanted == 0 { 60_000 } else { 6_000 };
    let moment = Duration::from_micros(dice.roll(longest));
    let since = Instant::now();
    while since.elapsed() < moment {
        std::hint::spin_loop();
    }
    child.kill().map_err(|error| format!("the child cannot be killed: {error}"))?;
    child.wait().map_err(|error| error.to_string())?;
    while read(&mut lines)? {}
    Ok(lines)
}

fn append_torn_line(lines: &Path) -> std::io::Result<bool> {
    // The kill itself has left a torn line: a writer would have truncated it first.
    if !fs::read(lines).is_ok_and(|text| text.ends_with(b"\n")) {
        return Ok(false);
    }
    let mut file = OpenOptions::new().append(true).open(lines)?;
    file.write_all(br#"{"type":"append","entries":1,"bytes":4"#)?;
    Ok(true)
}

async fn verify_store(
    place: &StoreLocation<impl StoreKind>,
    reports: &[String],
    report: &mut Report,
) -> Result<(), Error> {
    let entries = place.open_store().await?.load(SESSION_ID, 0).await?.unwrap_or_default();
    verify_entries(&entries, reports, report);
    for tool in ["once", "asked"] {
        let effects = fs::read_to_string(place.effect_file(tool)).unwrap_or_default();
        let mut keys = HashSet::new();
        for key in effects.lines().filter(|key| !keys.insert(*key)) {
            report.record_duplicate(&format!("the effect of {key}"));
        }
    }
    let history = restore_history(SESSION_ID, entries);
    report.unfinished_run_count += u32::from(!history.unanswered_calls().is_empty());
    report.invalid_history_count += usize::from(!history.settled().is_settled());
    Ok(())
}

/// Checks that the printed items are in the store in their order, and that no item is stored twice.
fn verify_entries(entries: &[Entry], reports: &[String], report: &mut Report) {
    let (mut items, mut seen) = (Vec::new(), HashSet::new());
    for entry in entries {
        let Entry::Item(item) = entry else { continue };
        // Events do not report whether a call's tool is idempotent.
        let reported = Entry::Item(Item { idempotent: false, ..item.clone() });
        items.push(serde_json::to_string(&reported).unwrap_or_default());
        // A call, a result and any other item must each occur once.
        let once = match (item.as_tool_call(), item.as_tool_result()) {
            (Some(call), _) => format!("call {}", call.call_id),
            (None, Some(result)) => format!("result {}", result.call_id),
            (None, None) => items.last().cloned().unwrap_or_default(),
        };
        if !seen.insert(once.clone()) {
            report.record_duplicate(&once);
        }
    }
    let mut written = items.iter();
    for (at, line) in reports.iter().enumerate() {
        let mut ahead = written.clone();
        match ahead.any(|item| item == line) {
            true => written = ahead,
            false => report.record_lost(at, line),
        }
    }
}

async fn ensure_writable(place: &StoreLocation<impl StoreKind>) -> Result<(), Error> {
    let session = Session::open(place.open_store().await?, SESSION_ID).await?;
    let last = session.history().len();
    session.checkpoint(last..last, []).await
}
