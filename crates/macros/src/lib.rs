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

/// Turns a function into a tool. The function itself stays as it is, and a function with the same
/// visibility, whose name ends in `_tool`, returns the tool.
///
/// ```
/// use turnstream::tool;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(rename_all = "lowercase")]
/// enum Unit { Celsius, Fahrenheit }
///
/// /// Returns the temperature of a place.
/// #[tool(idempotent)]
/// async fn temperature(
///     /// A city, such as `Oslo`.
///     place: String,
///     #[default = Unit::Celsius] unit: Unit,
/// ) -> String {
///     match unit {
///         Unit::Celsius => format!("It is 4 °C in {place}."),
///         Unit::Fahrenheit => format!("It is 39 °F in {place}."),
///     }
/// }
///
/// let tool = temperature_tool();
/// assert_eq!(tool.spec().description, "Returns the temperature of a place.");
/// assert_eq!(tool.spec().parameters.to_value()["required"], serde_json::json!(["place"]));
/// assert!(tool.is_idempotent());
/// ```
///
/// - The doc comment of the function is the description of the tool, and the doc comment of a
///   parameter is its description. Both tell the model how to use the tool.
/// - The type of a parameter implements `serde::Deserialize` and `schemars::JsonSchema`, and is not
///   a reference. A parameter is optional if it is an `Option`, or if it has `#[default]` for the
///   value of `Default`, or `#[default = …]` for another value. The attributes `#[serde(…)]` and
///   `#[schemars(…)]` are allowed on a parameter as on the field of a struct.
/// - A parameter of the type `ToolContext` or `&ToolContext` is the context of the call, which the
///   model does not see.
/// - The function may be `async`. Its output is one that a closure of `Tool::new` may return.
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
///
/// # Errors
///
/// A function does not compile as a tool if it has no doc comment, a name that vendors refuse, type
/// parameters, two contexts, or a parameter that is a reference or a pattern.
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::tool(settings.into(), item.into()))
}

/// Turns methods of a type into tools that share a value of this type. A method with `#[tool]`,
/// which has the same settings as [the macro for functions](macro@tool), takes `&self`. The macro
/// adds the method `tools`, which takes an `Arc` of the value and returns a tool for each of these
/// methods, in their order.
///
/// ```
/// use std::sync::{Arc, Mutex};
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
///         self.0.lock().unwrap().push(text);
///     }
///
///     /// Returns the notes that contain a word.
///     #[tool(idempotent)]
///     async fn find(&self, #[default] word: String) -> String {
///         let notes = self.0.lock().unwrap();
///         notes.iter().filter(|note| note.contains(&word)).cloned().collect()
///     }
/// }
///
/// let notes = Arc::new(Notes::default());
/// let toolkit = Toolkit::new(Arc::clone(&notes).tools());
/// assert!(toolkit.get("find").is_some());
/// ```
///
/// The type is `Send`, `Sync` and `'static`, as calls may run at the same time, and on another
/// thread. It has no type parameters.
///
/// # Errors
///
/// A block without a tool does not compile, nor does a tool that takes no `self`, or takes it by
/// value or as `&mut self`.
#[proc_macro_attribute]
pub fn tools(settings: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::tools(&settings.into(), item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
