//! The trait [`Hook`], with one method for each hook point.

use std::borrow::Cow;
use std::future::ready;

use crate::agent::hook::HookFuture;
use crate::agent::hook::hook_points::hook_points;
use crate::agent::hook::hook_points::prelude::*;

/// Defines a hook method with a body. The signature depends on the kind of hook point.
macro_rules! hook_method {
    ([$($doc:tt)*] deciding $name:ident($state:ident $(, $arg:ident: $Given:ty)*) [$Answer:ty]
        |$self:ident| $body:expr) => {
        $($doc)*
        fn $name<'a>(&'a $self, $state: &'a State $(, $arg: $Given)*) -> HookFuture<'a, $Answer> {
            $body
        }
    };
    ([$($doc:tt)*] observing $name:ident($state:ident $(, $arg:ident: $Given:ty)*) [$Answer:ty]
        |$self:ident| $body:expr) => {
        $($doc)*
        fn $name(&$self, $state: &State $(, $arg: $Given)*) -> HookFuture<'static, $Answer> {
            $body
        }
    };
    ([$($doc:tt)*] at_once $name:ident($state:ident $(, $arg:ident: $Given:ty)*) [$($Answer:ty)?]
        |$self:ident| $body:expr) => {
        $($doc)*
        fn $name(&$self, $state: &State $(, $arg: $Given)*) $(-> $Answer)? {
            $body
        }
    };
}

pub(super) use hook_method;

/// Defines all hook methods with their default implementations.
macro_rules! default_methods {
    ($($(#[$doc:meta])* $kind:ident $name:ident $args:tt $(-> $Answer:ty)? {
        default: $default:expr;
        $($rest:tt)*
    })*) => {$(
        hook_method! {
            [$(#[$doc])*] $kind $name $args [$($Answer)?] |self| default_body!($kind $default)
        }
    )*};
}

macro_rules! default_body {
    (at_once $default:expr) => {
        $default
    };
    ($future:ident $default:expr) => {
        Box::pin(ready(Ok($default)))
    };
}

/// Defines all hook methods, each of which forwards its call through a pointer.
macro_rules! forwarding_methods {
    ($($(#[$doc:meta])* $kind:ident $name:ident($state:ident $(, $arg:ident: $Given:ty)*)
        $(-> $Answer:ty)? { $($rest:tt)* })*) => {$(
        hook_method! {
            [] $kind $name($state $(, $arg: $Given)*) [$($Answer)?]
            |self| (**self).$name($state $(, $arg)*)
        }
    )*};
}

/// A trait for running your own code at fixed points in the agent's loop. By default, the methods
/// do nothing.
///
/// Most methods make decisions, and the run waits for their answers. If an agent has several hooks,
/// they are called one after another, in the order in which they were added. Each method's
/// documentation describes how answers from several hooks are combined. If a deciding method fails,
/// panics or exceeds its [timeout](crate::agent::Limits::hook_timeout), the run ends.
///
/// Five methods only observe, and do not delay the run: [`turn_started`](Self::turn_started),
/// [`assistant_message`](Self::assistant_message), [`after_sampling`](Self::after_sampling),
/// [`on_failure`](Self::on_failure) and [`on_finished`](Self::on_finished). Of these methods,
/// `turn_started`, `assistant_message` and `after_sampling` each return a future that owns its
/// data. When `turn_started`, `assistant_message` or `after_sampling` is called on several hooks,
/// the returned futures are each polled once, in the order of the hooks. After that, each future is
/// polled at the start of every poll of the run, but the run does not wait for it. The hook timeout
/// also covers the returned future. The future is dropped without being polled again when the run's
/// loop ends, before `on_finished` is called, or when the run is dropped. The run spawns no task
/// for the future; for work that must outlive the run, spawn a task yourself. If the future fails,
/// panics or exceeds the timeout, `on_failure` is called, and the run continues.
///
/// If a hook fails, the resulting error has the kind [`Hook`](crate::ErrorKind::Hook), names the
/// hook and the method, and contains the hook's own error as its source. Timeouts use tokio's
/// timer; a hook whose future is ready on the first poll needs no tokio runtime.
///
/// Each method receives the run's [`State`]. The [`label`](crate::agent::StateFields::label) in the
/// state distinguishes agents that share a hook. Methods with a `call` parameter receive the state
/// as it was when the turn's calls started.
///
/// ```
/// use turnstream::agent::State;
/// use turnstream::agent::hook::{HookFuture, CallDecision, Hook};
/// use turnstream::item::{History, ToolCall};
///
/// /// Keeps calls inside the folder.
/// struct Fence;
///
/// impl Hook for Fence {
///     fn before_tool<'a>(&'a self, _: &'a State, call: &'a ToolCall) -> HookFuture<'a, CallDecision> {
///         Box::pin(async move {
///             Ok(match call.arguments.contains("..") {
///                 true => CallDecision::Deny("stay in the folder".into()),
///                 false => CallDecision::Allow,
///             })
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let call = ToolCall {
///     call_id: "c1".into(),
///     name: "read".into(),
///     arguments: r#"{"path":"../key"}"#.into(),
/// };
/// let state = State::new(History::empty("h"));
/// let answer = Fence.before_tool(&state, &call).await?;
/// assert_eq!(answer, CallDecision::Deny("stay in the folder".into()));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    note = "functions of `turnstream::agent::hook`, such as `hook::before_tool(…)`, turn a \
    closure into a hook"
)]
#[expect(unused_variables, reason = "a default that does nothing needs no arguments")]
pub trait Hook: Send + Sync {
    /// Returns the hook's name for error messages. In error messages, the agent's
    /// [label](crate::agent::StateFields::label) follows the name. The default is the name of the
    /// hook's type.
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(std::any::type_name::<Self>())
    }

    hook_points! { default_methods }
}

/// Implements [`Hook`] for pointers to hooks.
macro_rules! impl_hook_for_pointers {
    ($($Pointer:ident),*) => {$(
        impl<H: Hook + ?Sized> Hook for $Pointer<H> {
            fn name(&self) -> Cow<'_, str> {
                (**self).name()
            }

            hook_points! { forwarding_methods }
        }
    )*};
}

impl_hook_for_pointers!(Arc, Box);
