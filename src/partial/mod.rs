//! Values that are shown while the model still writes them: a structured answer, or the arguments
//! of a call.
//!
//! [`PartialValues`] reads the JSON in a run's events as it arrives. It performs no I/O: apply
//! events with [`observe`](PartialValues::observe), and take what has changed with
//! [`next_partial`](PartialValues::next_partial). For a stream,
//! [`with_partials`](crate::EventStreamExt::with_partials) does both, and yields the events as well
//! as the values:
//!
//! ```
//! # #[cfg(feature = "schemars")] {
//! use std::time::Duration;
//!
//! use futures::StreamExt;
//! use turnstream::partial::{EventOrPartial, PartialState, PartialValues};
//! use turnstream::provider::{Reply, Scripted};
//! use turnstream::{Agent, EventStreamExt};
//!
//! #[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
//! struct Form {
//!     city: Option<String>,
//!     people: Option<u32>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! // The model pauses in the middle of a number.
//! let pause = Duration::from_millis(1);
//! let reply = Reply::text(r#"{"city":"Oslo","people":71"#).delay(pause).say("7710}");
//! let run = Agent::new(Scripted::new([reply])).with_output::<Form>().run("The capital of Norway?");
//!
//! let mut shown = Vec::new();
//! let mut steps = std::pin::pin!(run.with_partials(PartialValues::<Form>::of_answer()?));
//! while let Some(step) = steps.next().await {
//!     match step? {
//!         EventOrPartial::Event(event) => drop(event),
//!         EventOrPartial::Partial(form) => match form.state {
//!             PartialState::Growing(form) => shown.push(form),
//!             PartialState::Complete(form) => shown.push(form),
//!             PartialState::Retracted | PartialState::Failed(_) => shown.clear(),
//!         },
//!     }
//! }
//! assert_eq!(shown[0], Form { city: Some("Oslo".into()), people: None });
//! assert_eq!(shown[1], Form { city: Some("Oslo".into()), people: Some(717_710) });
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! # What a growing value contains
//!
//! - A string contains the text so far, never half of an escape or of a surrogate pair.
//! - A number, a literal, and a string that the schema restricts (`enum`, `const`, `format` or
//!   `pattern`) is absent until it has ended. So is a list of a fixed length, such as a tuple.
//! - A field is absent until its value has begun. Lists and objects contain the members so far.
//! - An enum with data is absent until its tag has ended, which determines the variant. The inside
//!   of the variant then grows. The tag can be a field of the object, or the name of its only
//!   field: serde's [representations] "internally tagged", "adjacently tagged" and "externally
//!   tagged". A variant with required fields is absent until they have begun. If the types of these
//!   fields do not accept an incomplete value, the variant is absent until it has ended. So is a
//!   variant of an externally or adjacently tagged enum whose inside has a required field, an
//!   untagged enum, and an enum that is flattened into a struct.
//!
//! [representations]: https://serde.rs/enum-representations.html
//!
//! Each member of a growing value is therefore equal to the member of the complete value, or begins
//! like it. A type must accept this: each field must be an `Option` or have `#[serde(default)]`,
//! at every depth. [`of_answer`](PartialValues::of_answer) and
//! [`of_calls`](PartialValues::of_calls) check the type's schema, and name the first field that is
//! required. For any JSON, use `serde_json::Value` as the type.
//!
//! # Costs
//!
//! Each byte of the JSON is read once. A value is built only when it is taken, which costs time
//! proportional to the size of the value. All deltas that have arrived by then are in the value, so
//! a slow consumer gets fewer values, and pays less. Nothing is queued: the events of a stream with
//! partials are those of the original stream, one read for each one yielded.

mod answer_text;
mod open_value;
mod parser;
mod schema;
mod values;
mod with_partials;

pub use values::{Partial, PartialState, PartialValues};
pub use with_partials::EventOrPartial;
pub(crate) use with_partials::WithPartials;
