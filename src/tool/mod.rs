//! Tools that an agent can call, and the toolkit that runs a turn's calls.
//!
//! A [`Tool`] is an async function with a name, a description and a schema for its arguments. A
//! [`Toolkit`] contains tools and the settings for running calls to them. An
//! [`Agent`](crate::Agent) has a toolkit of its own; a hand-written loop passes each turn to
//! [`Toolkit::run`].
//!
//! ```
//! use serde_json::json;
//! use turnstream::tool::{Tool, ToolSpec};
//!
//! # fn main() -> Result<(), turnstream::Error> {
//! let schema = json!({
//!     "type": "object",
//!     "properties": { "city": { "type": "string" } },
//!     "required": ["city"],
//! });
//! let spec = ToolSpec::new("temperature", "The temperature in a city, in degrees Celsius", schema);
//! let temperature = Tool::raw(spec, |args, _cx| async move {
//!     match args["city"].as_str() {
//!         Some("Oslo") => Ok(4),
//!         _ => Err("there is no station in this city"),
//!     }
//! })?;
//! assert_eq!(temperature.name(), "temperature");
//! # Ok(())
//! # }
//! ```
//!
//! With the `schemars` feature, `Tool::new` derives the schema from the type of the arguments. With
//! the `macros` feature, [`#[tool]`](macro@crate::tool) turns a function into a tool.
//!
//! | to | use |
//! |---|---|
//! | create a tool | [`Tool`], or [`ToolHandler`] if a closure is not enough |
//! | run OpenAI's shell, patches or computer, or approve its calls to MCP servers | [`ClientTool`] |
//! | return text, JSON, images or an error | [`IntoToolOutput`], [`Json`], [`ToolOutput`], [`IntoToolError`] |
//! | report progress | [`ToolUpdate`] |
//! | get details about a call, and record what it changed | [`ToolContext`] |
//! | give tools access to a run's own values, such as its user | [`RunData`] |
//! | offer tools that change during a run | [`ToolSource`] |
//! | offer a folder of `SKILL.md` files, with the `skills` feature | `Skills` |
//! | let a model search through hundreds of tools | [`Toolkit::searchable`] |
//! | approve or deny a call, or provide its result | [`Verdict`] |
//! | decide about calls in a hand-written loop | [`ToolPolicy`], [`Permission`] |
//!
//! See the [guide](crate::guide::tools) for how calls run.
//!
//! # Limits
//!
//! These limits have no setter. [The guide](crate::guide::defaults) lists those that have one.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | nesting depth of recorded evidence, progress and provider data | 64 levels | deeper parts are stored as text |
//! | length of a search's query | 500 bytes | the call gets a result of kind `invalid_arguments` |
//! | levels of parameters whose descriptions a search reads | 4 | deeper descriptions are ignored |
//! | similar names suggested after a call to an unknown tool | 3 | |
//! | bytes of an unknown tool's name that the result repeats | 200 | the middle is cut out |
//! | JSON values in a call's arguments | 200,000 | the call gets a result of kind `invalid_arguments`, and the arguments are not parsed |
//! | JSON values in a typed answer | 200,000 | the answer is not parsed, as if its type did not match |
//! | size of the error for invalid arguments | 2 KiB | the middle is cut out |
//! | values in invalid arguments for which every error is looked for (with the feature `validate`) | 1,000 | only the first 16 elements of each list are checked |
//! | nesting depth of arguments and answers that are adapted to their schema | 128 levels | deeper values are used as the model wrote them |
//! | steps to adapt arguments or an answer to a schema | 10,000, and 8 for each byte | the JSON is used as the model wrote it |
//! | tools named when a source's tools change | 20, of 300 bytes each | the remaining tools are only counted |
//! | entries of a source's catalog in a message, and their size | 100, 32 KiB | the message only says that there are too many to list |
//! | size of an entry of a source's catalog | 5 KiB | the middle is cut out |
//! | characters of a skill's description in the list of skills | 1,024 | the rest is replaced with `…` |
//! | size of a part of a skill's file that is read at once | 48 KiB | the result contains the offset of the rest; a front matter that is longer is an error |
//! | files listed when a skill is loaded | 100, after at most 1,000 entries of folders | the list ends with `and more` |
//! | size of a field of the front matter when a skill is loaded | 4 KiB | the middle is cut out |
//! | skills returned by a search | 10 | further matches are left out |
//! | length of a search for skills | 500 bytes | the call fails |

mod handler;
mod settings;
mod tool;
mod tool_record;

mod args_schema;
#[cfg(feature = "schemars")]
mod arguments;
#[cfg(feature = "schemars")]
mod derived_spec;
mod external_tool;
mod late_bound_tool;
mod mcp_approval;
mod rationale;
mod stop_tool;
mod typed_tool;
mod with_rationale;

mod context;
mod output;
mod poll_timer;
mod run_data;
mod suspension;

mod run;
mod search;
#[cfg(feature = "skills")]
mod skills;
mod tool_policy;
mod tool_source;
mod toolkit;
mod unwrap_call;

#[cfg(feature = "schemars")]
pub use arguments::ToolArguments;
pub use context::ToolContext;
pub use handler::{PreparedCall, ToolHandler};
pub(crate) use late_bound_tool::ListTools;
pub use output::{
    IntoToolError, IntoToolOutput, IntoToolUpdates, Json, OutputStatus, ToolOutput, ToolUpdate,
    UpdateStream,
};
pub(crate) use poll_timer::{CurrentPoll, OpenPoll, PollTimer};
pub use rationale::{Rationale, Risk};
pub(crate) use run::redact_each;
pub use run::{AdmittedCall, CallJournal, CallsBegin, SavedCalls, ToolRun, ToolRunOutcome};
pub(crate) use run_data::RemainingSubAgentDepth;
pub use run_data::RunData;
pub(crate) use search::RankedTools;
pub use search::ToolSearch;
pub use settings::DEFAULT_TIMEOUT;
#[cfg(feature = "skills")]
pub use skills::{Skill, Skills};
pub use suspension::Suspension;
pub use tool::Tool;
pub(crate) use tool::validate_spec;
pub use tool_policy::{Permission, PermissionDecision, ToolPolicy, Verdict};
pub(crate) use tool_record::ToolRecord;
pub use tool_source::{CatalogEntry, ToolList, ToolSource};
pub use toolkit::Toolkit;
pub(crate) use unwrap_call::{InnerToolNames, unwrapped_call};

pub use crate::request::{ClientTool, ToolSpec, ToolSpecs};
