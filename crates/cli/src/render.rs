//! Output for the user, or for a program.
//!
//! The model's text goes to stdout and everything else to stderr, so that a redirected stdout
//! contains only the answer.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ToolCall};
use turnstream::turn::TurnEvent;
use turnstream::{Error, ErrorKind, Event, History, Outcome};

use crate::approval::ApprovalMode;
use crate::error_context::ErrorContext;
use crate::text::{escape_invisible, escape_json_line, one_line, sanitize_lines};
use crate::tools::SERVER_SEPARATOR;
use crate::usage::UsageTally;
use crate::wrap::{WordWrap, print_lines, stderr_columns, stdout_columns, wrap_lines};

/// The maximum number of characters of a running call, and of a waiting one.
const MAX_RUNNING_CALL_CHARS: usize = 120;
const MAX_PENDING_CALL_CHARS: usize = 1_000;

/// Prints the events of a run.
pub(crate) enum EventPrinter {
    /// Prints every event as one line on stdout.
    Json,
    Text(TextPrinter),
}

impl EventPrinter {
    /// Reports how long the model has taken to begin its answer.
    pub(crate) fn report_wait(&mut self, waited: Duration) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Text(human) => human
                .print_note(&format!("  still waiting for the model after {} s", waited.as_secs())),
        }
    }

    /// Prints a line about the model or an MCP server, before the first run.
    pub(crate) fn report_setup(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Text(human) => human.print_note(&one_line(line, 300)),
        }
    }

    /// Reports that the text that the user entered during a run is sent to the model.
    pub(crate) fn report_steered(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Text(human) => {
                human.print_note(&format!("  (the model will read: {})", one_line(text, 200)))
            }
        }
    }

    /// Reports that the model's answer is interrupted, so that the model reads the user's text now.
    pub(crate) fn report_turn_interrupted(&mut self) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Text(human) => human.print_note("  (the answer is interrupted)"),
        }
    }

    /// Prints the answer to a command that the user entered during a run.
    pub(crate) fn report_answer(&mut self, lines: &str) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Text(human) => human.print_note(lines),
        }
    }

    /// Prints an event. An error means that stdout was closed; errors of stderr are ignored.
    pub(crate) fn print_event(&mut self, event: &Event) -> io::Result<()> {
        match self {
            Self::Json => print_json_event(event),
            Self::Text(human) => human.print_event(event),
        }
    }
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    error: &'a Error,
}

