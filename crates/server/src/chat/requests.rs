//! The page's requests.

use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use turnstream::Item;
use turnstream::hub::{Command, EventNumber};
use turnstream::item::{GrantTerms, PendingCall};
use turnstream::tool::Verdict;

use super::failure::Failure;

/// Longer session ids are refused.
const MAX_ID_BYTES: usize = 100;

/// Validates a session id.
pub(crate) fn check_session_id(id: &str) -> Result<(), Failure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(is_allowed) {
        let message = "a session id needs 1 to 100 letters, digits and `-_.`";
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}

/// The idempotency key of a request that may be sent again.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=200).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let message = "an `idempotency-key` needs 1 to 200 ASCII characters";
            Err(Failure::new(StatusCode::BAD_REQUEST, message))
        }
    }
}

fn check_text(text: &str) -> Result<(), Failure> {
    match text.trim().is_empty() {
        true => Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "the message is empty")),
        false => Ok(()),
    }
}

/// The treatment of calls that wait for approval when a message starts another run.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitingCalls {
    /// The request is refused.
    #[default]
    Keep,
    /// The calls do not run, and the model reads that they were interrupted.
    GiveUp,
}

#[derive(Deserialize)]
pub(crate) struct StartBody {
    text: Option<String>,
    #[serde(default)]
    pub(crate) waiting_calls: WaitingCalls,
}

impl StartBody {
    /// The message. Without one, the request continues the last run.
    pub(crate) fn into_text(self) -> Result<Option<String>, Failure> {
        self.text.as_deref().map(check_text).transpose()?;
        Ok(self.text)
    }
}

#[derive(Deserialize)]
pub(crate) struct EventsQuery {
    after: Option<String>,
}

impl EventsQuery {
    /// The number of the last event that the page has. An invalid number is treated like that of a
    /// deleted event.
    pub(crate) fn after(&self, headers: &HeaderMap) -> Option<EventNumber> {
        let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
        last.or(self.after.as_deref()).and_then(|last| last.parse().ok())
    }
}

#[derive(Deserialize)]
pub(crate) struct StopBody {
    /// Lets the current turn and its tools finish first.
    #[serde(default)]
    after_turn: bool,
    /// Ends the model's answer, but not its tools.
    #[serde(default)]
    answer_only: bool,
    /// The id of the message that the model answers next. An answer to it is not ended.
    answer_next: Option<String>,
    /// The reason for stopping, which the model reads.
    reason: Option<String>,
}

impl StopBody {
    pub(crate) fn to_command(&self) -> Command {
        let Self { after_turn, answer_only, answer_next, reason } = self;
        match (answer_next.clone(), reason.clone()) {
            _ if *after_turn => Command::StopAfterTurn,
            (Some(input_id), _) if *answer_only => Command::InterruptTurnFor { input_id },
            _ if *answer_only => Command::InterruptTurn,
            (_, Some(reason)) => Command::InterruptWithReason(reason),
            (_, None) => Command::Interrupt,
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct SteerBody {
    text: String,
}

impl SteerBody {
    pub(crate) fn into_items(self) -> Result<Vec<Item>, Failure> {
        check_text(&self.text)?;
        Ok(vec![Item::user(self.text)])
    }
}

#[derive(Deserialize)]
pub(crate) struct VerdictBody {
    /// The call as the page showed it.
    call: PendingCall,
    reason: Option<String>,
    /// The terms on which an approval holds for further calls.
    always: Option<GrantTerms>,
    /// The page's earlier verdicts on other calls: another process may have received them.
    #[serde(default)]
    earlier: Vec<PageVerdict>,
}

#[derive(Deserialize)]
struct PageVerdict {
    call: PendingCall,
    is_approved: bool,
    reason: Option<String>,
    always: Option<GrantTerms>,
}

impl VerdictBody {
    /// All verdicts of an approval, with the new one last.
    pub(crate) fn into_approval(self) -> Vec<(PendingCall, Verdict)> {
        self.into_verdicts(true)
    }

    /// All verdicts of a denial, with the new one last.
    pub(crate) fn into_denial(self) -> Vec<(PendingCall, Verdict)> {
        self.into_verdicts(false)
    }

    fn into_verdicts(self, is_approved: bool) -> Vec<(PendingCall, Verdict)> {
        let Self { call, reason, always, earlier } = self;
        let new = PageVerdict { call, is_approved, reason, always };
        let to_verdict = |PageVerdict { call, is_approved, reason, always }| {
            let verdict = match (is_approved, always) {
                (true, Some(terms)) => Verdict::ApproveAlways(terms),
                (true, None) => Verdict::Approve,
                (false, _) => denial(reason),
            };
            (call, verdict)
        };
        earlier.into_iter().chain([new]).map(to_verdict).collect()
    }
}

fn denial(reason: Option<String>) -> Verdict {
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    Verdict::deny(reason.unwrap_or_else(|| "the user denied it".to_owned()))
}

#[derive(Deserialize)]
pub(crate) struct RevokeBody {
    pub(crate) grant_id: String,
}

#[derive(Deserialize)]
pub(crate) struct ForkBody {
    /// The number of entries to copy; all of them by default.
    pub(crate) at: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    /// The `next` text of the previous page.
    pub(crate) after: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct MessagesQuery {
    pub(crate) before: Option<usize>,
    pub(crate) limit: Option<usize>,
}
