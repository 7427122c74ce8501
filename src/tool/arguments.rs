//! The types that a tool's arguments can be deserialized into.

use std::borrow::Cow;
use std::collections::{BTreeSet, BinaryHeap, HashSet, LinkedList, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64,
};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A trait for types that a tool's arguments can be deserialized into. Such a type implements
/// [`DeserializeOwned`] and [`JsonSchema`](https://docs.rs/schemars/1/schemars/trait.JsonSchema.html),
/// and its JSON representation is an object. Use `()` for a tool without arguments.
///
/// Types that never represent a JSON object, such as numbers, strings and lists, cause a compile
/// error. The compiler reports that `MustBeAnObject` cannot be inferred (E0283). The type parameter
/// `MustBeAnObject` exists only for this check. Use a struct with one field per argument instead.
///
/// ```compile_fail,E0283
/// use turnstream::Tool;
///
/// // The JSON of a `String` is not an object. Use `struct Args { text: String }`.
/// Tool::new("shout", "Repeats a text in capitals", |text: String, _cx| async move {
///     text.to_uppercase()
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "the arguments are deserialized into this type",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for a struct with a field for each argument, or use `()` for a tool without arguments",
    note = "`Tool::typed` takes a schema of your own, and `Tool::raw` takes the arguments as `serde_json::Value`"
)]
pub trait ToolArguments<MustBeAnObject>: DeserializeOwned + JsonSchema + Send + 'static {}

/// Marks types whose JSON representation may be an object. This marker is always inferred and
/// cannot be named outside this module.
#[derive(Debug)]
pub struct MayBeAnObject;

/// Marks types whose JSON representation is never an object. A tool's arguments cannot be
/// deserialized into such types.
#[derive(Debug)]
pub struct NotAnObject;

impl<A: DeserializeOwned + JsonSchema + Send + 'static> ToolArguments<MayBeAnObject> for A {}

/// Implements [`ToolArguments`] with the marker [`NotAnObject`] for types that never represent a
/// JSON object. Each type in the macro's input is preceded by its type parameters.
macro_rules! never_an_object {
    ($([$($parameter:tt)*] $name:ty),* $(,)?) => {
        $(
            impl<$($parameter)*> ToolArguments<NotAnObject> for $name
            where
                Self: DeserializeOwned + JsonSchema + Send + 'static,
            {
            }
        )*
    };
}

never_an_object!([] bool, [] char, [] f32, [] f64);
never_an_object!([] i8, [] i16, [] i32, [] i64, [] i128, [] isize);
never_an_object!([] u8, [] u16, [] u32, [] u64, [] u128, [] usize);
never_an_object!([] NonZeroI8, [] NonZeroI16, [] NonZeroI32, [] NonZeroI64);
never_an_object!([] NonZeroU8, [] NonZeroU16, [] NonZeroU32, [] NonZeroU64);
never_an_object!([] String, [] Box<str>, [] Cow<'static, str>, [] PathBuf);
never_an_object!([] IpAddr, [] Ipv4Addr, [] Ipv6Addr);
never_an_object!([T] BinaryHeap<T>, [T] BTreeSet<T>, [T, S] HashSet<T, S>, [T] LinkedList<T>);
never_an_object!([T] Vec<T>, [T] VecDeque<T>, [T] Box<[T]>, [T, const N: usize] [T; N]);
// Tuples serialize as lists.
never_an_object!([A](A,), [A, B](A, B), [A, B, C](A, B, C), [A, B, C, D](A, B, C, D));
never_an_object!([A, B, C, D, E](A, B, C, D, E), [A, B, C, D, E, F](A, B, C, D, E, F));

impl<T: ToolArguments<NotAnObject>> ToolArguments<NotAnObject> for Box<T> where
    Self: DeserializeOwned + JsonSchema + Send + 'static
{
}

impl<T: ToolArguments<NotAnObject>> ToolArguments<NotAnObject> for Option<T> where
    Self: DeserializeOwned + JsonSchema + Send + 'static
{
}
