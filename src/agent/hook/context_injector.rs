//! The implementation of [`Hook`] for `ContextInjector`.

use std::borrow::Cow;
use std::future::ready;

use crate::agent::State;
use crate::agent::hook::{Hook, HookFuture};
use crate::context::{ContextInjector, InjectedContext};
use crate::item::History;

/// Injects context into each request, before it is sent.
impl Hook for ContextInjector {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("context_injector")
    }

    fn transform_context<'a>(&'a self, _: &'a State, context: History) -> HookFuture<'a, History> {
        let InjectedContext { context, selection } = self.inject(&context);
        if let Some(on_selection) = &self.on_selection {
            on_selection(&selection);
        }
        Box::pin(ready(Ok(context)))
    }
}
