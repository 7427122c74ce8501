//! A serializable record of a tool.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::ToolSpec;
use crate::tool::Tool;
use crate::tool::settings::{ToolFlag, ToolSettings};

/// A tool's spec and settings: everything in the tool except the code that runs its calls.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate field in a recording")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolRecord {
    pub(super) spec: ToolSpec,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    requires_approval: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    supports_dry_run: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    external: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) runs_sub_agents: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    idempotent: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pollable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<Arc<str>>,
}

impl From<&Tool> for ToolRecord {
    fn from(tool: &Tool) -> Self {
        Self {
            spec: tool.spec().clone(),
            exclusive: tool.is_exclusive(),
            requires_approval: tool.is_approval_required(),
            supports_dry_run: tool.supports_dry_run(),
            external: tool.is_external(),
            runs_sub_agents: tool.runs_sub_agents(),
            idempotent: tool.is_idempotent(),
            pollable: tool.is_pollable(),
            timeout: tool.timeout(),
            fingerprint: tool.fingerprint.clone(),
        }
    }
}

impl ToolRecord {
    /// Returns the tool's settings.
    pub(super) fn settings(&self) -> ToolSettings {
        let flags = [
            (ToolFlag::Exclusive, self.exclusive),
            (ToolFlag::RequiresApproval, self.requires_approval),
            (ToolFlag::SupportsDryRun, self.supports_dry_run),
            (ToolFlag::External, self.external),
            (ToolFlag::RunsSubAgents, self.runs_sub_agents),
            (ToolFlag::Idempotent, self.idempotent),
            (ToolFlag::Pollable, self.pollable),
        ];
        let mut settings = ToolSettings::default();
        settings.timeout = self.timeout;
        for (flag, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            settings.set_flag(flag);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::Timeouts;

    type Setter = fn(Tool) -> Tool;

    fn plain() -> Tool {
        let spec = ToolSpec::new("t", "d", json!({ "type": "object" }));
        Tool::raw(spec, |_, _| async { "fine" }).unwrap()
    }

    #[test]
    fn every_setting_of_a_tool_survives_json() {
        let setters: [Setter; 8] = [
            Tool::exclusive,
            Tool::requires_approval,
            Tool::with_dry_run_support,
            |tool| tool.with_flag(ToolFlag::External),
            Tool::running_sub_agents,
            Tool::idempotent,
            Tool::pollable,
            |tool| tool.with_timeout(Timeouts::NEVER),
        ];
        for set in setters {
            let tool = set(plain());
            let record = ToolRecord::from(&tool);
            let json = serde_json::to_string(&record).unwrap();
            let read: ToolRecord = serde_json::from_str(&json).unwrap();
            assert_eq!(read, record, "{json}");
            assert_eq!(read.settings(), tool.settings, "{json}");
            assert_ne!(read.settings(), plain().settings, "{json}");
        }
    }

    #[test]
    fn a_default_setting_is_absent_from_json() {
        let json = serde_json::to_value(ToolRecord::from(&plain())).unwrap();
        let spec = json!({ "name": "t", "description": "d", "parameters": { "type": "object" } });
        assert_eq!(json, json!({ "spec": spec }));
    }
}
