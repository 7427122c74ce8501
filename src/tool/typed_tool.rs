//! Tools created from closures.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};

use crate::error::Error;
#[cfg(feature = "schemars")]
use crate::tool::ToolArguments;
#[cfg(feature = "schemars")]
use crate::tool::derived_spec::derive_spec;
use crate::tool::{
    IntoToolUpdates, PreparedCall, Tool, ToolContext, ToolSpec, args_schema, validate_spec,
};

impl Tool {
    /// Creates a tool from an async closure. The schema is derived from the closure's argument
    /// type, which is usually a struct with one field per argument, or `()` for a tool without
    /// arguments. If the JSON of the type is not always an object, as for a string, a list, or an
    /// enum with a variant without fields, the model writes the value in a field named `value`,
    /// because vendors require arguments to be an object. Prefer a struct: the names and the docs
    /// of its fields tell the model what to write.
    ///
    /// The closure receives the arguments and a [`ToolContext`], and returns a future. The
    /// arguments are deserialized with serde. For an integer, `5.0` is accepted, and for an
    /// optional field, including one with `#[serde(default)]`, `null`. If the arguments do not
    /// match the type, the closure does not run, and the model receives an error that contains the
    /// path to the mismatch.
    ///
    /// The output of the returned future becomes the call's result.
    /// [`IntoToolOutput`](crate::tool::IntoToolOutput) lists the supported output types, and
    /// [`Json`](crate::tool::Json) wraps any other type that implements `Serialize`. To report
    /// progress, return a stream of [`ToolUpdate`](crate::tool::ToolUpdate)s, boxed as an
    /// [`UpdateStream`](crate::tool::UpdateStream).
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
    /// Calls may run concurrently, so the closure clones captured state for each call. For values
    /// that belong to a single run, use [`Run::with_data`](crate::Run::with_data).
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
    /// let note = Tool::new("note", "Keeps a note", move |note: Note, _cx| {
    ///     let notes = Arc::clone(&notes);
    ///     async move { notes.lock().unwrap().push(note.text) }
    /// });
    /// # drop(note);
    /// ```
    ///
    /// This tool reports progress:
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use turnstream::tool::{Tool, ToolUpdate};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Count {
    ///     to: u32,
    /// }
    ///
    /// let count = Tool::new("count", "Counts", |args: Count, _cx| async move {
    ///     let progress = (1..=args.to).map(|n| ToolUpdate::progress(&n));
    ///     stream::iter(progress.chain([ToolUpdate::output("done")])).boxed()
    /// });
    /// # drop(count);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the name is invalid (valid names consist of 1 to 64 letters, digits, `_` and `-`).
    /// This is a programming error, since names are known when the program is written.
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn new<A, F, Fut, R>(name: &str, description: &str, run: F) -> Self
    where
        A: ToolArguments,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolUpdates + 'static,
    {
        let (spec, form) = derive_spec::<A>(name, description);
        match validate_spec(spec) {
            Ok(spec) => Self::from_typed_fn(spec, move |_, arguments| form.parse(arguments), run),
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a tool from an async closure that receives its arguments as JSON. The closure may
    /// return whatever a closure passed to `Tool::new` may return. To read the arguments into a
    /// type, use `serde_json::from_value`.
    ///
    /// The arguments are checked against the schema. Some keywords are checked only with the
    /// feature `validate`, such as `pattern`; [`unchecked_keywords`](Self::unchecked_keywords)
    /// lists those that a tool's schema contains. If the arguments do not match the schema, the
    /// closure does not run, and the model receives an error that contains the path to the
    /// mismatch.
    ///
    /// Before the check, a whole number such as `5.0` becomes `5` where the schema accepts only
    /// integers, and `null` for an optional property that is not nullable is left out.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if a provider would
    /// reject the name, if the schema is not of type `object`, or if a [client
    /// tool](ToolSpec::client_tool) is deferred or strict. With the `validate` feature, also
    /// returns an error if the schema is invalid.
    pub fn raw<F, Fut, R>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        F: Fn(serde_json::Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolUpdates + 'static,
    {
        let spec = validate_spec(spec)?;
        let schema = args_schema::Schema::new(&spec)?;
        let read = move |spec: &ToolSpec, arguments: &str| schema.parse_arguments(spec, arguments);
        Ok(Self::from_typed_fn(spec, read, run))
    }

    /// Creates a tool from a function that parses the arguments and a closure that runs a call.
    fn from_typed_fn<A, F, Fut, R>(
        spec: ToolSpec,
        read: impl Fn(&ToolSpec, &str) -> Result<A, String> + Send + Sync + 'static,
        run: F,
    ) -> Self
    where
        A: Send + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolUpdates + 'static,
    {
        let run = Arc::new(run);
        Self::from_prepare_fn(spec, move |spec, arguments| {
            let (args, run) = (read(spec, arguments)?, Arc::clone(&run));
            // The closure is called in the first poll of the stream, so that the closure's
            // synchronous part counts as part of the tool's work.
            let begin = move |cx| {
                let updates = async move { run(args, cx).await.into_tool_updates() };
                updates.flatten_stream().boxed()
            };
            Ok(PreparedCall::new(begin))
        })
    }
}
