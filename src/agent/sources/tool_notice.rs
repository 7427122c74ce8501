//! Creates the message that tells the model about changed tools.

use std::sync::Arc;

use crate::agent::sources::tool_listing::SourceTools;
use crate::item::truncate_middle;
use crate::tool::Tool;

/// The maximum number of names or reasons in each list.
const MAX_LISTED: usize = 20;

/// The maximum length of a name, a reason or an error message, in bytes.
const MAX_TEXT_BYTES: usize = 300;

/// Creates the message about changed tools from all sources. Returns `None` if there is nothing to
/// report. `before` is `None` for a run's first listing, for which only the tools that were left
/// out are reported.
pub(in crate::agent) fn tool_notice(
    names: &[Arc<str>],
    before: Option<&[SourceTools]>,
    now: &[SourceTools],
) -> Option<String> {
    let parts = names.iter().zip(now).enumerate().filter_map(|(at, (name, now))| {
        match before.and_then(|before| before.get(at)) {
            Some(before) => change_notice(name, before, now),
            None => {
                let left_out = list_texts(now.notes.iter())?;
                Some(format!("Some tools of `{name}` are left out: {left_out}."))
            }
        }
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// Creates the message about changed tools from one source.
fn change_notice(name: &str, before: &SourceTools, now: &SourceTools) -> Option<String> {
    match (&before.failure, &now.failure) {
        (None, Some(error)) => {
            let why = truncate_middle(error.message().to_owned(), MAX_TEXT_BYTES);
            return Some(format!(
                "The tools of `{name}` could not be listed, and are unchanged: {why}."
            ));
        }
        // The listing failed again, so the tools have not changed.
        (Some(_), Some(_)) => return None,
        (_, None) => {}
    }
    let find =
        |tools: &'_ [Tool], tool: &Tool| tools.iter().position(|it| it.name() == tool.name());
    let is_new = |tool: &&Tool| find(&before.tools, tool).is_none();
    let is_gone = |tool: &&Tool| find(&now.tools, tool).is_none();
    let is_changed = |tool: &&Tool| {
        let before = find(&before.tools, tool).map(|at| &before.tools[at]);
        before.is_some_and(|before| !before.is_run_like(tool) && before.spec() != tool.spec())
    };
    let is_untold = |note: &&String| !before.notes.contains(note);
    let lines = [
        ("New", list_names(now.tools.iter().filter(is_new))),
        ("Not available any more", list_names(before.tools.iter().filter(is_gone))),
        ("Described differently", list_names(now.tools.iter().filter(is_changed))),
        ("Left out", list_texts(now.notes.iter().filter(is_untold))),
    ];
    let lines = lines.into_iter().filter_map(|(what, list)| Some(format!(" {what}: {}.", list?)));
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("The tools of `{name}` have changed.{lines}"))
}

fn list_names<'a>(tools: impl Iterator<Item = &'a Tool>) -> Option<String> {
    let quoted = |tool: &Tool| format!("`{}`", tool.name());
    list(tools.map(quoted), ", ")
}

fn list_texts<'a>(texts: impl Iterator<Item = &'a String>) -> Option<String> {
    list(texts.cloned(), "; ")
}

/// Joins the first [`MAX_LISTED`] strings, and appends the number of remaining strings, if any.
/// Returns `None` if `texts` is empty.
fn list(texts: impl Iterator<Item = String>, separator: &str) -> Option<String> {
    let mut texts = texts;
    let clip = |text| truncate_middle(text, MAX_TEXT_BYTES);
    let first: Vec<String> = texts.by_ref().take(MAX_LISTED).map(clip).collect();
    if first.is_empty() {
        return None;
    }
    let list = first.join(separator);
    Some(match texts.count() {
        0 => list,
        more => format!("{list} and {more} more"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::tool::ToolSpec;

    fn tool(name: &str, description: &str) -> Tool {
        let spec = ToolSpec::new(name, description, json!({ "type": "object" }));
        Tool::raw(spec, |_, _| async { "fine" }).unwrap()
    }

    fn source(tools: &[&str]) -> SourceTools {
        let tools = tools.iter().map(|name| tool(name, "")).collect();
        SourceTools { tools, ..SourceTools::default() }
    }

    #[track_caller]
    fn check(before: Option<&SourceTools>, now: &SourceTools, notice: Option<&str>) {
        let before = before.map(std::slice::from_ref);
        let notice_text = tool_notice(&["files".into()], before, std::slice::from_ref(now));
        assert_eq!(notice_text.as_deref(), notice);
    }

    #[test]
    fn a_notice_lists_added_removed_changed_and_omitted_tools() {
        let before = source(&["a", "b"]);
        let mut now = source(&["b", "c", "d"]);
        now.tools[0] = tool("b", "another");
        now.notes = vec!["`x.y`: the name has a dot".to_owned()];
        let notice = "The tools of `files` have changed. New: `c`, `d`. Not available any more: `a`. \
                      Described differently: `b`. Left out: `x.y`: the name has a dot.";
        check(Some(&before), &now, Some(notice));
    }

    #[test]
    fn unchanged_tools_produce_no_notice() {
        check(Some(&source(&["a", "b"])), &source(&["a", "b"]), None);
        check(Some(&source(&["a", "b"])), &source(&["b", "a"]), None);
        check(None, &source(&["a"]), None);
    }

    #[test]
    fn the_notice_for_the_first_list_names_only_omitted_tools() {
        let mut now = source(&["a"]);
        now.notes = vec!["`b`: why".to_owned(), "`c`: why not".to_owned()];
        let notice = "Some tools of `files` are left out: `b`: why; `c`: why not.";
        check(None, &now, Some(notice));
        // It was reported with the first list.
        check(Some(&now), &now, None);
    }

    #[test]
    fn a_source_failure_is_reported_once() {
        let failed = |message: &str| SourceTools {
            failure: Some(Error::new(ErrorKind::Connect, message)),
            ..source(&["a"])
        };
        let notice = "The tools of `files` could not be listed, and are unchanged: it is down.";
        check(Some(&source(&["a"])), &failed("it is down"), Some(notice));
        check(Some(&failed("it is down")), &failed("it is still down"), None);
        check(Some(&failed("it is down")), &source(&["a"]), None);
    }

    #[test]
    fn long_lists_and_texts_are_cut() {
        let names: Vec<String> = (0..23).map(|n| format!("t{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let notice_text =
            tool_notice(&["files".into()], Some(&[source(&[])]), &[source(&names)]).unwrap();
        assert!(notice_text.ends_with("`t19` and 3 more."), "{notice_text}");
        let mut long = source(&[]);
        long.notes = vec!["x".repeat(10_000)];
        let notice_text = tool_notice(&["files".into()], None, &[long]).unwrap();
        assert!(notice_text.len() < 400, "{notice_text}");
    }
}
