//! A standing permission.

use serde::{Deserialize, Serialize};

use crate::item::{GrantScope, GrantTerms, PendingCall, is_same_json};

/// A standing permission to call a tool without asking for an approval.
///
/// A grant is given with a verdict, [`Verdict::ApproveAlways`], and is bound to the tool as the
/// approver saw it. A call to a tool that has another definition or comes from another source
/// needs an approval, even if the tool's name is the same.
///
/// A grant answers the question whether a call is approved. It is looked up only after hooks and
/// policies have been asked, so it never allows a call that one of them denies. A grant that was
/// given for a call of a sub-agent holds for later runs of this sub-agent, and never for the agents
/// above it.
///
/// Grants are data. An application can list the grants of a [run](crate::RunHandle::grants) and of
/// a [session](crate::session::Session::grants), store them, and pass them to later runs. Their
/// JSON has a version, and readers reject later versions.
///
/// ```
/// use serde_json::json;
/// use turnstream::item::{GrantDuration, GrantScope};
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolSpec, Verdict};
/// use turnstream::{Agent, Error, History};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let spec = ToolSpec::new("post", "Posts a message", json!({ "type": "object", "properties": {} }));
/// let post = Tool::raw(spec, |_args, _cx| async { "posted" })?.requires_approval();
/// let model = Scripted::from_fn(|_request, n| match n % 2 {
///     0 => Reply::new().call("post", json!({ "n": n })),
///     _ => Reply::text("Posted."),
/// });
/// let agent = Agent::new(model).with_tool(post);
///
/// // The user answers the first question with "yes, and always".
/// let outcome = agent.run("Post this").outcome().await;
/// let always = Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::UntilRevoked);
/// let verdicts = [(outcome.pending[0].clone(), always)];
/// let run = agent.resume(outcome.history, verdicts)?;
/// let handle = run.handle();
/// run.outcome().await;
/// let stored = serde_json::to_string(&handle.grants()).expect("grants are JSON");
///
/// // Another conversation: the call runs without a question.
/// let grants: Vec<turnstream::item::Grant> = serde_json::from_str(&stored).expect("it is stored");
/// let run = agent.run_from(History::empty("other"), "Post that").with_grants(grants);
/// assert_eq!(run.outcome().await.text, "Posted.");
/// # Ok(())
/// # }
/// ```
///
/// [`Verdict::ApproveAlways`]: crate::tool::Verdict::ApproveAlways
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredGrant", into = "StoredGrant")]
pub struct Grant {
    /// The id of the grant: the [id of the request](PendingCall::approval_id) that was answered
    /// with the grant.
    pub id: String,
    /// The names of the tools that lead to the agent to which the grant belongs, from the outermost
    /// sub-agent to the sub-agent that made the approved call. The list is empty if the agent is
    /// not a sub-agent.
    pub agent_path: Vec<String>,
    /// The name of the tool. If the call was made through a tool that calls another one, as in
    /// [tool search](crate::tool::ToolSearch), this is the name of the inner tool.
    pub tool: String,
    /// The name of the [source](crate::tool::ToolSource) of the tool, or an empty string if the
    /// tool is one of the agent's own tools.
    pub source: String,
    /// The [definition](PendingCall::definition) of the tool.
    pub definition: String,
    /// The arguments of the approved call, as a JSON string, if the scope is
    /// [`SameArguments`](GrantScope::SameArguments).
    pub arguments: Option<String>,
    /// The calls that the grant allows, and for how long.
    pub terms: GrantTerms,
}

impl Grant {
    /// Creates the grant that an approver has given with the verdict on `call`. `source` is the
    /// name of the source of the call's tool, or an empty string.
    ///
    /// The id is the call's [approval id](PendingCall::approval_id), and the
    /// [`agent_path`](Self::agent_path) is empty.
    pub fn new(call: &PendingCall, source: impl Into<String>, terms: GrantTerms) -> Self {
        let is_bound = terms.scope == GrantScope::SameArguments;
        Self {
            id: call.approval_id.clone(),
            agent_path: Vec::new(),
            tool: call.name.clone(),
            source: source.into(),
            definition: call.definition.clone(),
            arguments: is_bound.then(|| call.arguments.clone()),
            terms,
        }
    }

