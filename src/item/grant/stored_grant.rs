//! The JSON format for grants. Later versions of the crate may extend the format, but must not
//! change or remove any part of it.

use serde::{Deserialize, Serialize};

use crate::item::{Grant, GrantTerms};

/// The version of the JSON format. Readers reject later versions.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
pub(super) struct StoredGrant {
    v: u32,
    id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agent_path: Vec<String>,
    tool: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    source: String,
    definition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    #[serde(flatten)]
    terms: GrantTerms,
}

impl From<Grant> for StoredGrant {
    fn from(grant: Grant) -> Self {
        let Grant { id, agent_path, tool, source, definition, arguments, terms } = grant;
        Self { v: VERSION, id, agent_path, tool, source, definition, arguments, terms }
    }
}

impl TryFrom<StoredGrant> for Grant {
    type Error = String;

    fn try_from(stored: StoredGrant) -> Result<Self, String> {
        let StoredGrant { v, id, agent_path, tool, source, definition, arguments, terms } = stored;
        match v <= VERSION {
            true => Ok(Self { id, agent_path, tool, source, definition, arguments, terms }),
            false => Err(format!("the grant was stored by a later version ({v})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grant with all fields, and one without those that may be absent.
    const STORED: [&str; 2] = [
        r#"{"v":1,"id":"a1","agent_path":["clean"],"tool":"rm","source":"files","definition":"d","arguments":"{\"f\":1}","scope":"same_arguments","duration":"until_revoked","includes_sub_agents":true}"#,
        r#"{"v":1,"id":"a2","tool":"rm","definition":"d","scope":{"predicate":"small"},"duration":"run"}"#,
    ];

    #[test]
    fn stored_grants_are_read_and_written_in_the_same_form() {
        for stored in STORED {
            let grant: Grant = serde_json::from_str(stored).unwrap();
            assert_eq!(serde_json::to_string(&grant).unwrap(), stored);
        }
    }

    #[test]
    fn a_grant_of_a_later_version_and_an_unknown_scope_are_refused() {
        let later = STORED[1].replace(r#""v":1"#, r#""v":2"#);
        let error = serde_json::from_str::<Grant>(&later).unwrap_err();
        assert_eq!(error.to_string(), "the grant was stored by a later version (2)");
        let unknown = STORED[1].replace(r#"{"predicate":"small"}"#, r#""everything""#);
        assert!(serde_json::from_str::<Grant>(&unknown).is_err());
    }
}
