//! An agent's hooks, and methods that call all of them.

use std::time::Duration;

use crate::agent::evidence::RequireEvidence;
use crate::agent::hook::hook_points::hook_points;
use crate::agent::hook::hook_points::prelude::*;
use crate::agent::hook::invoke::{catch_hook_panic, hook_error, invoke_hook};
use crate::agent::hook::observer::ObserverFuture;
use crate::agent::hook::{Hook, HookFuture, Observer};
use crate::agent::timed_call::TimedCall;
use crate::env::TimeLimit;

/// The default timeout for each hook call.
const DEFAULT_HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls an agent's hooks, in order. Cheap to clone.
///
/// For each [`Hook`] method, `Hooks` has a corresponding method, which is generated from the list
/// of hook points. Dropping a future returned by a method of `Hooks` drops the hook's future. An
/// empty `Hooks` neither boxes futures nor creates timers.
#[derive(Clone)]
pub(in crate::agent) struct Hooks {
    members: Arc<Vec<Arc<dyn Hook>>>,
    /// The evidence policy. The decisions of all other hooks take precedence over the decisions of
    /// the evidence policy.
    evidence_policy: Option<Arc<RequireEvidence>>,
    timeout: TimeLimit,
}

impl Hooks {
    /// Creates an empty list of hooks, with a timeout of 30 seconds for each hook call.
    pub(in crate::agent) fn new() -> Self {
        Self {
            members: Arc::default(),
            evidence_policy: None,
            timeout: TimeLimit::explicit_or(None, DEFAULT_HOOK_TIMEOUT),
        }
    }

    /// Adds a hook, to be called after the existing hooks.
    pub(in crate::agent) fn push(&mut self, hook: Arc<dyn Hook>) {
        Arc::make_mut(&mut self.members).push(hook);
    }

    /// Sets the evidence policy, which is called after all other hooks.
    pub(in crate::agent) fn set_evidence_policy(&mut self, policy: Arc<RequireEvidence>) {
        self.evidence_policy = Some(policy);
    }

    /// Returns the evidence policy, if one is set.
    pub(in crate::agent) fn evidence_policy(&self) -> Option<&RequireEvidence> {
        self.evidence_policy.as_deref()
    }

    /// Returns a copy that contains only the evidence policy.
    pub(in crate::agent) fn evidence_policy_only(&self) -> Self {
        Self { evidence_policy: self.evidence_policy.clone(), ..Self::new() }
    }

    /// Sets the timeout for each hook call; `None` means the default.
    pub(in crate::agent) fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = TimeLimit::explicit_or(timeout, DEFAULT_HOOK_TIMEOUT);
    }

    /// Returns whether there are no hooks other than the evidence policy.
    pub(in crate::agent) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Lets the hooks transform a request's context and then prepare the request.
    pub(in crate::agent) async fn transform_request(
        &self,
        state: &State,
        mut request: Request,
    ) -> Result<Request, Error> {
        request.context = self.transform_context(state, request.context).await?;
        self.prepare_request(state, request).await
    }

    fn iter(&self) -> impl Iterator<Item = &dyn Hook> {
        let policy = self.evidence_policy.iter().map(|policy| &**policy as &dyn Hook);
        self.members.iter().map(|hook| &**hook).chain(policy)
    }

    fn invoke<'a, T>(
        &self,
        hook: &'a dyn Hook,
        method: &'static str,
        state: &'a State,
        question: impl FnOnce() -> HookFuture<'a, T>,
    ) -> impl Future<Output = Result<T, Error>> {
        invoke_hook(hook, method, state, self.timeout, question)
    }

    /// Returns a lazy iterator that calls an observing method on each hook.
    fn start_observers<'a, T: 'static>(
        &'a self,
        method: &'static str,
        state: &'a Arc<State>,
        call: impl Fn(&dyn Hook) -> HookFuture<'static, T> + 'a,
    ) -> impl Iterator<Item = Observer> + 'a
    where
        ObserverFuture: From<TimedCall<'static, Result<T, Error>>>,
    {
        let hooks = self.members.iter();
        hooks.map(move |hook| Observer::start(hook, method, self.timeout, state, &call))
    }
}

