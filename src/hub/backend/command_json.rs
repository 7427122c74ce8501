//! The JSON format for commands. Later versions of the crate may extend the
//! format, but must not change or remove any part of it.

use serde::{Deserialize, Serialize};

use crate::agent::shorten_interrupt_reason;
use crate::error::{Error, ErrorKind};
use crate::hub::{Command, ensure_short_id};
use crate::item::{Content, GrantTerms, Item, PendingCall, RawJson};
use crate::tool::{OutputStatus, ToolOutput, Verdict};

/// The version of the JSON format. Readers reject later versions.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct CommandJson {
    v: u32,
    id: String,
    command: ActionJson,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ActionJson {
    Interrupt {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    InterruptTurn,
    InterruptTurnFor {
        input_id: String,
    },
    StopAfterTurn,
    Steer {
        items: Vec<Item>,
    },
    FollowUp {
        items: Vec<Item>,
    },
    Verdict {
        call: PendingCall,
        verdict: VerdictJson,
    },
    RevokeGrant {
        grant_id: String,
    },
    ToolProgress {
        call_id: String,
        data: RawJson,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum VerdictJson {
    Approve,
    ApproveAlways(GrantTerms),
    Deny {
        reason: String,
    },
    Output {
        content: Content,
        #[serde(default)]
        failed: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        already_exists: bool,
    },
}

/// Encodes a command and its id as JSON, for an inbox on another machine.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the command cannot be written as
/// JSON, or a [`TooLarge`](ErrorKind::TooLarge) error if it names input by a long id.
pub(crate) fn command_to_json(id: &str, command: Command) -> Result<String, Error> {
    let command = match command {
        Command::Interrupt => ActionJson::Interrupt { reason: None },
        Command::InterruptWithReason(reason) => {
            ActionJson::Interrupt { reason: shorten_interrupt_reason(&reason) }
        }
        Command::InterruptTurn => ActionJson::InterruptTurn,
        Command::InterruptTurnFor { input_id } => {
            ensure_short_id(&input_id)?;
            ActionJson::InterruptTurnFor { input_id }
        }
        Command::StopAfterTurn => ActionJson::StopAfterTurn,
        Command::Steer(items) => ActionJson::Steer { items },
        Command::FollowUp(items) => ActionJson::FollowUp { items },
        Command::Verdict { call, verdict } => {
            let verdict = match verdict {
                Verdict::Approve => VerdictJson::Approve,
                Verdict::ApproveAlways(terms) => VerdictJson::ApproveAlways(terms),
                Verdict::Deny(reason) => VerdictJson::Deny { reason },
                Verdict::Output(ToolOutput { content, status }) => VerdictJson::Output {
                    content,
                    failed: status == OutputStatus::Failed,
                    already_exists: status == OutputStatus::AlreadyExists,
                },
            };
            ActionJson::Verdict { call, verdict }
        }
        Command::RevokeGrant { grant_id } => ActionJson::RevokeGrant { grant_id },
        Command::ToolProgress { call_id, data } => ActionJson::ToolProgress { call_id, data },
    };
    let command = CommandJson { v: VERSION, id: id.to_owned(), command };
    serde_json::to_string(&command).map_err(|error| {
        let message = "the command cannot be sent to another machine";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })
}

/// Decodes a command and its id. Returns `None` if the JSON is not a command from this crate or was
/// written in a later version of the format.
pub(crate) fn command_from_json(json: &[u8]) -> Option<(String, Command)> {
    let CommandJson { v, id, command } = serde_json::from_slice(json).ok()?;
    if v > VERSION {
        return None;
    }
    let command = match command {
        ActionJson::Interrupt { reason } => {
            let reason = reason.as_deref().and_then(shorten_interrupt_reason);
            reason.map_or(Command::Interrupt, Command::InterruptWithReason)
        }
        ActionJson::InterruptTurn => Command::InterruptTurn,
        ActionJson::InterruptTurnFor { input_id } => Command::InterruptTurnFor { input_id },
        ActionJson::StopAfterTurn => Command::StopAfterTurn,
        ActionJson::Steer { items } => Command::Steer(items),
        ActionJson::FollowUp { items } => Command::FollowUp(items),
        ActionJson::Verdict { call, verdict } => {
            let verdict = match verdict {
                VerdictJson::Approve => Verdict::Approve,
                VerdictJson::ApproveAlways(terms) => Verdict::ApproveAlways(terms),
                VerdictJson::Deny { reason } => Verdict::Deny(reason),
                VerdictJson::Output { content, failed, already_exists } => {
                    let status = match (failed, already_exists) {
                        (true, _) => OutputStatus::Failed,
                        (false, true) => OutputStatus::AlreadyExists,
                        (false, false) => OutputStatus::Ok,
                    };
                    Verdict::Output(ToolOutput { content, status })
                }
            };
            Command::Verdict { call, verdict }
        }
        ActionJson::RevokeGrant { grant_id } => Command::RevokeGrant { grant_id },
        ActionJson::ToolProgress { call_id, data } => Command::ToolProgress { call_id, data },
    };
    Some((id, command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{GrantDuration, GrantScope};

    #[test]
    fn every_command_reads_back_as_it_was_sent() {
        let call = PendingCall {
            path: vec!["c0".to_owned()],
            ..crate::item::ToolCall {
                call_id: "c1".to_owned(),
                name: "delete".to_owned(),
                arguments: r#"{"file":"notes"}"#.to_owned(),
            }
            .into()
        };
        let verdict = |verdict| Command::Verdict { call: call.clone(), verdict };
        let commands = [
            Command::Interrupt,
            Command::InterruptWithReason("the user left".to_owned()),
            Command::InterruptTurn,
            Command::StopAfterTurn,
            Command::Steer(vec![Item::user("left")]),
            Command::FollowUp(vec![Item::user("then"), Item::user("right")]),
            verdict(Verdict::Approve),
            verdict(Verdict::approve_always(GrantScope::SameArguments, GrantDuration::Session)),
            verdict(Verdict::ApproveAlways(
                GrantTerms::new(GrantScope::Predicate("p".to_owned()), GrantDuration::Run)
                    .with_sub_agents(),
            )),
            Command::RevokeGrant { grant_id: "a1".to_owned() },
            verdict(Verdict::deny("no")),
            verdict(Verdict::output("done")),
            verdict(Verdict::Output(ToolOutput::error("failed"))),
            Command::ToolProgress {
                call_id: "c1".to_owned(),
                data: serde_json::json!({ "done": 3 }).into(),
            },
        ];
        for command in commands {
            let json = command_to_json("id", command.clone()).unwrap();
            assert_eq!(
                command_from_json(json.as_bytes()),
                Some(("id".to_owned(), command)),
                "{json}"
            );
        }
    }

    #[test]
    fn a_stored_interrupt_has_an_optional_reason() {
        let without = r#"{"v":1,"id":"i","command":{"type":"interrupt"}}"#;
        assert_eq!(command_to_json("i", Command::Interrupt).unwrap(), without);
        assert_eq!(
            command_from_json(without.as_bytes()),
            Some(("i".to_owned(), Command::Interrupt))
        );
        let json = command_to_json("i", Command::InterruptWithReason("tea".to_owned())).unwrap();
        assert_eq!(json, r#"{"v":1,"id":"i","command":{"type":"interrupt","reason":"tea"}}"#);
        let blank = command_to_json("i", Command::InterruptWithReason(" \n".to_owned())).unwrap();
        assert_eq!(blank, without);
    }

    #[test]
    fn a_long_reason_for_an_interrupt_is_shortened_before_it_is_stored() {
        let reason = "x".repeat(1 << 20);
        let json = command_to_json("i", Command::InterruptWithReason(reason.clone())).unwrap();
        assert!(json.len() < 3_000, "{}", json.len());
        // Another program may have written the command.
        let json =
            format!(r#"{{"v":1,"id":"i","command":{{"type":"interrupt","reason":"{reason}"}}}}"#);
        let Some((_, Command::InterruptWithReason(read))) = command_from_json(json.as_bytes())
        else {
            panic!("not an interrupt");
        };
        assert!(read.len() < 3_000, "{}", read.len());
    }

    #[test]
    fn other_texts_and_later_versions_are_not_commands() {
        for text in ["", "{}", r#"{"v":2,"id":"i","command":{"type":"interrupt"}}"#] {
            assert!(command_from_json(text.as_bytes()).is_none(), "{text}");
        }
    }
}
