//! The calls that a standing permission allows, and for how long.

use serde::{Deserialize, Serialize};

/// The calls that an approver allows from now on, in addition to the call that is approved. A
/// [`Verdict::ApproveAlways`](crate::tool::Verdict::ApproveAlways) contains the terms, and the run
/// makes them a [`Grant`](crate::item::Grant) for the tool of the approved call.
///
/// ```
/// use turnstream::item::{GrantDuration, GrantScope, GrantTerms};
///
/// let terms = GrantTerms::new(GrantScope::SameArguments, GrantDuration::Session);
/// let json = r#"{"scope":"same_arguments","duration":"session"}"#;
/// assert_eq!(serde_json::to_string(&terms)?, json);
/// assert_eq!(serde_json::from_str::<GrantTerms>(json)?, terms);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The calls to the tool that are allowed.
    pub scope: GrantScope,
    /// How long they are allowed.
    pub duration: GrantDuration,
    /// Whether the sub-agents of the agent that made the approved call, and their sub-agents, are
    /// also allowed to call the tool. They must have the same tool: one of the same name and
    /// definition, from a source of the same name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub includes_sub_agents: bool,
}

/// The calls to a tool that a [`Grant`](crate::item::Grant) allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    /// All calls to the tool.
    AnyArguments,
    /// The calls with the arguments of the approved call. Arguments are compared as JSON values:
    /// the order of an object's fields, white space and the notation of a number are irrelevant.
    /// Arguments in which an object has two fields of the same name differ from all other
    /// arguments.
    SameArguments,
    /// The calls for whose arguments the predicate with this name returns `true`. The agent that
    /// makes the call must [have](crate::Agent::with_grant_predicate) the predicate. Otherwise, the
    /// call needs an approval.
    Predicate(String),
}

/// How long a [`Grant`](crate::item::Grant) allows calls, unless it is revoked earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantDuration {
    /// Until the end of the run. A run that ends with the reason `pending` has ended: the run that
    /// resumes its calls does not have the grant.
    Run,
    /// Until the end of the session. A [`Session`](crate::session::Session) stores the grant, and
    /// gives it to each of its later runs.
    Session,
    /// Until it is revoked, in all sessions that the application gives the grant. The application
    /// stores the grant and passes it to each run with
    /// [`Run::with_grants`](crate::Run::with_grants). To revoke it, the application forgets it.
    UntilRevoked,
}

impl GrantTerms {
    /// Creates the terms of a grant with this scope and duration, which does not cover the calls of
    /// sub-agents.
    pub fn new(scope: GrantScope, duration: GrantDuration) -> Self {
        Self { scope, duration, includes_sub_agents: false }
    }

    /// Returns the terms with [`includes_sub_agents`](Self::includes_sub_agents) set.
    pub fn with_sub_agents(self) -> Self {
        Self { includes_sub_agents: true, ..self }
    }
}
