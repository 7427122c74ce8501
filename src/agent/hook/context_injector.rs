//! The implementation of [`Hook`] for `ContextInjector`.

use std::borrow::Cow;

use futures::FutureExt;

use crate::agent::State;
use crate::agent::hook::{Hook, HookFuture};
use crate::context::{ContextInjector, InjectedContext};
use crate::item::History;

/// Injects context into each request, before it is sent.
impl Hook for ContextInjector {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("context_injector")
    }

    fn transform_context<'a>(
        &'a self,
        state: &'a State,
        context: History,
    ) -> HookFuture<'a, History> {
        async move {
            let recalled = match &self.recall {
                Some(recall) => recall.notes(&state.history).await,
                None => Ok(Vec::new()),
            };
            if let Err(error) = &recalled {
                state.report_failure(error.clone());
            }
            let InjectedContext { context, selection } = self.inject_with(&context, &recalled);
            if let Some(on_selection) = &self.on_selection {
                on_selection(&selection);
            }
            Ok(context)
        }
        .boxed()
    }
}
