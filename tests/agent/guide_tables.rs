//! The tables of names in the guide and in the docs of the crates are complete: each name in the
//! code has one row, and each row has a name of the code.

use std::fs;
use std::path::Path;

use serde_json::json;
use turnstream::event::Transition;
use turnstream::provider::Scripted;
use turnstream::{Agent, Event, Outcome};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The part of a text between two texts, or to the end of the text.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("there is no {start:?}"));
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

fn guide_section(page: &str, heading: &str) -> String {
    between(&read(&format!("src/guide/{page}.md")), &format!("## {heading}\n"), "\n## ").to_owned()
}

/// The names in backticks of a text.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The names in the first cells of a text's tables, without the headings.
fn first_cells(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let rows = lines.iter().zip(lines.iter().skip(1).chain([&""]));
    let rows = rows.filter(|(row, next)| row.starts_with("| ") && !next.starts_with("|---"));
    rows.flat_map(|(row, _)| quoted(row.split('|').nth(1).unwrap())).collect()
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// The serialized names of an enum's variants, from its formatted source.
fn variants(file: &str, name: &str) -> Vec<String> {
    let source = read(file);
    let (mut names, mut renamed) = (Vec::new(), None);
    for line in between(&source, &format!("pub enum {name} {{\n"), "\n}").lines() {
        let Some(line) = line.strip_prefix("    ") else { continue };
        if let Some(new) = line.strip_prefix("#[serde(rename = \"") {
            renamed = new.split('"').next().map(str::to_owned);
        } else if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let ends = line.find(|letter: char| !letter.is_ascii_alphanumeric());
            let variant = &line[..ends.unwrap_or(line.len())];
            names.push(renamed.take().unwrap_or_else(|| snake_case(variant)));
        }
    }
    assert!(!names.is_empty(), "{name} has no variants in {file}");
    names
}

/// Checks that both lists have the same names, each of them once.
#[track_caller]
fn assert_same(mut documented: Vec<String>, mut actual: Vec<String>) {
    documented.sort();
    actual.sort();
    assert_eq!(documented, actual, "left: the table's names, right: those of the code");
}

/// Whether a reader of the crate knows an event of this type.
fn is_event(name: &str) -> bool {
    !matches!(serde_json::from_value(json!({ "type": name })), Ok(Event::Unknown))
}

#[test]
fn the_guide_lists_each_event_once() {
    assert!(!is_event("no_such_event"));
    // The variants that contain events of other tables, and the placeholder for other types.
    let mut run = variants("src/event/event.rs", "Event");
    run.retain(|name| !["turn", "tool", "unknown"].contains(&name.as_str()));
    // An event of a sub-agent has the same form as `Event::Nested`.
    let mut tools = variants("src/event/event.rs", "ToolEvent");
    tools.retain(|name| name != "nested");
    let turn = variants("src/turn/event.rs", "TurnEvent");
    for (heading, names) in [("The run", run), ("The turn", turn), ("The tools", tools)] {
        for name in &names {
            assert!(is_event(name), "{name}");
        }
        assert_same(first_cells(&guide_section("events", heading)), names);
    }
}

#[tokio::test]
async fn the_guide_lists_each_end_reason_once() {
    let mut reasons = variants("src/event/end_reason.rs", "EndReason");
    // The placeholder for the reasons of later versions.
    reasons.retain(|name| name != "other");
    let outcome = Agent::new(Scripted::new(["Hi."])).run("Hi").outcome().await;
    let mut json = serde_json::to_value(&outcome).unwrap();
    for name in &reasons {
        json["reason"] = json!(name);
        let read: Outcome = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read.reason.as_str(), name);
    }
    assert_same(first_cells(&guide_section("how_a_run_ends", "Reasons")), reasons);
}

#[test]
fn the_guide_lists_each_transition_once() {
    let mut transitions = variants("src/event/transition.rs", "Transition");
    transitions.retain(|name| name != "other");
    for name in &transitions {
        let transition: Transition = serde_json::from_value(json!(name)).unwrap();
        assert_ne!(transition, Transition::Other, "{name}");
    }
    let section = guide_section("how_a_run_ends", "Why a run continues");
    assert_same(first_cells(&section), transitions);
}

#[test]
fn the_guide_lists_each_hook_point_once() {
    let list = read("src/agent/hook/hook_points.rs");
    for (kinds, heading) in [
        (&["deciding ", "at_once "][..], "Hooks that decide"),
        (&["observing ", "at_once "][..], "Hooks that observe"),
    ] {
        let documented = first_cells(&guide_section("hooks", heading));
        assert!(!documented.is_empty());
        for name in &documented {
            let is_entry = |kind| list.contains(&format!("\n    {kind}{name}("));
            assert!(kinds.iter().any(is_entry), "{heading}: {name}");
        }
    }
    let mut documented = first_cells(&guide_section("hooks", "Hooks that decide"));
    documented.extend(first_cells(&guide_section("hooks", "Hooks that observe")));
    let entries = list.lines().filter_map(|line| {
        let entry = line.strip_prefix("    ")?;
        let kinds = ["deciding ", "at_once ", "observing "];
        let entry = kinds.iter().find_map(|kind| entry.strip_prefix(kind))?;
        Some(entry.split_once('(')?.0.to_owned())
    });
    assert_same(documented, entries.collect());
}

/// The names of a crate's features, and those of them that are enabled by default.
fn features(manifest: &str) -> (Vec<String>, Vec<String>) {
    let list = between(manifest, "\n[features]\n", "\n[");
    let lines = list.lines().filter_map(|line| line.split_once(" = "));
    let (mut names, mut defaults) = (Vec::new(), Vec::new());
    for (name, enables) in lines.filter(|(name, _)| !name.starts_with('#')) {
        match name {
            "default" => {
                defaults = enables.split('"').skip(1).step_by(2).map(str::to_owned).collect();
            }
            name => names.push(name.to_owned()),
        }
    }
    (names, defaults)
}

#[test]
fn each_crate_documents_its_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut folders: Vec<String> =
        crates.map(|entry| format!("crates/{}/", entry.unwrap().file_name().display())).collect();
    folders.push(String::new());
    let mut checked = 0;
    for folder in folders {
        let manifest = read(&format!("{folder}Cargo.toml"));
        if manifest.contains("\npublish = false") || !manifest.contains("\n[features]\n") {
            continue;
        }
        let (names, defaults) = features(&manifest);
        let pages = [format!("{folder}src/lib.rs"), format!("{folder}README.md")];
        let pages = pages.iter().filter(|page| root.join(page).exists());
        let docs: String = pages.map(|page| read(page).replace("//! ", "")).collect();
        assert!(docs.contains("\n| feature |"), "{folder}: there is no table of features");
        let table = between(&docs, "\n| feature |", "\n\n");
        let table = table.split("\n//!").next().unwrap();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
        assert_same(first_cells(&rows.join("\n")), names);
        let documented = rows.iter().filter(|row| row.contains("| yes |"));
        let documented = documented.flat_map(|row| first_cells(row)).collect();
        assert_same(documented, defaults);
        checked += 1;
    }
    assert!(checked >= 8, "{checked}");
    let readme = read("README.md").replace('\n', " ");
    let sentence = between(&readme, "Each Cargo feature adds a dependency: ", ". ");
    assert_same(quoted(sentence).collect(), features(&read("Cargo.toml")).0);
}
