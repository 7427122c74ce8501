//! Law 10: a module uses lower floors only, and no neighbour on its own floor.

use std::fs;
use std::path::{Path, PathBuf};

const FLOORS: &[(&str, u32)] = &[
    ("error", 0),
    ("usage", 0),
    ("env", 0),
    ("item", 1),
    ("request", 2),
    ("turn", 2),
    ("sse", 2),
    ("event", 3),
    ("framing", 3),
    ("stream", 4),
    ("http", 4),
    ("provider", 5),
    ("tool", 5),
    ("story", 6),
    ("context", 7),
    ("agent", 8),
    ("session", 9),
    ("task", 9),
    ("testing", 9),
    ("guide", 10),
];

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

/// The modules that the code of a file names by `crate::`, comments and tests left out.
fn used(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut modules = Vec::new();
    for line in lines {
        for rest in line.split("crate::").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            modules.push(rest[..end].to_owned());
        }
    }
    modules
}

/// What a source of `module` uses that it must not.
fn breaches(module: &str, source: &str) -> Vec<String> {
    let own = floor(module).unwrap_or_else(|| panic!("`{module}` has no floor"));
    let above = |used: &String| match floor(used) {
        Some(floor) => used != module && floor >= own,
        // Something at the root of the crate hides its floor.
        None => true,
    };
    used(source).into_iter().filter(above).collect()
}

#[test]
fn every_module_uses_lower_floors_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if module == "lib" || path.ends_with("tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        assert_eq!(breaches(module, &source), Vec::<String>::new(), "in {}", inside.display());
        checked += 1;
    }
    assert!(checked > 30, "only {checked} files were found");
}

#[test]
fn a_breach_is_found() {
    assert_eq!(breaches("turn", "use crate::stream::Step;"), ["stream"]);
    assert_eq!(breaches("turn", "use crate::request::Request;"), ["request"]);
    assert_eq!(breaches("turn", "    let x = crate::agent::f(crate::item::g());"), ["agent"]);
    assert_eq!(breaches("turn", "use crate::{Agent};"), [""]);
    assert!(breaches("turn", "/// See [`crate::stream::seal`].\nuse crate::turn::X;").is_empty());
}
