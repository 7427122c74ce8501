//! Hooks made of one closure.

use std::any::type_name;
use std::borrow::Cow;
use std::sync::Arc;

use crate::agent::State;
use crate::agent::hook::{BeforeTool, Hook, HookFuture, IntoAnswer, OnStop};
use crate::error::Error;
use crate::event::Outcome;
use crate::item::{History, Item, Json, ToolCall, ToolResult};
use crate::request::Request;
use crate::turn::Turn;

/// A function that makes a hook of a closure, for a method whose answer is asynchronous.
macro_rules! asynchronous {
    ($(#[$doc:meta])* $method:ident($($arg:ident: $Given:ty => $Owned:ty)?) -> HookFuture<$life:lifetime, $T:ty>) => {
        $(#[$doc])*
        ///
        /// The closure gets values of its own and gives a future of the answer, or of a `Result`
        /// with an [`Error`]. A plain `|..| async move { .. }` always does; an `async |..|` closure
        /// does where it captures nothing. The hook is named after the closure's place in the code.
        pub fn $method<F, Fut>(f: F) -> impl Hook + 'static
        where
            F: Fn(State $(, $Owned)?) -> Fut + Send + Sync + 'static,
            Fut: Future<Output: IntoAnswer<$T>> + Send + 'static,
        {
            struct Closure<F>(F);

            impl<F, Fut> Hook for Closure<F>
            where
                F: Fn(State $(, $Owned)?) -> Fut + Send + Sync + 'static,
                Fut: Future<Output: IntoAnswer<$T>> + Send + 'static,
            {
                fn name(&self) -> Cow<'_, str> {
                    Cow::Borrowed(type_name::<F>())
                }

                fn $method<'a>(
                    &'a self,
                    state: &'a State,
                    $($arg: $Given,)?
                ) -> HookFuture<$life, $T> {
                    let answer = (self.0)(state.clone() $(, <$Owned>::clone(&$arg))?);
                    Box::pin(async move { answer.await.into_answer() })
                }
            }

            Closure(f)
        }
    };
}

