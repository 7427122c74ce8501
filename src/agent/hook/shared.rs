//! A hook behind a pointer is the hook.

use std::borrow::Cow;
use std::sync::Arc;

use crate::agent::State;
use crate::agent::hook::{BeforeTool, Hook, HookFuture, OnStop};
use crate::error::Error;
use crate::event::Outcome;
use crate::item::{History, Item, Json, ToolCall, ToolResult};
use crate::request::Request;
use crate::turn::Turn;

/// Passes every method on.
macro_rules! pointer {
    ($($pointer:ident),*) => {$(
        impl<H: Hook + ?Sized> Hook for $pointer<H> {
            fn name(&self) -> Cow<'_, str> {
                (**self).name()
            }

            fn transform_context<'a>(
                &'a self,
                state: &'a State,
                context: History,
            ) -> HookFuture<'a, History> {
                (**self).transform_context(state, context)
            }

            fn prepare<'a>(&'a self, state: &'a State, request: &'a mut Request) -> HookFuture<'a, ()> {
                (**self).prepare(state, request)
            }

            fn turn_started(&self, state: &State) -> HookFuture<'static, ()> {
                (**self).turn_started(state)
            }

            fn assistant_message(
                &self,
                state: &State,
                turn: &Arc<Turn>,
            ) -> HookFuture<'static, ()> {
                (**self).assistant_message(state, turn)
            }

            fn after_sampling(
                &self,
                state: &State,
                turn: &Arc<Turn>,
            ) -> HookFuture<'static, Vec<Item>> {
                (**self).after_sampling(state, turn)
            }

            fn repair(&self, state: &State, call: &ToolCall, why: &str) -> Option<String> {
                (**self).repair(state, call, why)
            }

            fn before_tool<'a>(
                &'a self,
                state: &'a State,
                call: &'a ToolCall,
            ) -> HookFuture<'a, BeforeTool> {
                (**self).before_tool(state, call)
            }

            fn after_tool(&self, call: &ToolCall, result: &mut ToolResult) {
                (**self).after_tool(call, result);
            }

            fn redact_progress(&self, call: &ToolCall, data: &mut Json) {
                (**self).redact_progress(call, data);
            }

            fn redact_evidence(&self, call: &ToolCall, evidence: &mut Json) {
                (**self).redact_evidence(call, evidence);
            }

            fn should_stop<'a>(&'a self, state: &'a State) -> HookFuture<'a, bool> {
                (**self).should_stop(state)
            }

            fn stop<'a>(&'a self, state: &'a State, turn: &'a Turn) -> HookFuture<'a, OnStop> {
                (**self).stop(state, turn)
            }

            fn failure(&self, state: &State, error: &Error) {
                (**self).failure(state, error);
            }

            fn finished(&self, outcome: &Outcome) {
                (**self).finished(outcome);
            }
        }
    )*};
}

pointer!(Arc, Box);
