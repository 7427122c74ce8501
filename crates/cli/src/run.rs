//! A run on the terminal: prints its events, and sends it the text and the verdicts of the user.

use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use turnstream::event::{AppendReason, EndReason, ToolEvent};
use turnstream::item::{Content, ToolCall};
use turnstream::session::SessionRun;
use turnstream::{Error, Event, History, Outcome, RunHandle, TurnEvent};

use crate::approval::ApprovalMode;
use crate::ctrl_c::CtrlC;
use crate::error_context::ErrorContext;
use crate::grants::GrantCommand;
use crate::lines::InputReader;
use crate::render::{self, EventPrinter};
use crate::tools::{self, Root};

/// The reason why the program ends, as its exit code.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ExitStatus {
    Done = 0,
    Failed = 1,
    BadUsage = 2,
    /// Ended by Ctrl-C, with the exit code that shells use for it.
    Quit = 130,
}

/// The terminal: the program's output and the user's input.
pub(crate) struct UserInterface {
    pub(crate) printer: EventPrinter,
    pub(crate) approval: ApprovalMode,
    /// The root directory of the files in approval questions.
    pub(crate) root: Root,
    pub(crate) error_context: ErrorContext,
    pub(crate) input: InputReader,
    /// Whether text that is typed during a run is sent to the model.
    pub(crate) can_steer: bool,
    /// Whether the user pressed Ctrl-D during a run.
    pub(crate) is_input_ended: bool,
    pub(crate) ctrl_c: CtrlC,
    /// Text that was typed for the model, and came too late for it.
    pub(crate) undelivered: Vec<String>,
}

/// Polls a run to its end and prints its events. Dropping the future stops the run.
///
/// # Errors
///
/// If the session can no longer be written, which ends the run.
pub(crate) async fn drive_run(
    run: SessionRun,
    user: &mut UserInterface,
) -> Result<ExitStatus, Error> {
    let handle = run.handle();
    let mut run = pin!(run.with_tracing());
    let UserInterface {
        printer: screen,
        approval,
        root,
        error_context,
        input: lines,
        can_steer: types,
        is_input_ended: ended,
        ctrl_c,
        undelivered,
    } = user;
    let mut silence = ResponseTimer::default();
    let mut interrupted = false;
    let mut typing = *types;
    // The number of texts that the user has typed and the model has not received.
    let mut waiting_texts = 0_usize;
    // The calls that the user approved, alone or with a grant, and that have not finished.
    let mut allowed: Vec<ToolCall> = Vec::new();
    loop {
        let event = tokio::select! {
            biased;
            () = ctrl_c.pressed() => {
                if interrupted {
                    // The cursor is at the end of a line.
                    let _ = writeln!(io::stderr());
                    return Ok(ExitStatus::Quit);
                }
                interrupted = true;
                handle.interrupt();
                continue;
            }
            entered = lines.next_entry(), if typing => {
                match entered {
                    Ok(Some(text)) => {
                        let entered =
                            apply_entry(text, &mut waiting_texts, &handle, screen, undelivered);
                        if let Err(error) = entered {
                            return Ok(stdout_error_exit(&error));
                        }
                    }
                    Ok(None) | Err(_) => (typing, *ended) = (false, true),
                }
                continue;
            }
            event = run.next() => event,
            waited = silence.next_wait_report() => {
                if let Err(error) = screen.report_wait(waited) {
                    return Ok(stdout_error_exit(&error));
                }
                continue;
            }
        };
        let Some(event) = event.transpose()? else { return Ok(ExitStatus::Failed) };
        silence.observe(&event);
        if let Err(error) = screen.print_event(&event) {
            return Ok(stdout_error_exit(&error));
        }
        if let Event::Tool(ToolEvent::Started { call_id, name, arguments, grant_id: Some(_) }) =
            &event
        {
            let (call_id, name) = (call_id.clone(), name.clone());
            allowed.push(ToolCall { call_id, name, arguments: arguments.clone() });
        }
        if let Event::Appended { why: AppendReason::Steer, .. } = &event {
            waiting_texts = waiting_texts.saturating_sub(1);
        }
        if let Some(result) = event.tool_output() {
            allowed.retain(|call| call.call_id != result.call_id);
        }
        if let Some(call) = event.approval_request() {
            let shown = tools::describe_call(root, &call.to_tool_call(), &allowed);
            let decided = tokio::select! {
                biased;
                () = ctrl_c.pressed() => {
                    // The cursor is at the end of the question, so start a new line.
                    let _ = writeln!(io::stderr());
                    interrupted = true;
                    handle.interrupt();
                    Ok(())
                }
                verdict = approval.verdict(&shown, lines) => match verdict {
                    Some(verdict) => {
                        if verdict.is_approval() {
                            allowed.push(call.to_tool_call());
                        }
                        handle.submit_verdict(&call, verdict)
                    }
                    None => Ok(()),
                },
            };
            if let Err(error) = decided {
                render::print_error(error.message());
            }
        }
        let Some(outcome) = event.outcome() else { continue };
        let texts = outcome.undelivered.iter().flat_map(|late| &late.items);
        let texts = texts.filter_map(|item| item.as_user().map(Content::text));
        undelivered.extend(texts);
        return Ok(report_end(outcome, &handle.history(), error_context));
    }
}