    /// Returns whether the grant belongs to the agent at this path, or to an agent above it whose
    /// grant includes its sub-agents.
    pub(crate) fn holds_for_agent(&self, agent_path: &[String]) -> bool {
        match self.terms.includes_sub_agents {
            true => agent_path.starts_with(&self.agent_path),
            false => agent_path == self.agent_path,
        }
    }

    /// Returns whether the grant is for the tool that `call` calls and for the call's arguments.
    /// `holds` returns whether the predicate with a name holds for the call.
    pub(crate) fn covers(
        &self,
        call: &PendingCall,
        source: &str,
        holds: impl FnOnce(&str) -> bool,
    ) -> bool {
        let is_same_tool = self.tool == call.name
            && self.source == source
            && self.definition == call.definition
            && !self.definition.is_empty();
        is_same_tool
            && match &self.terms.scope {
                GrantScope::AnyArguments => true,
                GrantScope::SameArguments => (self.arguments.as_ref())
                    .is_some_and(|known| is_same_json(known, &call.arguments)),
                GrantScope::Predicate(name) => holds(name),
            }
    }
}

/// The version of the JSON format. Later versions of the crate may extend the format, but must not
/// change or remove any part of it. Readers reject later versions.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct StoredGrant {
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
    use crate::item::GrantDuration;

    fn call(arguments: &str) -> PendingCall {
        let json = serde_json::json!({ "approval_id": "a", "call_id": "c", "name": "t",
            "arguments": arguments, "definition": "d" });
        serde_json::from_value(json).unwrap()
    }

    fn grant(scope: GrantScope) -> Grant {
        let terms = GrantTerms::new(scope, GrantDuration::Run);
        Grant::new(&call(r#"{"a":1,"b":[true]}"#), "s", terms)
    }

    #[test]
    fn a_grant_covers_only_calls_to_the_same_definition_from_the_same_source() {
        let grant = grant(GrantScope::AnyArguments);
        let covers = |call: PendingCall, source| grant.covers(&call, source, |_| false);
        assert!(covers(call("{}"), "s"));
        assert!(!covers(call("{}"), ""));
        assert!(!covers(PendingCall { name: "u".into(), ..call("{}") }, "s"));
        assert!(!covers(PendingCall { definition: "e".into(), ..call("{}") }, "s"));
        // A grant on a call whose definition is unknown covers nothing.
        let unknown = Grant { definition: String::new(), ..grant.clone() };
        let same = PendingCall { definition: String::new(), ..call("{}") };
        assert!(!unknown.covers(&same, "s", |_| true));
    }

    #[test]
    fn a_scope_limits_the_arguments() {
        let covers = |scope, arguments| grant(scope).covers(&call(arguments), "s", |it| it == "p");
        assert!(covers(GrantScope::SameArguments, r#"{ "b": [true], "a": 1.0 }"#));
        assert!(!covers(GrantScope::SameArguments, r#"{"a":2,"b":[true]}"#));
        assert!(covers(GrantScope::Predicate("p".into()), "{}"));
        assert!(!covers(GrantScope::Predicate("q".into()), "{}"));
    }

    #[test]
    fn a_grant_never_holds_for_the_agents_above_and_includes_those_below_only_if_it_says_so() {
        let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let own = Grant { agent_path: path(&["a"]), ..grant(GrantScope::AnyArguments) };
        let with_sub_agents = Grant { terms: own.terms.clone().with_sub_agents(), ..own.clone() };
        for (names, of_own, of_both) in [
            (&[][..], false, false),
            (&["a"], true, true),
            (&["a", "b"], false, true),
            (&["b"], false, false),
            (&["b", "a"], false, false),
        ] {
            assert_eq!(own.holds_for_agent(&path(names)), of_own, "{names:?}");
            assert_eq!(with_sub_agents.holds_for_agent(&path(names)), of_both, "{names:?}");
        }
    }

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