/// Defines a [`Hooks`] method for each hook point. The generated method depends on the hook point's
/// kind and on how the answers of several hooks are combined.
macro_rules! impl_hooks {
    ($($(#[$doc:meta])* $kind:ident $name:ident $args:tt $(-> $Answer:ty)? {
        default: $default:expr;
        together { $($together:tt)* }
        $($rest:tt)*
    })*) => {
        impl Hooks {
            $(impl_hooks_method! { $kind $name $args $($together)* })*
        }
    };
}

macro_rules! impl_hooks_method {
    (deciding $name:ident($state:ident, $value:ident: $Value:ty)
        changing $changed:ident, keeping [$($unchanged:ident),*]) => {
        pub(in crate::agent) async fn $name(
            &self,
            $state: &State,
            mut $value: $Value,
        ) -> Result<$Value, Error> {
            $(let $unchanged = $value.$unchanged.clone();)*
            for hook in self.iter() {
                let question = || hook.$name($state, $value);
                $value = self.invoke(hook, stringify!($name), $state, question).await?;
                $($value.$unchanged.clone_from(&$unchanged);)*
            }
            Ok($value)
        }
    };
    (deciding $name:ident($state:ident $(, $arg:ident: &'a $Given:ty)*)
        |$all:ident: $All:ty = $first:expr, $answer:ident| $next:expr,
        until $over:expr
        $(, with $changed:ident = $change:expr)?) => {
        pub(in crate::agent) async fn $name(
            &self,
            $state: &State
            $(, $arg: &$Given)*
        ) -> Result<$All, Error> {
            let mut $all: $All = $first;
            for hook in self.iter() {
                $(let $changed = &$change;)?
                let question = || hook.$name($state $(, $arg)*);
                let $answer = self.invoke(hook, stringify!($name), $state, question).await?;
                let next = || -> Result<$All, Error> { Ok($next) };
                $all = next().map_err(|error| hook_error(hook, stringify!($name), $state, error))?;
                if $over {
                    break;
                }
            }
            Ok($all)
        }
    };
    (observing $name:ident($state:ident $(, $arg:ident: &$Given:ty)*) apart) => {
        pub(in crate::agent) fn $name<'a>(
            &'a self,
            $state: &'a Arc<State>
            $(, $arg: &'a $Given)*
        ) -> impl Iterator<Item = Observer> + 'a {
            self.start_observers(stringify!($name), $state, move |hook| hook.$name($state $(, $arg)*))
        }
    };
    (at_once $name:ident($state:ident $(, $arg:ident: $Given:ty)*)
        changing $changed:ident, keeping [$($unchanged:ident),*]) => {
        pub(in crate::agent) fn $name(
            &self,
            $state: &State
            $(, $arg: $Given)*
        ) -> Result<(), Error> {
            let mut outcome = Ok(());
            for hook in self.iter() {
                let mut changed = $changed.clone();
                let called = {
                    let $changed = &mut changed;
                    catch_hook_panic(|| hook.$name($state $(, $arg)*))
                };
                match called {
                    Ok(()) => {
                        $(changed.$unchanged.clone_from(&$changed.$unchanged);)*
                        *$changed = changed;
                    }
                    Err(error) => {
                        let error = hook_error(hook, stringify!($name), $state, error);
                        outcome = outcome.and(Err(error));
                    }
                }
            }
            outcome
        }
    };
    (at_once $name:ident($state:ident $(, $arg:ident: $Given:ty)*)
        |$all:ident: $All:ty = $first:expr, $answer:ident| $next:expr,
        until $over:expr) => {
        pub(in crate::agent) fn $name(
            &self,
            $state: &State
            $(, $arg: $Given)*
        ) -> Result<$All, Error> {
            let mut $all: $All = $first;
            for hook in self.iter() {
                let $answer = catch_hook_panic(|| hook.$name($state $(, $arg)*))
                    .map_err(|error| hook_error(hook, stringify!($name), $state, error))?;
                $all = $next;
                if $over {
                    break;
                }
            }
            Ok($all)
        }
    };
    (at_once $name:ident($state:ident $(, $arg:ident: $Given:ty)*)
        telling |$hooks:ident, $panic:ident| $then:expr) => {
        pub(in crate::agent) fn $name(&self, $state: &State $(, $arg: $Given)*) {
            for hook in self.iter() {
                if let Err(error) = catch_hook_panic(|| hook.$name($state $(, $arg)*)) {
                    let ($hooks, $panic) =
                        (self, hook_error(hook, stringify!($name), $state, error));
                    $then
                }
            }
        }
    };
}

hook_points! { impl_hooks }
