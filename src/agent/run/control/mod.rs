//! The state that a run shares with its handles and sub-agents.

mod control;
mod flag;
mod grants;
mod inbox;
mod mail;
mod signals;
mod tool_state;
mod usage_account;
mod verdicts;
mod work_state;

pub(in crate::agent) use control::{Control, SubAgentRun};
pub(crate) use grants::RevocationError;
pub(in crate::agent) use grants::RunGrants;
pub(in crate::agent) use inbox::DeliveryPoint;
pub(crate) use inbox::{RefusedInput, queued_bytes};
pub(in crate::agent) use usage_account::ChargedUsage;
pub(in crate::agent) use verdicts::VerdictRejection;
