//! Functions that each create a hook from a single closure.

use std::any::type_name;
use std::borrow::Cow;

use crate::agent::hook::hook::hook_method;
use crate::agent::hook::hook_points::hook_points;
use crate::agent::hook::hook_points::prelude::*;
use crate::agent::hook::{Hook, HookFuture, IntoHookResult};

/// Defines one function for each hook point. Each function turns a closure into a hook.
macro_rules! closure_hooks {
    ($($(#[$doc:meta])* $kind:ident $name:ident $args:tt $(-> $Answer:ty)? {
        default: $default:expr;
        together $together:tt
        $(#[$function_doc:meta])*
        closure: $function:ident;
    })*) => {
        $(closure_hook! { [$(#[$function_doc])*] $function, $kind $name $args [$($Answer)?] })*
    };
}

macro_rules! closure_hook {
    // For a synchronous method, the closure receives the method's arguments.
    ([$($doc:tt)*] $function:ident,
        at_once $name:ident($state:ident $(, $arg:ident: $Given:ty)*) [$($Answer:ty)?]) => {
        $($doc)*
        ///
        /// The hook is named after the closure's path in the source code.
        pub fn $function<F>(f: F) -> impl Hook + 'static
        where
            F: Fn(&State $(, $Given)*) $(-> $Answer)? + Send + Sync + 'static,
        {
            struct Closure<F>(F);

            impl<F> Hook for Closure<F>
            where
                F: Fn(&State $(, $Given)*) $(-> $Answer)? + Send + Sync + 'static,
            {
                fn name(&self) -> Cow<'_, str> {
                    Cow::Borrowed(type_name::<F>())
                }

                hook_method! {
                    [] at_once $name($state $(, $arg: $Given)*) [$($Answer)?]
                    |self| (self.0)($state $(, $arg)*)
                }
            }

            Closure(f)
        }
    };
    // For a method that returns a future, borrowed arguments are cloned.
    ($doc:tt $function:ident,
        deciding $name:ident($state:ident $(, $arg:ident: &'a $Own:ty)*) $answer:tt) => {
        closure_hook! {
            $doc $function, future of deciding $name($state $(, $arg: &'a $Own => $Own)*) $answer
        }
    };
    ($doc:tt $function:ident,
        deciding $name:ident($state:ident $(, $arg:ident: $Own:ty)*) $answer:tt) => {
        closure_hook! {
            $doc $function, future of deciding $name($state $(, $arg: $Own => $Own)*) $answer
        }
    };
    ($doc:tt $function:ident,
        observing $name:ident($state:ident $(, $arg:ident: &$Own:ty)*) $answer:tt) => {
        closure_hook! {
            $doc $function, future of observing $name($state $(, $arg: &$Own => $Own)*) $answer
        }
    };
    ([$($doc:tt)*] $function:ident, future of
        $kind:ident $name:ident($state:ident $(, $arg:ident: $Given:ty => $Own:ty)*) [$Answer:ty]) => {
        $($doc)*
        ///
        /// The closure receives owned values and returns a future. The future's output is either
        /// the hook's answer or a `Result` that contains the answer or an [`Error`]. Use `|..|
        /// async move { .. }`; an `async |..|` closure works only if it captures nothing. The hook
        /// is named after the closure's path in the source code.
        pub fn $function<F, Fut>(f: F) -> impl Hook + 'static
        where
            F: Fn(State $(, $Own)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output: IntoHookResult<$Answer>> + Send + 'static,
        {
            struct Closure<F>(F);

            impl<F, Fut> Hook for Closure<F>
            where
                F: Fn(State $(, $Own)*) -> Fut + Send + Sync + 'static,
                Fut: Future<Output: IntoHookResult<$Answer>> + Send + 'static,
            {
                fn name(&self) -> Cow<'_, str> {
                    Cow::Borrowed(type_name::<F>())
                }

                hook_method! {
                    [] $kind $name($state $(, $arg: $Given)*) [$Answer]
                    |self| {
                        let answer = (self.0)($state.clone() $(, <$Own>::clone(&$arg))*);
                        Box::pin(async move { answer.await.into_hook_result() })
                    }
                }
            }

            Closure(f)
        }
    };
}

hook_points! { closure_hooks }
