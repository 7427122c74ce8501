//! The macros [`#[tool]`](macro@tool) and [`#[tools]`](macro@tools), which turn functions into
//! tools of an agent.
//!
//! Do not depend on this crate: the feature `macros` of `turnstream` exports both macros.
//!
//! The macros write what can be written by hand: a struct with a field for each parameter, and
//! `Tool::new` with a closure that calls the function.

use proc_macro::TokenStream;

mod expand;
mod function;
mod settings;

#[cfg(test)]
mod tests;

/// Turns a function into a tool. The function itself stays as it is. Beside it, a function with the
/// same visibility, whose name ends in `_tool`, returns the tool.
///
/// ```
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::ToolContext;
/// use turnstream::{Agent, tool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(rename_all = "lowercase")]
/// enum Unit {
///     Celsius,
///     Fahrenheit,
/// }
///
/// /// Returns the temperature of a place.
/// #[tool(idempotent, timeout = std::time::Duration::from_secs(5))]
/// async fn temperature(
///     /// A city, such as `Oslo`.
///     place: String,
///     #[default = Unit::Celsius] unit: Unit,
///     cx: &ToolContext,
/// ) -> Result<String, std::io::Error> {
///     let degrees = match unit {
///         Unit::Celsius => "4 °C",
///         Unit::Fahrenheit => "39 °F",
///     };
///     Ok(format!("{degrees} in {place}, in answer to {}", cx.call_id()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let tool = temperature_tool();
/// assert_eq!(tool.spec().description, "Returns the temperature of a place.");
/// assert_eq!(tool.spec().parameters.to_value()["required"], serde_json::json!(["place"]));
///
/// let call = Reply::new().call("temperature", serde_json::json!({ "place": "Oslo" }));
/// let model = Scripted::new([call, Reply::text("It is cold.")]);
/// let outcome = Agent::new(model).with_tool(tool).run("How cold is it?").outcome().await;
/// assert_eq!(outcome.text, "It is cold.");
/// # }
/// ```
///
/// - The doc comment of the function is the description of the tool, and the doc comment of a
///   parameter is its description. Both tell the model how to use the tool.
/// - The type of a parameter implements `serde::Deserialize` and `schemars::JsonSchema`, and is not
///   a reference. A parameter is optional if it is an `Option`, or if it has `#[default]` for the
///   value of `Default`, or `#[default = …]` for the value of an expression. A text literal is
///   converted with `Into`. The attributes `#[serde(…)]` and `#[schemars(…)]` are allowed on a
///   parameter as on the field of a struct.
/// - A parameter of the type `ToolContext` or `&ToolContext` is the context of the call, which the
///   model does not see. The macro recognizes the type by this name.
/// - The function may be `async`. It returns text, a number, content, `Json` of another type, or a
///   `Result` of these: what `IntoToolOutput` is implemented for. It may also return a stream of
///   updates, as a closure of `Tool::new` may.
/// - `turnstream` is a dependency of the crate, under this name. `use turnstream::tool` also
///   imports the module `tool`: where another module has this name, write `#[turnstream::tool]`.
///
/// # Settings
///
/// | setting | effect |
/// |---|---|
/// | `name = "…"` | the name of the tool, by default that of the function |
/// | `timeout = …` | the limit of a call, a `Duration` (`Tool::with_timeout`) |
/// | `dry_run_support` | `Tool::with_dry_run_support` |
/// | `exclusive` | `Tool::exclusive` |
/// | `idempotent` | `Tool::idempotent` |
/// | `pollable` | `Tool::pollable` |
/// | `rationale` | `Tool::with_rationale` |
/// | `requires_approval` | `Tool::requires_approval` |
/// | `running_sub_agents` | `Tool::running_sub_agents` |
/// | `strict` | `Tool::strict` |
///
/// # Compile errors
///
/// A function cannot be a tool if it has no doc comment, a name that vendors refuse, type
/// parameters, two contexts, a parameter that is a reference or a pattern, or an output that is a
/// reference. It is not `const`, `unsafe` or `extern`. A function inside an `impl` block without
/// `self` cannot be a tool either.
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(settings.into(), item.into()).into_tokens().into()
}

/// Turns methods of a type into tools that share a value of this type. A method with `#[tool]`,
/// which has the same settings as [the macro for functions](macro@tool), takes `&self`. The macro
/// adds the public method `fn tools(self: Arc<Self>) -> Vec<Tool>`, which returns a tool for each
/// of these methods, in their order. Other methods stay as they are, and parameters have doc
/// comments and attributes as those of a function have.
///
/// ```
/// use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
/// use turnstream::{Toolkit, tools};
///
/// #[derive(Default)]
/// struct Notes(Mutex<Vec<String>>);
///
/// #[tools]
/// impl Notes {
///     /// Keeps a note.
///     #[tool]
///     async fn keep(&self, text: String) {
///         self.lock().push(text);
///     }
///
///     /// Returns the notes that contain a word.
///     #[tool(idempotent)]
///     async fn find(&self, #[default] word: String) -> String {
///         self.lock().iter().filter(|note| note.contains(&word)).cloned().collect()
///     }
///
///     /// A tool that panics fails its own call only, so the lock of a failed call is taken over.
///     fn lock(&self) -> MutexGuard<'_, Vec<String>> {
///         self.0.lock().unwrap_or_else(PoisonError::into_inner)
///     }
/// }
///
/// let notes = Arc::new(Notes::default());
/// let toolkit = Toolkit::new(Arc::clone(&notes).tools());
/// assert!(toolkit.get("find").is_some());
/// ```
///
/// `#[tool]` on a method needs no import. The type is `Send`, `Sync` and `'static`, as calls may
/// run at the same time, and on another thread. It has no type parameters, and one block with
/// `#[tools]`.
///
/// # Compile errors
///
/// A block needs at least one tool. A tool of a block does not take `&mut self`, `self` by value,
/// or no `self`.
#[proc_macro_attribute]
pub fn tools(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand::tools(&settings.into(), item.into()).into_tokens().into()
}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
