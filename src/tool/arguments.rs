//! What the arguments of a tool can be read into.

use std::collections::{BTreeSet, HashSet, VecDeque};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A type that the arguments of a tool can be read into: anything that is [`DeserializeOwned`] and
/// [`JsonSchema`], and whose JSON is an object; `()` for a tool without arguments.
///
/// Types that are never a JSON object, such as numbers, texts and lists, have a second implementation:
/// then `Shape` cannot be inferred, and a tool of such a type does not compile. The parameter has no
/// other use.
///
/// ```compile_fail,E0283
/// use turnstream::Tool;
///
/// // A text is not an object: `struct Args { text: String }` is.
/// Tool::new("shout", "Repeats a text in capitals", |text: String, _cx| async move {
///     text.to_uppercase()
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "the arguments are read into this type",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for a struct with a field for each argument, or use `()` for a tool without arguments",
    note = "`Tool::typed` takes a schema of your own, and `Tool::raw` takes the arguments as `serde_json::Value`"
)]
pub trait ToolArguments<Shape>: DeserializeOwned + JsonSchema + Send + 'static {}

/// The shape of every type.
#[derive(Debug)]
pub struct Anything;

/// The second shape of a type that is never a JSON object, and so never the arguments of a tool.
#[derive(Debug)]
pub struct NeverAnObject;

impl<A: DeserializeOwned + JsonSchema + Send + 'static> ToolArguments<Anything> for A {}

/// Types that are never a JSON object.
macro_rules! never_an_object {
    ($($name:ty),* $(,)?) => {
        $(impl ToolArguments<NeverAnObject> for $name {})*
    };
}

never_an_object!(
    bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64, String
);

/// Collections of what can be read.
macro_rules! never_an_object_of {
    ($($name:ident),* $(,)?) => {
        $(
            impl<T> ToolArguments<NeverAnObject> for $name<T>
            where
                Self: DeserializeOwned + JsonSchema + Send + 'static,
            {
            }
        )*
    };
}

never_an_object_of!(BTreeSet, Vec, VecDeque);

impl<T, S> ToolArguments<NeverAnObject> for HashSet<T, S> where
    Self: DeserializeOwned + JsonSchema + Send + 'static
{
}

/// Tuples are lists.
macro_rules! never_an_object_in_a_tuple {
    ($(($($name:ident),*)),* $(,)?) => {
        $(
            impl<$($name),*> ToolArguments<NeverAnObject> for ($($name,)*)
            where
                Self: DeserializeOwned + JsonSchema + Send + 'static,
            {
            }
        )*
    };
}

never_an_object_in_a_tuple!((A), (A, B), (A, B, C), (A, B, C, D));
