//! The types that a tool's arguments can be deserialized into.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A trait for types that a tool's arguments can be deserialized into. It is implemented for each
/// type that implements [`DeserializeOwned`] and
/// [`JsonSchema`](https://docs.rs/schemars/1/schemars/trait.JsonSchema.html). Use `()` for a tool
/// without arguments.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "the arguments are deserialized into this type",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for a struct with a field for each argument, or use `()` for a tool without arguments",
    note = "`Tool::raw` takes a schema of your own, and the arguments as `serde_json::Value`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<A: DeserializeOwned + JsonSchema + Send + 'static> ToolArguments for A {}
