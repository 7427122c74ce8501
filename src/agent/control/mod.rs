//! The state that a run shares with its handles and sub-agents.

mod control;
mod flag;
mod inbox;
mod signals;
mod tool_state;
mod usage_account;
mod verdicts;
mod work_state;

pub(super) use control::{Control, SubAgentRun};
pub(super) use inbox::DeliveryPoint;
pub(crate) use inbox::{RefusedInput, queued_bytes};
pub(super) use usage_account::ChargedUsage;
pub(super) use verdicts::VerdictRejection;