/// Applies a command that the user entered during a run, or sends the text to the model. An empty
/// line interrupts the model's answer if the model has not received all of the texts.
/// `waiting_texts` is their number.
fn apply_entry(
    text: String,
    waiting_texts: &mut usize,
    run: &RunHandle,
    screen: &mut EventPrinter,
    undelivered: &mut Vec<String>,
) -> io::Result<()> {
    if text.trim().is_empty() {
        if *waiting_texts == 0 {
            return Ok(());
        }
        run.interrupt_turn();
        return screen.report_turn_interrupted();
    }
    if let Some(command) = GrantCommand::parse(&text) {
        return screen.report_answer(&command.apply_to_run(run));
    }
    match run.steer(text.trim()) {
        Ok(_) => {
            *waiting_texts += 1;
            screen.report_steered(&text)
        }
        Err(_) => {
            undelivered.push(text);
            Ok(())
        }
    }
}

/// Prints how the run ended, unless it completed as usual.
fn report_end(outcome: &Outcome, history: &History, error_context: &ErrorContext) -> ExitStatus {
    match outcome.reason {
        EndReason::Completed => {
            if let Some(word) = &outcome.unknown_stop_reason {
                render::print_unknown_stop_reason(word);
            }
            return ExitStatus::Done;
        }
        EndReason::Interrupted(_) => render::print_interrupted(history),
        EndReason::Pending => render::print_pending(&outcome.pending),
        _ => render::print_failure(outcome, error_context),
    }
    ExitStatus::Failed
}

/// Stdout can no longer be written.
fn stdout_error_exit(error: &io::Error) -> ExitStatus {
    if error.kind() != io::ErrorKind::BrokenPipe {
        render::print_error(&format!("stdout cannot be written: {error}"));
    }
    ExitStatus::Failed
}

/// Measures how long the model has taken to begin its answer.
#[derive(Default)]
struct ResponseTimer {
    /// When the request was sent, and how many times its wait was reported.
    waiting_since: Option<(Instant, u32)>,
}

impl ResponseTimer {
    /// The interval at which a wait is reported.
    const REPORT_INTERVAL: Duration = Duration::from_secs(10);

    fn observe(&mut self, event: &Event) {
        self.waiting_since = match event {
            // The wait for a retry is counted from when the retry is sent.
            Event::Turn(TurnEvent::Retrying { delay_ms, .. }) => {
                let again = Instant::now().checked_add(Duration::from_millis(*delay_ms));
                again.map(|again| (again, 0))
            }
            Event::TurnStarted { .. } => Some((Instant::now(), 0)),
            _ => None,
        };
    }

    /// Completes when the model has not begun its answer for another interval.
    async fn next_wait_report(&mut self) -> Duration {
        let Some((since, reported)) = &mut self.waiting_since else {
            return std::future::pending().await;
        };
        let waited = Self::REPORT_INTERVAL * (*reported + 1);
        tokio::time::sleep_until(*since + waited).await;
        *reported += 1;
        waited
    }
}
