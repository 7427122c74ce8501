//! Several calls in one: a wrapper that models write now and then though nobody declared it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The names under which the wrapper was seen.
const NAMES: &[&str] = &["parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"];

/// Whether a call of this name may be the wrapper: no declared tool has the name.
pub(super) fn may_be_wrapper(name: &str, declared: &[String]) -> bool {
    NAMES.contains(&name) && !declared.is_empty() && !declared.iter().any(|tool| tool == name)
}

/// A call inside the wrapper.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inner {
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Deserialize)]
struct Wrapper<'a> {
    #[serde(borrow)]
    tool_uses: Vec<Use<'a>>,
}

#[derive(Deserialize)]
struct Use<'a> {
    recipient_name: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
}

/// The calls inside the wrapper: all of them calls of declared tools with an object as arguments,
/// or none.
pub(super) fn expanded(arguments: &str, declared: &[String]) -> Option<Vec<Inner>> {
    let wrapper: Wrapper<'_> = serde_json::from_str(arguments).ok()?;
    let inner = |one: &Use<'_>| {
        let name = &one.recipient_name;
        let name = name.strip_prefix("functions.").unwrap_or(name);
        let arguments = one.parameters.get();
        let fits = arguments.starts_with('{') && declared.iter().any(|tool| tool == name);
        fits.then(|| Inner { name: name.to_owned(), arguments: arguments.to_owned() })
    };
    let all: Option<Vec<Inner>> = wrapper.tool_uses.iter().map(inner).collect();
    all.filter(|all| !all.is_empty())
}
