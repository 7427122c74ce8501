//! Decides who approves the calls that need approval.
//!
//! The model writes to the same terminal as the approval question, and the user may have typed
//! something that was meant for the model. So each question has a mark that is drawn when the
//! program starts and that no model sees; it shows the call as the tool parses it; and only text
//! that is typed after the question counts as an answer.

use std::io::{self, Write};
use std::time::Duration;

use turnstream::env::{Ids, SystemIds};
use turnstream::item::{GrantDuration, GrantScope};
use turnstream::tool::Verdict;

use crate::args::Args;
use crate::lines::InputReader;
use crate::text::escape_invisible;
use crate::wrap::print_lines;

/// The time without input before a question opens. It prevents the user's reply to a model's text
/// that looks like a question from being taken as the answer to the real question right after it.
const MIN_QUIET_TIME: Duration = Duration::from_millis(500);

/// The beginning of what the model receives for a call that the user denied.
const DENIAL: &str = "the user did not approve it";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApprovalMode {
    /// Asks the user about each call.
    AskUser { mark: String },
    /// Approves every call.
    ApproveAll,
    /// Without a terminal: the run ends as `pending`.
    Suspend,
}

impl ApprovalMode {
    /// `terminal`: whether a user can see a question and answer it.
    pub(crate) fn new(args: &Args, terminal: bool) -> Self {
        match (args.yes, args.json, terminal) {
            (true, _, _) => Self::ApproveAll,
            (false, false, true) => {
                Self::AskUser { mark: SystemIds.next_id().chars().take(4).collect() }
            }
            (false, true, _) | (false, false, false) => Self::Suspend,
        }
    }

    /// Whether the run waits for a verdict.
    pub(crate) fn is_interactive(&self) -> bool {
        match self {
            Self::AskUser { .. } | Self::ApproveAll => true,
            Self::Suspend => false,
        }
    }

    /// The notice that the user sees before the model's first text. `asks_for_servers` is whether
    /// there are MCP servers whose tools may be called.
    pub(crate) fn startup_notice(&self, asks_for_servers: bool) -> Option<String> {
        let when = match asks_for_servers {
            true => "before a file is written, and before a tool of a server is called",
            false => "before a file is written",
        };
        match self {
            Self::AskUser { mark } => Some(format!(
                "You are asked {when}. A question without the mark [{mark}] is the model's."
            )),
            Self::ApproveAll | Self::Suspend => None,
        }
    }

    /// Returns the verdict on a call, which `shown` describes line by line; `None` if there is no
    /// user to ask. The run is not polled while this future waits, so none of its tools progress.
    /// Dropping the future leaves the call pending.
    pub(crate) async fn verdict(
        &self,
        shown: &[String],
        lines: &mut InputReader,
    ) -> Option<Verdict> {
        let mark = match self {
            Self::AskUser { mark } => mark,
            Self::ApproveAll => return Some(Verdict::Approve),
            Self::Suspend => return None,
        };
        // If the input cannot be read, the call is denied.
        Some(parse_answer(&ask_user(mark, shown, lines).await.unwrap_or_default()))
    }
}

/// The verdict that an answer means. A text other than yes, no and always is the reason of a
/// denial. "Always" approves all calls to the tool in this conversation.
fn parse_answer(answer: &str) -> Verdict {
    let answer = answer.trim();
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Verdict::Approve,
        "a" | "always" => Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Session),
        "" | "n" | "no" => Verdict::deny(DENIAL),
        _ => Verdict::deny(format!("{DENIAL}, and answered: {answer}")),
    }
}

/// Asks the question and returns the answer, which is empty at the end of the input.
async fn ask_user(mark: &str, shown: &[String], lines: &mut InputReader) -> io::Result<String> {
    let mut question = vec![format!("[{mark}] The model wants to call:")];
    question.extend(shown.iter().map(|line| format!("  {line}")));
    print_lines(&question.join("\n"));
    lines.wait_for_quiet(MIN_QUIET_TIME).await?;
    let early = lines.take_typed()?;
    if !early.trim().is_empty() {
        let early = escape_invisible(early.trim(), 200);
        print_lines(&format!("\n  typed before the question, so not an answer: {early}"));
    }
    let question = format!("[{mark}] approve it? [y/N/always or why] ");
    let _ = write!(io::stderr(), "{question}").and_then(|()| io::stderr().flush());
    match lines.next_entry().await? {
        Some(answer) => Ok(answer),
        None => {
            let _ = writeln!(io::stderr());
            Ok(String::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_asked_only_on_a_terminal() {
        for (yes, json, terminal, expected) in [
            (false, false, true, None),
            (false, false, false, Some(ApprovalMode::Suspend)),
            (false, true, true, Some(ApprovalMode::Suspend)),
            (true, false, true, Some(ApprovalMode::ApproveAll)),
            (true, true, false, Some(ApprovalMode::ApproveAll)),
        ] {
            let args = Args { yes, json, ..Args::default() };
            let approval = ApprovalMode::new(&args, terminal);
            match expected {
                Some(expected) => assert_eq!(approval, expected, "{args:?} {terminal}"),
                None => {
                    assert!(
                        matches!(approval, ApprovalMode::AskUser { .. }),
                        "{args:?} {terminal}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_answer_other_than_yes_no_and_always_is_the_reason_of_the_denial() {
        for (answer, expected) in [
            ("y", Verdict::Approve),
            (" YES \n", Verdict::Approve),
            ("A", Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Session)),
            ("always", Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Session)),
            ("all", Verdict::deny("the user did not approve it, and answered: all")),
            ("", Verdict::deny("the user did not approve it")),
            ("No", Verdict::deny("the user did not approve it")),
            (
                "yes, but call it todo.md",
                Verdict::deny(
                    "the user did not approve it, and answered: yes, but call it todo.md",
                ),
            ),
            (" a\nb \n", Verdict::deny("the user did not approve it, and answered: a\nb")),
        ] {
            assert_eq!(parse_answer(answer), expected, "{answer}");
        }
    }

    #[test]
    fn the_startup_notice_mentions_servers_if_there_are_any() {
        let notice = |servers| ApprovalMode::new(&Args::default(), true).startup_notice(servers);
        assert!(!notice(false).unwrap().contains("server"));
        assert!(notice(true).unwrap().contains("before a tool of a server is called. A question"));
        assert_eq!(ApprovalMode::ApproveAll.startup_notice(true), None);
    }

    #[test]
    fn approval_markers_are_unique_per_process() {
        let marks = || ApprovalMode::new(&Args::default(), true);
        // Two marks are equal by chance once in 65,536 draws; three pairs in a row are not.
        assert!((0..3).any(|_| marks() != marks()));
    }
}
