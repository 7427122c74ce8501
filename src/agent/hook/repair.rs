//! Hooks that repair the arguments of a call.

use std::any::type_name;
use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::agent::State;
use crate::agent::hook::Hook;
use crate::item::ToolCall;

/// A hook of its [`repair`](Hook::repair) alone: the closure gets a call whose arguments do not fit
/// and why, and gives other arguments, or `None`.
///
/// The hook is named after the closure's place in the code.
///
/// ```
/// use futures::future::ready;
/// use serde_json::json;
/// use turnstream::Agent;
/// use turnstream::agent::hook;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolSpec};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// // This model writes `True` where JSON has `true`.
/// let python = hook::repair(|call, _why| Some(call.arguments.replace("True", "true")));
///
/// let model = Scripted::new([
///     Reply::new().call_raw("c1", "light", r#"{"on": True}"#),
///     Reply::text("It is on."),
/// ]);
/// let spec = ToolSpec {
///     name: "light".into(),
///     description: "Turns the light on or off".into(),
///     parameters: json!({ "type": "object", "required": ["on"] }),
/// };
/// let light = Tool::raw(spec, |args, _cx| ready(args["on"].to_string()))?;
/// let outcome = Agent::new(model).with_tools([light]).with_hook(python).run("On").outcome().await;
///
/// // The tool ran with the repaired arguments; the history has what the model wrote.
/// let [_, call, result, _] = outcome.new_items() else { panic!() };
/// assert_eq!(call.as_tool_call().unwrap().arguments, r#"{"on": True}"#);
/// assert_eq!(result.as_tool_result().unwrap().content.text(), "true");
/// # Ok(())
/// # }
/// ```
pub fn repair<F>(f: F) -> impl Hook + 'static
where
    F: Fn(&ToolCall, &str) -> Option<String> + Send + Sync + 'static,
{
    struct Closure<F>(F);

    impl<F> Hook for Closure<F>
    where
        F: Fn(&ToolCall, &str) -> Option<String> + Send + Sync + 'static,
    {
        fn name(&self) -> Cow<'_, str> {
            Cow::Borrowed(type_name::<F>())
        }

        fn repair(&self, _: &State, call: &ToolCall, why: &str) -> Option<String> {
            (self.0)(call, why)
        }
    }

    Closure(f)
}

/// A hook that repairs arguments which are a JSON string with an object in it, however often they
/// are wrapped: of `"{\"n\":1}"` it makes `{"n":1}`. Some models and gateways encode them twice.
///
/// Everything else is left alone: other strings, lists, and an object whose fields are strings.
///
/// ```
/// use turnstream::agent::State;
/// use turnstream::agent::hook::{self, Hook};
/// use turnstream::item::{History, ToolCall};
///
/// let unwrapping = hook::unwrap_json_string();
/// let state = State::new(History::with_id("h"));
/// let mut call = ToolCall {
///     call_id: "c1".into(),
///     name: "add".into(),
///     arguments: r#""{\"n\":1}""#.into(),
/// };
/// assert_eq!(unwrapping.repair(&state, &call, "not a JSON object").unwrap(), r#"{"n":1}"#);
///
/// call.arguments = r#""n is 1""#.into();
/// assert_eq!(unwrapping.repair(&state, &call, "not a JSON object"), None);
/// ```
pub fn unwrap_json_string() -> impl Hook + 'static {
    repair(|call, _| unwrapped(&call.arguments))
}

fn unwrapped(arguments: &str) -> Option<String> {
    let mut inner: String = serde_json::from_str(arguments).ok()?;
    // Each string is shorter than the one that it was in.
    while let Ok(deeper) = serde_json::from_str(&inner) {
        inner = deeper;
    }
    let is_object = inner.trim_start().starts_with('{');
    (is_object && serde_json::from_str::<IgnoredAny>(&inner).is_ok()).then_some(inner)
}