fn print_json_event(event: &Event) -> io::Result<()> {
    let mut lines = String::new();
    if let Some(error) = event.outcome().and_then(|outcome| outcome.error.as_ref()) {
        lines += &escape_json_line(&serde_json::to_string(&ErrorLine { r#type: "error", error })?);
        lines.push('\n');
    }
    lines += &escape_json_line(&serde_json::to_string(event)?);
    lines.push('\n');
    write_stdout(&lines)
}

/// Prints tokens as they arrive, and lines for all other events.
pub(crate) struct TextPrinter {
    /// Whether stdout may reach a terminal, which must not receive control characters. That
    /// includes a pipe through another program, such as `tee`, while approval questions are asked
    /// on the terminal.
    is_terminal: bool,
    has_colors: bool,
    /// Whether figures of usage are only estimated.
    is_usage_estimated: bool,
    /// Shows a call that needs approval in the question, or when it runs.
    approval: ApprovalMode,
    open_line: OpenLine,
    /// The open line.
    wrap: WordWrap,
    /// The tokens of the current run.
    usage: UsageTally,
}

/// The stream on which a line has begun and not ended.
#[derive(Clone, Copy, PartialEq)]
enum OpenLine {
    Neither,
    Stdout,
    Stderr,
}

impl TextPrinter {
    /// `plain`: whether the user, or the terminal, wants no colors.
    pub(crate) fn new(plain: bool, estimated: bool, approval: ApprovalMode) -> Self {
        let asks = matches!(approval, ApprovalMode::AskUser { .. });
        let terminal = io::stdout().is_terminal();
        let colors = terminal && io::stderr().is_terminal() && !plain;
        Self {
            is_terminal: terminal || asks,
            has_colors: colors,
            is_usage_estimated: estimated,
            approval,
            open_line: OpenLine::Neither,
            wrap: WordWrap::default(),
            usage: UsageTally::default(),
        }
    }

    fn print_event(&mut self, event: &Event) -> io::Result<()> {
        if let Event::Turn(event) = event {
            self.usage.observe(event);
        }
        match event {
            Event::Turn(
                TurnEvent::TextDelta { text, .. } | TurnEvent::RefusalDelta { text, .. },
            ) => self.print_text(text),
            Event::Turn(TurnEvent::ReasoningDelta { text, .. }) => self.print_reasoning(text),
            Event::Turn(TurnEvent::Retrying { delay_ms, error, .. }) => {
                self.print_note(&format!("  {}", retry_message(error, *delay_ms)))
            }
            Event::Turn(TurnEvent::Retracted { why, .. }) => self.print_note(&format!(
                "  (retracted, the model starts over: {})",
                one_line(why, 200)
            )),
            // The arguments of a call follow, and may take long.
            Event::Turn(TurnEvent::ToolCallStart { .. }) => self.print_held_word(),
            Event::Turn(TurnEvent::TurnComplete { .. }) => self.end_line(),
            Event::Tool(event) => self.print_tool_event(event),
            Event::Finished(outcome) => {
                let usage = std::mem::take(&mut self.usage);
                self.print_note(&self.summary(outcome, &usage))
            }
            _ => Ok(()),
        }
    }

    fn print_text(&mut self, text: &str) -> io::Result<()> {
        if self.open_line == OpenLine::Stderr {
            self.end_line()?;
        }
        let printed = match self.is_terminal {
            true => self.wrap.push(&sanitize_lines(text), stdout_columns()),
            false => text.to_owned(),
        };
        write_stdout(&printed)?;
        self.open_line = match text.chars().next_back() {
            None => self.open_line,
            Some('\n') => OpenLine::Neither,
            Some(_) => OpenLine::Stdout,
        };
        Ok(())
    }

    fn print_reasoning(&mut self, text: &str) -> io::Result<()> {
        if self.open_line == OpenLine::Stdout {
            self.end_line()?;
        }
        let text = sanitize_lines(text);
        let printed = self.wrap.push(&text, stderr_columns());
        self.write_dimmed(&printed);
        if !text.is_empty() {
            self.open_line =
                if text.ends_with('\n') { OpenLine::Neither } else { OpenLine::Stderr };
        }
        Ok(())
    }

    fn print_tool_event(&mut self, event: &ToolEvent) -> io::Result<()> {
        match event {
            ToolEvent::Started { call_id, name, arguments, .. } => {
                let (call_id, name) = (call_id.clone(), name.clone());
                let call = ToolCall { call_id, name, arguments: arguments.clone() };
                let arguments = format_arguments(&call, MAX_RUNNING_CALL_CHARS);
                let name = &call.name;
                self.print_note(&format!("  > {} {arguments}", one_line(name, 64)))
            }
            ToolEvent::Progress { name, data, .. } => {
                let data = one_line(&progress_text(data.as_str()), 120);
                self.print_note(&format!("  . {} {data}", one_line(name, 64)))
            }
            ToolEvent::Output(result) => {
                let mark = if result.is_error() { '!' } else { '<' };
                let text = one_line(&result.content.text(), 160);
                self.print_note(&format!("  {mark} {} {text}", one_line(&result.name, 64)))
            }
            ToolEvent::ApprovalRequested(call) => match self.approval {
                ApprovalMode::AskUser { .. } | ApprovalMode::ApproveAll => self.end_line(),
                ApprovalMode::Suspend => self.print_note(&format!(
                    "  ? {} needs approval",
                    describe_call(&call.to_tool_call())
                )),
            },
            _ => Ok(()),
        }
    }

    fn summary(&self, outcome: &Outcome, usage: &UsageTally) -> String {
        let turns = if outcome.turns == 1 { "turn" } else { "turns" };
        let mut summary =
            format!("-- {}: {} {turns}", end_reason_text(outcome.reason), outcome.turns);
        if let Some(tokens) = usage.describe(outcome) {
            let estimated = if self.is_usage_estimated { " (estimated)" } else { "" };
            summary.extend([", ", &tokens, estimated]);
        }
        for call in &outcome.pending {
            summary.extend(["\n   waiting: ", &describe_call(&call.to_tool_call())]);
        }
        summary
    }

    /// Prints a note between the texts.
    fn print_note(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        self.write_dimmed(&wrap_lines(text, stderr_columns()));
        let _ = io::stderr().write_all(b"\n");
        Ok(())
    }

    /// Prints the last word of the open line, even if it is incomplete.
    fn print_held_word(&mut self) -> io::Result<()> {
        match self.open_line {
            OpenLine::Neither => Ok(()),
            OpenLine::Stdout => write_stdout(&self.wrap.take_word(stdout_columns())),
            OpenLine::Stderr => {
                let word = self.wrap.take_word(stderr_columns());
                self.write_dimmed(&word);
                Ok(())
            }
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.print_held_word()?;
        self.wrap.start_line();
        match std::mem::replace(&mut self.open_line, OpenLine::Neither) {
            OpenLine::Neither => {}
            OpenLine::Stdout => write_stdout("\n")?,
            OpenLine::Stderr => {
                let _ = io::stderr().write_all(b"\n");
            }
        }
        Ok(())
    }

    /// Writes to stderr, and ignores its errors.
    fn write_dimmed(&self, text: &str) {
        if !text.is_empty() {
            let _ = io::stderr().write_all(self.dimmed(text).as_bytes());
        }
    }

    fn dimmed(&self, text: &str) -> String {
        if self.has_colors { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Describes a call that waits for approval.
fn describe_call(call: &ToolCall) -> String {
    format!("{} {}", one_line(&call.name, 64), format_arguments(call, MAX_PENDING_CALL_CHARS))
}

/// The arguments of a call in one line. Long texts among them are shortened individually, so that
/// they do not hide the others.
fn format_arguments(call: &ToolCall, most: usize) -> String {
    let given = call.arguments_or_empty_object();
    let Ok(mut values) = serde_json::from_str::<serde_json::Map<String, Value>>(given) else {
        return one_line(given, most);
    };
    for value in values.values_mut() {
        if let Value::String(text) = value
            && text.chars().count() > MAX_RUNNING_CALL_CHARS
        {
            *text = escape_invisible(text, MAX_RUNNING_CALL_CHARS / 2);
        }
    }
    one_line(&Value::Object(values).to_string(), most)
}

/// The progress of a call: an MCP server's as "step 1 (1 of 5)", any other as its JSON.
fn progress_text(json: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(json) else { return json.to_owned() };
    let is_known = |name: &String| ["progress", "total", "message"].contains(&name.as_str());
    let Some(progress) = fields.get("progress").and_then(Value::as_f64) else {
        return json.to_owned();
    };
    if !fields.keys().all(is_known) {
        return json.to_owned();
    }
    let amount = match fields.get("total").and_then(Value::as_f64) {
        Some(total) => format!("{progress} of {total}"),
        None => progress.to_string(),
    };
    match fields.get("message").and_then(Value::as_str).map(str::trim) {
        None | Some("") => amount,
        Some(message) if message.ends_with(&amount) => message.to_owned(),
        Some(message) => format!("{message} ({amount})"),
    }
}

/// The reason and the time of a retry: "rate limited, trying again in 3 s".
fn retry_message(error: &Error, delay_ms: u64) -> String {
    let what = match error.kind() {
        ErrorKind::RateLimited => "rate limited".to_owned(),
        ErrorKind::Overloaded => "the model is overloaded".to_owned(),
        _ => one_line(error.message(), 200),
    };
    let seconds = delay_ms.div_ceil(100);
    match (seconds / 10, seconds % 10) {
        (0, 0) => format!("{what}, trying again"),
        (whole, 0) => format!("{what}, trying again in {whole} s"),
        (whole, tenths) => format!("{what}, trying again in {whole}.{tenths} s"),
    }
}

/// Prints a one-line error to stderr.
pub(crate) fn print_error(message: &str) {
    print_lines(&format!("error: {}", one_line(message, 1_000)));
}

/// The reason why a run ended, for the user.
fn end_reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Completed => "completed",
        EndReason::MaxTurns => "stopped at the limit of --max-turns",
        EndReason::Interrupted(_) => "interrupted",
        EndReason::Stopped => "stopped",
        EndReason::ContextWindow => "the conversation is too long for the model",
        EndReason::Truncated => "the answer exceeds the model's output limit",
        EndReason::Refused => "the model refused to answer",
        EndReason::Filtered => "a content filter of the provider cut off the answer",
        EndReason::Malformed => "the model's responses are malformed",
        EndReason::Repeating => "the model kept repeating the same calls",
        EndReason::Budget => "the budget is spent",
        EndReason::Incomplete => "the answer was cut off",
        EndReason::Pending => "waiting for approval",
        EndReason::Blocked => "the model reports that something is missing",
        EndReason::Unproven => "the model did not prove its claim",
        EndReason::ProviderError => "the request failed",
        _ => "ended early",
    }
}

/// Prints why a run failed, and when to try again if the server reported that.
pub(crate) fn print_failure(outcome: &Outcome, context: &ErrorContext) {
    let Some(failure) = &outcome.error else {
        let why = outcome.why.as_deref().unwrap_or_default();
        let gap = if why.is_empty() { "" } else { ": " };
        let word = outcome.unknown_stop_reason.as_deref();
        let word = word.map_or_else(String::new, |word| format!(" (stop reason `{word}`)"));
        return print_error(&format!("{}{gap}{why}{word}", end_reason_text(outcome.reason)));
    };
    let message = context.describe(failure);
    // A time in the past needs no wait.
    match failure.retry_after().map_or(0, |wait| wait.as_millis().div_ceil(1_000)) {
        0 => print_error(&message),
        seconds => print_error(&format!("{message} (try again in {seconds} s)")),
    }
}

/// Reports that the answer ended for a reason that is not known, in the provider's word.
pub(crate) fn print_unknown_stop_reason(word: &str) {
    let word = one_line(word, 200);
    let _ = writeln!(
        io::stderr(),
        "note: the model ended its answer for an unknown reason, `{word}`; it may be incomplete"
    );
}

/// Prints a notice about the session that the user continues.
pub(crate) fn print_session_notice(message: &str) {
    print_lines(&format!("session: {}", one_line(message, 2_000)));
}

/// Prints a message to the model that was not delivered.
pub(crate) fn print_undelivered(text: &str) {
    print_lines(&format!("not sent to the model: {}", one_line(text, 2_000)));
}

/// Reports a run that ended because it could not ask for approval.
pub(crate) fn print_pending(calls: &[PendingCall]) {
    let names: Vec<_> = calls.iter().map(|call| format!("`{}`", call.name)).collect();
    let is_of_server = |call: &PendingCall| call.name.contains(SERVER_SEPARATOR);
    let what =
        if calls.iter().any(is_of_server) { "nothing was called" } else { "nothing was written" };
    print_error(&format!(
        "{what}: {} must be approved, with --yes or on a terminal",
        names.join(", ")
    ));
}

/// Prints what an interrupted run leaves: every call has a result, so the history can be sent
/// again.
pub(crate) fn print_interrupted(history: &History) {
    // The items that the next request would send, without calls of a turn that never completed.
    let history = history.settled();
    let calls = history.iter().filter(|item| item.as_tool_call().is_some()).count();
    let results = history.iter().filter(|item| item.as_tool_result().is_some()).count();
    let paired = match calls == results && history.is_settled() {
        true => "the history can be sent again",
        false => "the history cannot be sent again",
    };
    print_lines(&format!("interrupted: {calls} tool calls, {results} results, {paired}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_server_is_a_sentence() {
        for (json, expected) in [
            (r#"{"progress":1.0,"total":5.0,"message":"step 1"}"#, "step 1 (1 of 5)"),
            (r#"{"progress":1,"total":5,"message":"step 1 of 5"}"#, "step 1 of 5"),
            (r#"{"progress":0.5,"total":2}"#, "0.5 of 2"),
            (r#"{"progress":3,"message":" "}"#, "3"),
            (r#"{"progress":3,"files":1}"#, r#"{"progress":3,"files":1}"#),
            (r#"{"progress":"half"}"#, r#"{"progress":"half"}"#),
            ("17", "17"),
        ] {
            assert_eq!(progress_text(json), expected, "{json}");
        }
    }
}
