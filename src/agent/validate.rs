//! What an answer must be before a run is completed.

use std::fmt;
use std::sync::Arc;

use crate::agent::Agent;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::turn::Turn;

type Check = dyn Fn(&Turn) -> Result<(), String> + Send + Sync;

/// The checks of an agent, in their order. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Checks(Vec<Arc<Check>>);

impl Checks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the first check that objects has to say.
    pub(super) fn objection(&self, turn: &Turn) -> Result<Option<String>, Error> {
        let objection = || self.0.iter().find_map(|check| check(turn).err());
        panic_to_error(ErrorKind::Hook, "the validation", objection)
    }
}

impl Agent {
    /// Asks for an answer of the form of `T`, and checks that it is one.
    ///
    /// It sets [`Options::output`](crate::request::Options::output), so options as a whole are set
    /// before it. An answer that [`Turn::parse`] cannot read is rejected as
    /// [`with_validation`](Self::with_validation) has it. A completed run can be
    /// [parsed](crate::Outcome::parse).
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     people: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     r#"{ "name": "Oslo", "people": "many" }"#,
    ///     r#"{ "name": "Oslo", "people": 717710 }"#,
    /// ]);
    /// let agent = Agent::new(model).with_output::<City>();
    /// let outcome = agent.run("The capital of Norway?").outcome().await.into_result()?;
    /// let city: City = outcome.parse()?;
    /// assert_eq!((city.name.as_str(), city.people, outcome.turns), ("Oslo", 717_710, 2));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "schemars")]
    pub fn with_output<T>(mut self) -> Self
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned + 'static,
    {
        self.options.output = crate::request::Output::of::<T>();
        self.with_validation(|turn| turn.parse::<T>().map(drop).map_err(|error| error.to_string()))
    }

    /// Checks an answer before the run is completed.
    ///
    /// It is asked about each turn with which the model stops by itself: not while it calls tools,
    /// and not when it refuses or is cut off, which ends the run for that reason: an answer that is
    /// checked is not continued. An answer with an `Err` is rejected: the model is told what is wrong
    /// and asked again, as often as [`with_corrections`](Self::with_corrections) has it; then the run
    /// ends as [`Malformed`](crate::event::Reason::Malformed), with every rejected answer in its
    /// history.
    ///
    /// Several are asked in the order in which they were added, and the first `Err` counts. A panic
    /// in one ends the run with an error of kind [`Hook`](ErrorKind::Hook).
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Oslo, of course.", "Oslo"]))
    ///     .with_validation(|turn| match turn.text().contains(' ') {
    ///         true => Err("it has more than one word"),
    ///         false => Ok(()),
    ///     });
    /// let outcome = agent.run("The capital of Norway, in one word?").outcome().await;
    /// assert_eq!((outcome.text.as_str(), outcome.turns), ("Oslo", 2));
    /// # }
    /// ```
    pub fn with_validation<E: Into<String>>(
        mut self,
        check: impl Fn(&Turn) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.checks.0.push(Arc::new(move |turn| check(turn).map_err(Into::into)));
        self
    }

    /// Sets how many replies in a row that cannot be used are corrected, 2 unless set; the next one
    /// ends the run as [`Malformed`](crate::event::Reason::Malformed). Empty replies count, too, and
    /// turns none of whose calls could start.
    pub fn with_corrections(mut self, corrections: u32) -> Self {
        self.limits.corrections = corrections;
        self
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").field("len", &self.0.len()).finish()
    }
}
