//! Tools made of closures.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::tool::{IntoToolOutput, Tool, ToolContext, ToolHandler, ToolSpec, Update, Updates};
use crate::tool::{check, checked_spec};

impl Tool {
    /// Makes a tool of an async closure; the schema is that of its argument type.
    ///
    /// Arguments are what serde accepts for the type. A mismatch is told to the model with its
    /// path, and the closure does not run.
    ///
    /// # Panics
    ///
    /// If the name is not what every provider takes (1 to 64 letters, digits, `_` and `-`), or the
    /// argument type is not a struct: both are fixed when the program is written.
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn new<A, F, Fut, R>(name: &str, description: &str, run: F) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + Send + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::typed(Self::spec_of::<A>(name, description), run)
            .unwrap_or_else(|error| panic!("the tool `{name}`: {error}"))
    }

    /// Makes a tool of a closure that streams its [`Update`]s.
    ///
    /// ```
    /// use futures::stream;
    /// use turnstream::tool::{Tool, Update};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Count {
    ///     to: u32,
    /// }
    ///
    /// let count = Tool::streaming("count", "Counts", |args: Count, _cx| {
    ///     let progress = (1..=args.to).map(|n| Update::progress(&n));
    ///     stream::iter(progress.chain([Update::output("done")]))
    /// });
    /// assert_eq!(count.name(), "count");
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Tool::new`].
    #[cfg(feature = "schemars")]
    #[track_caller]
    pub fn streaming<A, F, St>(name: &str, description: &str, run: F) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + Send + 'static,
        F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = Update> + Send + 'static,
    {
        Self::typed_streaming(Self::spec_of::<A>(name, description), run)
            .unwrap_or_else(|error| panic!("the tool `{name}`: {error}"))
    }

    #[cfg(feature = "schemars")]
    fn spec_of<A: schemars::JsonSchema>(name: &str, description: &str) -> ToolSpec {
        let mut parameters = schemars::schema_for!(A).to_value();
        if let Some(schema) = parameters.as_object_mut() {
            // Words for people and tools of JSON Schema; they only cost the model tokens.
            schema.remove("$schema");
            schema.remove("title");
        }
        ToolSpec { name: name.to_owned(), description: description.to_owned(), parameters }
    }

    /// Makes a tool of an async closure with typed arguments and a schema of your own.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the name is not what every provider
    /// takes or the schema is not of type `object`.
    pub fn typed<A, F, Fut, R>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::typed_streaming(spec, move |args, cx| {
            run(args, cx).map(|output| Update::output(output)).into_stream()
        })
    }

    /// Makes a streaming tool with typed arguments and a schema of your own.
    ///
    /// # Errors
    ///
    /// As [`Tool::typed`].
    pub fn typed_streaming<A, F, St>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
        St: Stream<Item = Update> + Send + 'static,
    {
        let spec = checked_spec(spec)?;
        Ok(Self::from_handler(Typed { spec, run: Arc::new(run), args: PhantomData }))
    }

    /// Makes a tool of an async closure that takes its arguments as JSON.
    ///
    /// The arguments are checked against the schema: `type`, `properties`, `required`, `enum`,
    /// `const`, `items` and `additionalProperties`; with the feature `validate`, all of JSON
    /// Schema. A mismatch is told to the model with its path, and the closure does not run.
    ///
    /// # Errors
    ///
    /// As [`Tool::typed`]; with the feature `validate` also if the schema is not a valid one.
    pub fn raw<F, Fut, R>(spec: ToolSpec, run: F) -> Result<Self, Error>
    where
        F: Fn(serde_json::Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        let spec = checked_spec(spec)?;
        let schema = check::Schema::new(&spec)?;
        let run = Arc::new(run);
        Ok(Self::from_handler(Raw {
            spec,
            schema,
            run: move |args, cx| {
                let run = Arc::clone(&run);
                let update = async move { Update::output(run(args, cx).await) };
                stream::once(update).boxed()
            },
        }))
    }
}

struct Typed<A, F> {
    spec: ToolSpec,
    run: Arc<F>,
    args: PhantomData<fn() -> A>,
}

impl<A, F, St> ToolHandler for Typed<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(A, ToolContext) -> St + Send + Sync + 'static,
    St: Stream<Item = Update> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        read::<A>(arguments).map(drop)
    }

    fn call(&self, arguments: &str, cx: ToolContext) -> Result<Updates, String> {
        let args = read(arguments)?;
        let run = Arc::clone(&self.run);
        // What a closure does before it gives its stream is work of the tool, too.
        Ok(stream::once(async move { run(args, cx) }).flatten().boxed())
    }
}

/// Reads typed arguments, or says where they do not fit.
fn read<A: DeserializeOwned>(arguments: &str) -> Result<A, String> {
    let mut json = serde_json::Deserializer::from_str(arguments);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if path == "." { inner.to_string() } else { format!("{inner} (at `{path}`)") }
    })
}

struct Raw<F> {
    spec: ToolSpec,
    schema: check::Schema,
    run: F,
}

impl<F> ToolHandler for Raw<F>
where
    F: Fn(serde_json::Value, ToolContext) -> BoxStream<'static, Update> + Send + Sync,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        self.schema.read(&self.spec, arguments).map(drop)
    }

    fn call(&self, arguments: &str, cx: ToolContext) -> Result<Updates, String> {
        let args = self.schema.read(&self.spec, arguments)?;
        Ok((self.run)(args, cx))
    }
}
