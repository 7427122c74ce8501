//! Tools created from closures.

use std::sync::Arc;

use futures::future::{IntoStream, Map};
use futures::stream;
use futures::{FutureExt, Stream, StreamExt};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::item::model_json;
#[cfg(feature = "schemars")]
use crate::tool::ToolArguments;
#[cfg(feature = "schemars")]
use crate::tool::derived_spec::derive_spec;
use crate::tool::{IntoToolOutput, PreparedCall, Tool, ToolContext, ToolSpec, ToolUpdate};
use crate::tool::{args_schema, validate_spec};

impl Tool {
    /// Creates a tool from an async closure. The schema is derived from the closure's argument
    /// type, which can be a struct with one field per argument, or `()` for a tool without
    /// arguments. It can also be an enum. If the JSON of a variant is not an object, as for a
    /// variant without fields, the model writes the arguments in a field named `value`, because
    /// vendors require arguments to be an object.
    ///
    /// The closure receives the arguments and a [`ToolContext`], and returns a future. The
    /// arguments are deserialized with serde. For an integer, `5.0` is accepted, and for an optional
    /// field, including one with `#[serde(default)]`, `null`. If the arguments do not match the
    /// type, the closure does not run, and the model receives an error that contains the path to
    /// the mismatch. The
    /// output of the returned future becomes the call's result. [`IntoToolOutput`] lists the
    /// supported output types, and [`Json`](crate::tool::Json) wraps any other type that implements
    /// `Serialize`.
    ///
    /// ```
    /// use turnstream::Tool;
    ///
    /// let now = Tool::new("now", "The seconds since 1970", |(), _cx| async {
    ///     std::time::SystemTime::UNIX_EPOCH.elapsed().map(|since| since.as_secs())
    /// });
    /// assert_eq!(now.spec().parameters.to_value()["type"], "object");
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Count {
    ///     path: String,
    /// }
    ///
    /// let count = Tool::new("count", "Counts the lines of a file", |args: Count, _cx| async move {
    ///     // `?` does not determine the error type, so the last line names it.
    ///     let text = std::fs::read_to_string(args.path)?;
    ///     Ok::<_, std::io::Error>(text.lines().count())
    /// });
    /// # drop(count);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the name is invalid (valid names consist of 1 to 64 letters, digits, `_` and `-`).
    /// This is a programming error, since names are known when the program is written. Types that
    /// never represent an object, such as `String`, cause a compile error.
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn new<A, MustBeAnObject, F, Fut, R>(name: &str, description: &str, run: F) -> Self
    where
        A: ToolArguments<MustBeAnObject>,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::streaming(name, description, into_update_stream_fn(run))
    }

    /// Creates a tool from an async closure that shares state with the program. Each call receives
    /// a clone of the state. The state should be cheap to clone, such as an [`Arc`], a connection
    /// pool or a channel.
    ///
    /// A closure passed to [`Tool::new`] must itself clone any captured state before its `async
    /// move` block. `stateful` clones the state for each call. For values that belong to a single
    /// run, use [`Run::with_data`](crate::Run::with_data).
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use turnstream::Tool;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Note {
    ///     text: String,
    /// }
    ///
    /// let notes = Arc::new(Mutex::new(Vec::new()));
    /// let note = Tool::stateful("note", "Keeps a note", notes, |notes, note: Note, _cx| async move {
    ///     notes.lock().unwrap().push(note.text);
    /// });
    /// # drop(note);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Tool::new`].
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn stateful<S, A, MustBeAnObject, F, Fut, R>(
        name: &str,
        description: &str,
        state: S,
        run: F,
    ) -> Self
    where
        S: Clone + Send + Sync + 'static,
        A: ToolArguments<MustBeAnObject>,
        F: Fn(S, A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::new(name, description, move |args, cx| run(state.clone(), args, cx))
    }

    /// Creates a tool from a closure that returns a stream of [`ToolUpdate`]s.
    ///
    /// ```
    /// use futures::stream;
    /// use turnstream::tool::{Tool, ToolUpdate};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Count {
    ///     to: u32,
    /// }
    ///
    /// let count = Tool::streaming("count", "Counts", |args: Count, _cx| {
    ///     let progress = (1..=args.to).map(|n| ToolUpdate::progress(&n));
    ///     stream::iter(progress.chain([ToolUpdate::output("done")]))
    /// });
    /// assert_eq!(count.name(), "count");
    /// ```
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Tool::new`].
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn streaming<A, MustBeAnObject, F, St>(name: &str, description: &str, run: F) -> Self
    where
        A: ToolArguments<MustBeAnObject>,
        F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = ToolUpdate> + Send + 'static,
    {
        let (spec, form) = derive_spec::<A>(name, description);
        match validate_spec(spec) {
            Ok(spec) => Self::from_typed_fn(spec, move |_, arguments| form.parse(arguments), run),
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a tool from an async closure with typed arguments and an explicit schema.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if a provider would
    /// reject the name, or if the schema is not of type `object`.
    pub fn typed<A, F, Fut, R>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::typed_streaming(spec, into_update_stream_fn(run))
    }

    /// Creates a streaming tool with typed arguments and an explicit schema.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Tool::typed`].
    pub fn typed_streaming<A, F, St>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = ToolUpdate> + Send + 'static,
    {
        let spec = validate_spec(spec)?;
        let read = |_: &ToolSpec, arguments: &str| model_json::read_arguments_by_type(arguments);
        Ok(Self::from_typed_fn(spec, read, run))
    }

