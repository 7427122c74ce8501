//! The table of the options that the vendors' libraries have, in `options.tsv`: each public item
//! that it names exists, each `extra` is sent, and the guide contains the table.
//! `UPDATE_GUIDE=1 cargo test --test wires table` writes it.

use std::fmt::Write as _;

use turnstream::request::Options;

use super::*;
use crate::guide_table::check_tables_of_page;

const OPTIONS: &str = include_str!("options.tsv");
const PUBLIC_ITEMS: &str = include_str!("../../public_api/api.txt");
const TABLE_BEGIN: &str =
    "<!-- the table below is made by tests/wires/request_options/options_table.rs -->";

/// How an agent sets an option.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// With public items.
    Typed,
    /// With JSON in `Options::extra`.
    Extra,
    /// The same, and a beta header.
    Beta,
    /// Not at all, for a reason.
    No,
}

/// A line of the file.
struct Line<'a> {
    row: usize,
    option: &'a str,
    wires: Vec<Wire>,
    kind: Kind,
    value: &'a str,
}

fn lines() -> Vec<Line<'static>> {
    let lines = OPTIONS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [row, option, wires, kind, value] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("a line has five fields: {line}")
            };
            let wire = |name| match name {
                "Messages" => Wire::Messages,
                "Chat" => Wire::Chat,
                "Responses" => Wire::Responses,
                "Gemini" => Wire::Gemini,
                "Ollama" => Wire::Ollama,
                name => panic!("there is no wire {name}"),
            };
            let kind = match kind {
                "typed" => Kind::Typed,
                "extra" => Kind::Extra,
                "beta" => Kind::Beta,
                "no" => Kind::No,
                kind => panic!("there is no kind {kind}"),
            };
            let wires = wires.split(',').map(wire).collect();
            Line { row: row.parse().expect(line), option, wires, kind, value }
        })
        .collect()
}

#[test]
fn each_item_in_the_table_of_options_is_public() {
    let is_public = |item: &str| {
        let ends = [":", "(", "<", ""];
        PUBLIC_ITEMS.lines().any(|line| {
            let path = line.split(' ').find(|word| word.starts_with("turnstream::"));
            path.is_some_and(|path| {
                ends.iter().any(|end| {
                    let wanted = format!("::{item}{end}");
                    if end.is_empty() { path.ends_with(&wanted) } else { path.contains(&wanted) }
                })
            })
        })
    };
    assert!(!is_public("Options::no_such_option") && !is_public("Options::user_id"));
    for line in lines().iter().filter(|line| line.kind == Kind::Typed) {
        for item in line.value.split(' ') {
            assert!(is_public(item), "{item} is not listed in tests/public_api/api.txt");
        }
    }
}

#[test]
fn each_extra_in_the_table_of_options_is_sent() {
    let is_extra = |line: &&Line<'_>| matches!(line.kind, Kind::Extra | Kind::Beta);
    for line in lines().iter().filter(is_extra) {
        let Ok(Value::Object(extra)) = serde_json::from_str(line.value) else {
            panic!("{} is not an object", line.value)
        };
        let request = hello()
            .with_tools([look_up()])
            .with_options(Options { extra: extra.clone(), ..Options::default() });
        for wire in &line.wires {
            let body = wire.encode(&request).unwrap();
            for (name, value) in &extra {
                let mut merged = body[name].clone();
                assert!(!merged.is_null(), "{wire:?} lacks {name}");
                if let (Value::Object(sent), Value::Object(given)) = (&mut merged, value) {
                    sent.retain(|name, _| given.contains_key(name));
                }
                assert_eq!(&merged, value, "{wire:?}: {}", line.option);
            }
        }
    }
}

#[test]
fn the_table_of_options_covers_every_row_in_order_and_names_each_cell_once() {
    let lines = lines();
    let rows: Vec<usize> = lines.iter().map(|line| line.row).collect();
    assert!(rows.is_sorted());
    for row in 1..=30 {
        assert!(rows.contains(&row), "row {row} is missing");
    }
    for (at, line) in lines.iter().enumerate() {
        let same = |other: &&Line<'_>| other.option == line.option && other.row == line.row;
        for other in lines[at + 1..].iter().filter(same) {
            let twice = line.wires.iter().find(|wire| other.wires.contains(wire));
            assert_eq!(twice, None, "{}", line.option);
        }
    }
}

#[test]
fn the_guides_table_of_options_is_that_of_the_file() {
    let mut table = "| Option | In an agent |\n|---|---|\n".to_owned();
    let lines = lines();
    for option in lines.chunk_by(|one, next| (one.row, one.option) == (next.row, next.option)) {
        let cells = option.iter().map(cell).collect::<Vec<_>>().join("; ");
        writeln!(table, "| {} | {cells} |", option[0].option).unwrap();
    }
    check_tables_of_page("providers.md", TABLE_BEGIN, &table);
}

fn initials(wires: &[Wire]) -> String {
    wires.iter().filter_map(|wire| format!("{wire:?}").chars().next()).collect()
}

fn cell(line: &Line<'_>) -> String {
    let wires = initials(&line.wires);
    match line.kind {
        Kind::Typed => {
            let items = line.value.split(' ').map(|item| format!("`{item}`"));
            format!("{wires}: {}", items.collect::<Vec<_>>().join(", "))
        }
        Kind::Extra => format!("{wires}: `{}`", line.value),
        Kind::Beta => format!("{wires}\\*: `{}`", line.value),
        Kind::No => format!("{wires}: no, {}", line.value),
    }
}
