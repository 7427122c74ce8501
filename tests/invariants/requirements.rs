//! The table in `tests/requirements.md`: the tests that it names exist, and so do the parts of the
//! crate that meet the requirements.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// A page with fewer rows was not read to its end.
const MIN_ROWS: usize = 270;

/// The numbers that the page must contain.
const NUMBERS: RangeInclusive<u32> = 1..=195;

struct Row<'a> {
    /// Numbers, separated by `, `, or `-`.
    numbers: &'a str,
    requirement: &'a str,
    parts: &'a str,
    tests: &'a str,
}

/// Returns the rows of the page's tables. A line that is not a row of four cells is a fault.
fn read_rows<'a>(page: &'a str, faults: &mut Vec<String>) -> Vec<Row<'a>> {
    let (mut heading, mut rows) = ("", Vec::new());
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        if !line.starts_with('|') || line.starts_with("|---") || line.starts_with("| no. |") {
            continue;
        }
        let cells = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
        let cells: Vec<&str> = cells.map_or(Vec::new(), |cells| cells.split(" | ").collect());
        match cells[..] {
            [numbers, requirement, parts, tests] => {
                rows.push(Row { numbers, requirement, parts, tests });
            }
            _ => faults.push(format!("{heading}: not four cells: {line}")),
        }
    }
    rows
}

/// Adds a row's numbers to the numbers of the page. Returns a fault if one of them is not a number
/// of a requirement.
fn add_numbers(row: &Row<'_>, found: &mut BTreeSet<u32>) -> Option<String> {
    if row.numbers == "-" {
        return None;
    }
    for number in row.numbers.split(", ") {
        match number.parse() {
            Ok(number) if NUMBERS.contains(&number) => drop(found.insert(number)),
            Ok(_) | Err(_) => return Some(format!("`{number}` is not a number of a requirement")),
        }
    }
    None
}

/// The texts between backticks.
fn code_spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns whether the source contains a test with this name. The attributes and comments of a
/// function are on the lines before it.
fn contains_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let function = format!("fn {name}(");
    let is_test = |at: usize| {
        let before = lines[..at].iter().rev();
        let mut before = before.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        before.any(|line| line.starts_with("#[") && line.contains("test"))
    };
    (0..lines.len()).any(|at| {
        let line = lines[at].strip_prefix("async ").unwrap_or(lines[at]);
        line.starts_with(&function) && is_test(at)
    })
}

/// Returns what is wrong with a test, which is written as `file: name`.
fn test_fault(root: &Path, test: &str) -> Option<String> {
    let Some((file, name)) = test.split_once(": ") else {
        return Some(format!("`{test}` is not a file and a test"));
    };
    match fs::read_to_string(root.join(file)) {
        Err(_) => Some(format!("{file} does not exist")),
        Ok(source) => {
            (!contains_test(&source, name)).then(|| format!("{file} has no test `{name}`"))
        }
    }
}

/// Returns whether a part exists: a file or, by its names, a path in the documentation.
fn is_part(root: &Path, names: &BTreeSet<String>, part: &str) -> bool {
    match part.contains('/') {
        true => root.join(part).exists(),
        false => part.split("::").all(|name| names.contains(name)),
    }
}

struct Page<'a> {
    rows: Vec<Row<'a>>,
    numbers: BTreeSet<u32>,
}

/// Returns the rows and the faults of a page.
fn check_page<'a>(root: &Path, names: &BTreeSet<String>, page: &'a str) -> (Page<'a>, Vec<String>) {
    let mut faults = Vec::new();
    let rows = read_rows(page, &mut faults);
    let (mut requirements, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for row in &rows {
        let mut found = Vec::from_iter(add_numbers(row, &mut numbers));
        if row.requirement.contains("partly") {
            found.push("the requirement is not met".to_owned());
        }
        if !requirements.insert(row.requirement) {
            found.push("the requirement has two rows".to_owned());
        }
        if code_spans(row.parts).next().is_none() {
            found.push("no part is named".to_owned());
        }
        let unknown = code_spans(row.parts).filter(|part| !is_part(root, names, part));
        found.extend(unknown.map(|part| format!("`{part}` does not exist")));
        if code_spans(row.tests).next().is_none() {
            found.push("no test is named".to_owned());
        }
        found.extend(code_spans(row.tests).filter_map(|test| test_fault(root, test)));
        faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", row.requirement)));
    }
    (Page { rows, numbers }, faults)
}

/// Adds the names that the Rust files of a folder contain.
fn add_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_names(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let found = source.split(|c: char| !c.is_alphanumeric() && c != '_');
            names.extend(found.map(str::to_owned));
        }
    }
}

#[test]
fn each_requirement_names_parts_and_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    add_names(&root.join("src"), &mut names);
    let page = fs::read_to_string(root.join("tests/requirements.md")).unwrap();
    let (Page { rows, numbers }, faults) = check_page(root, &names, &page);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("{} requirements", rows.len());
    assert!(rows.len() >= MIN_ROWS, "the page has {} rows", rows.len());
    let missing: Vec<u32> = NUMBERS.filter(|number| !numbers.contains(number)).collect();
    assert!(missing.is_empty(), "no row has the numbers {missing:?}");
}

#[test]
fn a_fault_in_the_table_of_requirements_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["Step", "Next"].map(str::to_owned).into();
    let faults = |rows: &str| {
        let page = format!(
            "## A\n\n| no. | requirement | type or function | test |\n|---|---|---|---|\n{rows}"
        );
        check_page(root, &names, &page).1.join("\n")
    };
    let file = "tests/invariants/requirements.rs";
    let test = format!("`{file}: a_fault_in_the_table_of_requirements_is_named`");
    assert_eq!(faults(&format!("| 1, 195 | r | `Step::Next`, `{file}` | {test} |")), "");

    let check = |rows: &str, expected: &str| assert_eq!(faults(rows), expected);
    let row = format!("| - | r | `Step` | {test} |");
    for number in ["196", "0", "", "1,2", "one"] {
        let fault = format!("r: `{number}` is not a number of a requirement");
        check(&format!("| {number} | r | `Step` | {test} |"), &fault);
    }
    let partly = format!("| 1 | r is partly met | `Step` | {test} |");
    check(&partly, "r is partly met: the requirement is not met");
    check(&format!("{row}\n{row}"), "r: the requirement has two rows");
    check("| - | r | `Step` |", "A: not four cells: | - | r | `Step` |");
    check("| - | r | `Step` |  |", "r: no test is named");
    check(&format!("| - | r |  | {test} |"), "r: no part is named");
    check(&format!("| - | r | `Step::Last` | {test} |"), "r: `Step::Last` does not exist");
    check(&format!("| - | r | `src/none.rs` | {test} |"), "r: `src/none.rs` does not exist");
    check("| - | r | `Step` | `src/none.rs: a` |", "r: src/none.rs does not exist");
    check("| - | r | `Step` | `a` |", "r: `a` is not a file and a test");
    // A function that is not a test does not count.
    let missing = format!("r: {file} has no test `code_spans`");
    check(&format!("| - | r | `Step` | `{file}: code_spans` |"), &missing);
}

#[test]
fn the_guide_says_when_not_to_use_an_agent() {
    let page = include_str!("../../src/guide/not_included.md");
    let (_, section) = page.split_once("## When not to use an agent").unwrap();
    for reason in ["a script", "approval", "check"] {
        assert!(section.contains(reason), "{reason}");
    }
}