    /// Creates a tool from an async closure that receives its arguments as JSON.
    ///
    /// The arguments are checked against the schema keywords `type`, `properties`, `required`,
    /// `enum`, `const`, `items` and `additionalProperties`. With the `validate` feature, all
    /// keywords of JSON Schema are checked. If the arguments do not match the schema, the closure
    /// does not run, and the model receives an error that contains the path to the mismatch.
    ///
    /// Before the check, a whole number such as `5.0` becomes `5` where the schema accepts only
    /// integers, and `null` for an optional property that is not nullable is left out.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Tool::typed`]. With the `validate` feature, also
    /// returns an error if the schema is invalid.
    pub fn raw<F, Fut, R>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        F: Fn(serde_json::Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::raw_streaming(spec, into_update_stream_fn(run))
    }

    /// Creates a streaming tool that receives its arguments as JSON. The arguments are checked in
    /// the same way as for [`raw`](Self::raw).
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Tool::raw`].
    pub fn raw_streaming<F, St>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        F: Fn(serde_json::Value, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = ToolUpdate> + Send + 'static,
    {
        let spec = validate_spec(spec)?;
        let schema = args_schema::Schema::new(&spec)?;
        let read = move |spec: &ToolSpec, arguments: &str| schema.parse_arguments(spec, arguments);
        Ok(Self::from_typed_fn(spec, read, run))
    }

    /// Creates a tool from a function that parses the arguments and a closure that streams updates.
    fn from_typed_fn<A, F, St>(
        spec: ToolSpec,
        read: impl Fn(&ToolSpec, &str) -> Result<A, String> + Send + Sync + 'static,
        run: F,
    ) -> Self
    where
        A: Send + 'static,
        F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = ToolUpdate> + Send + 'static,
    {
        let run = Arc::new(run);
        Self::from_prepare_fn(spec, move |spec, arguments| {
            let (args, run) = (read(spec, arguments)?, Arc::clone(&run));
            // The closure is called in the first poll of the stream, so that the closure's
            // synchronous part counts as part of the tool's work.
            let begin = move |cx| stream::once(async move { run(args, cx) }).flatten().boxed();
            Ok(PreparedCall::new(begin))
        })
    }
}

/// Converts a closure that returns a single output into a closure that streams this output.
fn into_update_stream_fn<A, F, Fut, R>(
    run: F,
) -> impl Fn(A, ToolContext) -> IntoStream<Map<Fut, ToUpdate<R>>>
where
    F: Fn(A, ToolContext) -> Fut,
    Fut: Future<Output = R>,
    R: IntoToolOutput,
{
    move |args, cx| run(args, cx).map(ToolUpdate::output as ToUpdate<R>).into_stream()
}

type ToUpdate<R> = fn(R) -> ToolUpdate;