/// A function that makes a hook of a closure, for a method that answers at once.
macro_rules! synchronous {
    ($(#[$doc:meta])* $function:ident = $method:ident($($arg:ident: $Given:ty),*)) => {
        $(#[$doc])*
        ///
        /// The hook is named after the closure's place in the code.
        pub fn $function<F>(f: F) -> impl Hook + 'static
        where
            F: Fn($($Given),*) + Send + Sync + 'static,
        {
            struct Closure<F>(F);

            impl<F> Hook for Closure<F>
            where
                F: Fn($($Given),*) + Send + Sync + 'static,
            {
                fn name(&self) -> Cow<'_, str> {
                    Cow::Borrowed(type_name::<F>())
                }

                fn $method(&self, $($arg: $Given),*) {
                    (self.0)($($arg),*);
                }
            }

            Closure(f)
        }
    };
}

asynchronous! {
    /// A hook of its [`transform_context`](Hook::transform_context) alone.
    ///
    /// ```
    /// use turnstream::agent::hook;
    ///
    /// // Sends only the last twenty entries.
    /// let short = hook::transform_context(|_state, mut context| async move {
    ///     context.rewrite(0..context.len().saturating_sub(20), []);
    ///     context
    /// });
    /// # let _ = short;
    /// ```
    transform_context(context: History => History) -> HookFuture<'a, History>
}

asynchronous! {
    /// A hook of its [`turn_started`](Hook::turn_started) alone.
    turn_started() -> HookFuture<'static, ()>
}

asynchronous! {
    /// A hook of its [`assistant_message`](Hook::assistant_message) alone.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures::FutureExt;
    /// use turnstream::agent::hook;
    /// use turnstream::provider::Scripted;
    /// use turnstream::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // A log that takes its time holds up nothing.
    /// let slow = hook::assistant_message(|_state, turn| async move {
    ///     tokio::time::sleep(Duration::from_secs(5)).await;
    ///     println!("{}", turn.text());
    /// });
    /// let agent = Agent::new(Scripted::new(["Hello!"])).with_hook(slow);
    /// let outcome = agent.run("Hi").outcome().now_or_never().expect("nothing waits");
    /// assert_eq!(outcome.text, "Hello!");
    /// # }
    /// ```
    assistant_message(turn: &Arc<Turn> => Arc<Turn>) -> HookFuture<'static, ()>
}

asynchronous! {
    /// A hook of its [`after_sampling`](Hook::after_sampling) alone.
    ///
    /// ```
    /// use turnstream::Item;
    /// use turnstream::agent::hook;
    ///
    /// let terse = hook::after_sampling(|_state, turn| async move {
    ///     match turn.text().len() > 2_000 {
    ///         true => vec![Item::user("Shorter, please.")],
    ///         false => Vec::new(),
    ///     }
    /// });
    /// # let _ = terse;
    /// ```
    after_sampling(turn: &Arc<Turn> => Arc<Turn>) -> HookFuture<'static, Vec<Item>>
}

asynchronous! {
    /// A hook of its [`before_tool`](Hook::before_tool) alone.
    ///
    /// ```
    /// use turnstream::agent::hook::{self, BeforeTool};
    ///
    /// let careful = hook::before_tool(|_state, call| async move {
    ///     match call.name.as_str() {
    ///         "delete" => BeforeTool::Ask,
    ///         _ => BeforeTool::Run,
    ///     }
    /// });
    /// # let _ = careful;
    /// ```
    before_tool(call: &'a ToolCall => ToolCall) -> HookFuture<'a, BeforeTool>
}

asynchronous! {
    /// A hook of its [`should_stop`](Hook::should_stop) alone.
    ///
    /// ```
    /// use turnstream::agent::hook;
    ///
    /// // Ends the run once ten calls have run.
    /// let enough = hook::should_stop(|state| async move { state.tool_calls >= 10 });
    /// # let _ = enough;
    /// ```
    should_stop() -> HookFuture<'a, bool>
}

asynchronous! {
    /// A hook of its [`stop`](Hook::stop) alone.
    ///
    /// ```
    /// use turnstream::agent::hook::{self, OnStop};
    ///
    /// let tested = hook::stop(|_state, turn| async move {
    ///     match turn.text().contains("tests pass") {
    ///         true => OnStop::LetGo,
    ///         false => OnStop::Block("Run the tests before you stop.".into()),
    ///     }
    /// });
    /// # let _ = tested;
    /// ```
    stop(turn: &'a Turn => Turn) -> HookFuture<'a, OnStop>
}

synchronous! {
    /// A hook of its [`after_tool`](Hook::after_tool) alone.
    ///
    /// ```
    /// use turnstream::agent::hook;
    ///
    /// let trimmed = hook::after_tool(|_call, result| {
    ///     result.content = result.content.text().trim().into();
    /// });
    /// # let _ = trimmed;
    /// ```
    after_tool = after_tool(call: &ToolCall, result: &mut ToolResult)
}

synchronous! {
    /// A hook of its [`redact_progress`](Hook::redact_progress) alone. The calls of a sub-agent need a
    /// hook of that agent.
    ///
    /// ```
    /// use turnstream::agent::hook;
    ///
    /// let quiet = hook::redact_progress(|_call, data| *data = serde_json::Value::Null.into());
    /// # let _ = quiet;
    /// ```
    redact_progress = redact_progress(call: &ToolCall, data: &mut Json)
}

synchronous! {
    /// A hook of its [`redact_evidence`](Hook::redact_evidence) alone. The calls of a sub-agent need a
    /// hook of that agent.
    ///
    /// ```
    /// use turnstream::agent::hook;
    /// use turnstream::item::Json;
    ///
    /// let masking = hook::redact_evidence(|_call, evidence| {
    ///     if let Ok(masked) = Json::parse(&evidence.as_str().replace("hunter2", "***")) {
    ///         *evidence = masked;
    ///     }
    /// });
    /// # let _ = masking;
    /// ```
    redact_evidence = redact_evidence(call: &ToolCall, evidence: &mut Json)
}

synchronous! {
    /// A hook of its [`failure`](Hook::failure) alone.
    on_failure = failure(state: &State, error: &Error)
}

synchronous! {
    /// A hook of its [`finished`](Hook::finished) alone.
    ///
    /// ```
    /// use turnstream::agent::hook;
    ///
    /// let told = hook::on_finished(|outcome| println!("{} turns", outcome.turns));
    /// # let _ = told;
    /// ```
    on_finished = finished(outcome: &Outcome)
}

/// A hook of its [`prepare`](Hook::prepare) alone: the closure gets the request and gives it back.
///
/// As with the other closures it gives a future of the request, or of a `Result` with an [`Error`].
///
/// ```
/// use turnstream::agent::hook;
///
/// // Asks a larger model from the fifth request on.
/// let escalating = hook::prepare(|state, mut request| async move {
///     if state.model_calls >= 5 {
///         request.model = Some("large".to_owned());
///     }
///     request
/// });
/// # let _ = escalating;
/// ```
pub fn prepare<F, Fut>(f: F) -> impl Hook + 'static
where
    F: Fn(State, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoAnswer<Request>> + Send + 'static,
{
    struct Closure<F>(F);

    impl<F, Fut> Hook for Closure<F>
    where
        F: Fn(State, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoAnswer<Request>> + Send + 'static,
    {
        fn name(&self) -> Cow<'_, str> {
            Cow::Borrowed(type_name::<F>())
        }

        fn prepare<'a>(&'a self, state: &'a State, request: &'a mut Request) -> HookFuture<'a, ()> {
            let prepared = (self.0)(state.clone(), request.clone());
            Box::pin(async move {
                *request = prepared.await.into_answer()?;
                Ok(())
            })
        }
    }

    Closure(f)
}
