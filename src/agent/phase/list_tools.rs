//! Lists the tools from an agent's sources before a request.

use futures::future::join_all;

use crate::agent::State;
use crate::agent::run::run_shared::RunShared;
use crate::agent::sources::catalog_notice::catalog_notice;
use crate::agent::sources::tool_listing::{SourceTools, ToolListing, name_error};
use crate::agent::sources::tool_notice::tool_notice;
use crate::error::Error;
use crate::item::{Content, History};
use crate::world::EffectKind;

/// Returns whether the tools from the sources must be listed. Tools are listed once per iteration,
/// but not for a wrap-up turn, in which no tools are called.
pub(in crate::agent) fn needs_listing(run: &RunShared, state: &State) -> bool {
    if run.settings.tools.sources.is_empty() {
        return false;
    }
    match run.control().tools.listed.last_iteration() {
        None => true,
        Some(last) => last != run.effects.iteration() && state.end.wrap_up_reason.is_none(),
    }
}

/// Lists the tools from all sources. The new tool lists take effect immediately.
pub(in crate::agent) async fn refresh_tools(run: &RunShared, state: &State) -> Result<(), Error> {
    let listing_run = run.clone();
    let list = async move {
        let tools = &listing_run.settings.tools;
        let names = tools.sources.names();
        let listed = join_all((0..names.len()).map(|index| tools.sources.list(index))).await;
        let current = listing_run.control().tools.listed.current();
        let before = current.as_ref().map(|current| &current.sources[..]);
        ToolListing::new(&tools.toolkit, names, before, listed)
    };
    let listing: ToolListing = run.effects.perform(EffectKind::ToolListing, list).await?;
    apply_listing(run, state, listing);
    Ok(())
}

fn apply_listing(run: &RunShared, state: &State, listing: ToolListing) {
    let tools = &run.settings.tools;
    let names = tools.sources.names();
    let current = run.control().tools.listed.current();
    let before = current.as_ref().map(|current| &current.sources[..]);
    let unlisted = vec![SourceTools::default(); names.len()];
    let late_bound = |index, record| tools.sources.late_bound_tool(index, record);
    let now = listing.apply_to(before.unwrap_or(&unlisted), late_bound);
    for (index, (before, now)) in before.unwrap_or(&unlisted).iter().zip(&now).enumerate() {
        if let (None, Some(error)) = (&before.failure, &now.failure) {
            run.hooks().on_failure(state, &name_error(&names[index], error.clone()));
        }
    }
    // An earlier run with this history may already have reported which tools are left out.
    let notice = tool_notice(names, before, &now)
        .filter(|notice| before.is_some() || !has_message(&state.history, notice));
    let catalogs = catalog_notices(run, &now);
    let notices = notice.into_iter().chain(catalogs).collect();
    let iteration = run.effects.iteration();
    run.control().tools.listed.replace(&tools.toolkit, now, iteration, notices);
}

/// Reports the catalogs that were listed last, if a compaction has removed the messages about them.
/// In each iteration, the messages are restored at most once.
pub(in crate::agent) fn restore_removed_catalogs(run: &RunShared) {
    if run.settings.tools.sources.is_empty() {
        return;
    }
    let listed = &run.control().tools.listed;
    if let Some(current) = listed.current() {
        let notices = catalog_notices(run, &current.sources);
        listed.restore_catalogs(notices, run.effects.iteration());
    }
}

/// Returns the messages about catalogs that the model has not received.
fn catalog_notices(run: &RunShared, sources: &[SourceTools]) -> Vec<String> {
    let (history, pending) = (run.history(), run.control().tools.listed.pending_notices());
    let names = run.settings.tools.sources.names();
    let notices = names.iter().zip(sources);
    let notices =
        notices.filter_map(|(name, it)| catalog_notice(name, &it.catalog, &history, &pending));
    notices.collect()
}

/// Returns whether a message in the history consists of the notice, or starts with it and reports
/// catalogs after it.
fn has_message(history: &History, notice: &str) -> bool {
    let is_rest = |rest: &str| rest.is_empty() || rest.starts_with('\n');
    let mut prompts = history.newest_first().filter_map(|item| item.as_user());
    prompts.any(|content| match content {
        Content::Text(text) => text.strip_prefix(notice).is_some_and(is_rest),
        Content::Parts(_) => false,
    })
}
