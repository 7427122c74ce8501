//! The operations on Restate's contexts that several kinds of handlers use.

use futures::FutureExt;
use futures::future::BoxFuture;
use restate_sdk::prelude::*;
use turnstream::Error;
use turnstream::durable::StepFuture;
use turnstream::item::RawJson;

use crate::errors::{from_context, unreadable};

/// A trait for contexts that can perform steps.
pub(crate) trait PerformStep {
    /// Performs a step, or returns its value if it has already been recorded.
    fn perform<'a>(
        &'a self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>>;
}

/// A trait for contexts that can read the state of their object.
pub(crate) trait ReadState {
    /// Reads a value as a string.
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>>;
}

macro_rules! perform_step {
    ($($context:ident),*) => {$(
        impl PerformStep for $context<'_> {
            fn perform<'a>(
                &'a self,
                name: &'static str,
                step: StepFuture,
            ) -> BoxFuture<'a, Result<RawJson, Error>> {
                // The shorter lifetime is correct: the context outlives the step.
                let context: &'a $context<'a> = self;
                let step = async move || Ok(Json(step.await));
                let result = context.run(step).name(name);
                result.map(|result| result.map(Json::into_inner).map_err(|error| from_context(&error)))
                    .boxed()
            }
        }
    )*};
}

macro_rules! read_state {
    ($($context:ident),*) => {$(
        impl ReadState for $context<'_> {
            fn read<'a>(
                &'a self,
                key: &'a str,
            ) -> BoxFuture<'a, Result<Option<String>, Error>> {
                let context: &'a $context<'a> = self;
                // The value is read as bytes, because the SDK would parse a `String` as a JSON
                // string.
                let value = context.get::<Vec<u8>>(key);
                value.map(|value| into_text(value.map_err(|error| from_context(&error))?)).boxed()
            }
        }
    )*};
}

perform_step!(ObjectContext, Context);
read_state!(ObjectContext, SharedObjectContext);

fn into_text(value: Option<Vec<u8>>) -> Result<Option<String>, Error> {
    value.map(String::from_utf8).transpose().map_err(|error| unreadable("a value", error))
}
