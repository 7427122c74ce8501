//! Law 10: a module uses only modules on lower floors, and no neighbour on its own floor; the files
//! of a module form no cycles.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::ImportGraph;

const MODULE_LAYERS: &[(&str, u32)] = &[
    ("chunked_bytes", 0),
    ("debug", 0),
    ("error", 0),
    ("usage", 0),
    ("env", 0),
    ("fnv", 0),
    ("json_lines", 0),
    ("lock", 0),
    ("small_map", 0),
    ("store_thread", 1),
    ("item", 1),
    ("propagation", 2),
    ("request", 3),
    ("turn", 3),
    ("sse", 3),
    ("event", 4),
    ("framing", 4),
    ("stream", 5),
    ("http", 5),
    ("partial", 5),
    ("provider", 6),
    ("tool", 6),
    ("trace", 7),
    ("journal", 8),
    ("context", 8),
    ("world", 8),
    ("agent", 9),
    ("session", 10),
    ("replay", 10),
    ("task", 10),
    ("hub", 11),
    ("supervise", 11),
    ("durable", 12),
    ("ui", 12),
    ("guide", 11),
];

fn layer_of(module: &str) -> Option<u32> {
    MODULE_LAYERS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(source_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

/// The modules that the code of a file names by `crate::`, without comments and tests.
fn used_modules(source: &str) -> Vec<String> {
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

/// The uses in a source of `module` that violate the floors.
fn layer_violations(module: &str, source: &str) -> Vec<String> {
    let own = layer_of(module).unwrap_or_else(|| panic!("`{module}` has no floor"));
    let above = |used: &String| match layer_of(used) {
        Some(floor) => used != module && floor >= own,
        // An item at the crate's root would hide its floor.
        None => true,
    };
    used_modules(source).into_iter().filter(above).collect()
}

#[test]
fn every_module_depends_only_on_lower_layers() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for path in source_files(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if module == "lib" || path.ends_with("tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        assert_eq!(
            layer_violations(module, &source),
            Vec::<String>::new(),
            "in {}",
            inside.display()
        );
        checked += 1;
    }
    assert!(checked > 30, "only {checked} files were found");
}

#[test]
fn a_layering_violation_is_detected() {
    assert_eq!(layer_violations("turn", "use crate::stream::Step;"), ["stream"]);
    assert_eq!(layer_violations("turn", "use crate::request::Request;"), ["request"]);
    assert_eq!(
        layer_violations("turn", "    let x = crate::agent::f(crate::item::g());"),
        ["agent"]
    );
    assert_eq!(layer_violations("turn", "use crate::{Agent};"), [""]);
    assert!(
        layer_violations("turn", "/// See [`crate::stream::seal`].\nuse crate::turn::X;")
            .is_empty()
    );
}

/// The cycles of a module in a crate with these files.
fn import_cycles(module: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut read = ImportGraph::default();
    for (file, source) in files {
        read.add_file(file, source);
    }
    read.import_cycles(module)
}

/// The dependencies between the files of a crate, whose sources are in this folder.
fn read_crate(src: &Path) -> ImportGraph {
    let mut files = ImportGraph::default();
    for path in source_files(src) {
        let inside = path.strip_prefix(src).unwrap().to_str().unwrap().replace('\\', "/");
        files.add_file(&inside, &fs::read_to_string(&path).unwrap());
    }
    files
}

#[test]
fn the_files_of_a_module_have_no_import_cycles() {
    let files = read_crate(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for (module, _) in MODULE_LAYERS {
        assert_eq!(files.import_cycles(module), Vec::<Vec<String>>::new(), "in {module}");
    }
}

/// The folders of the crates beside the root, without those that are not published, which have no
/// README.
fn satellites() -> Vec<PathBuf> {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path());
    let found: Vec<_> = folders.filter(|folder| folder.join("README.md").exists()).collect();
    assert!(!found.is_empty(), "no crates were found");
    found
}

#[test]
fn the_files_of_a_satellite_have_no_import_cycles() {
    for folder in satellites() {
        let cycles = read_crate(&folder.join("src")).import_cycles("");
        assert_eq!(cycles, Vec::<Vec<String>>::new(), "in {}", folder.display());
    }
}

/// The crates of this repository that are dependencies of a package, without those of its tests.
fn own_dependencies(manifest: &str) -> Vec<&str> {
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
    let lines = dependencies.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split([' ', '.']).next());
    names.filter(|name| name.starts_with("turnstream")).collect()
}

/// The satellites that have other satellites as dependencies: the program, and the worker that
/// executes the runs of the suite for engines.
const USERS_OF_SATELLITES: [(&str, &[&str]); 2] = [
    (
        "cli",
        &[
            "turnstream-mcp",
            "turnstream-postgres",
            "turnstream-redis",
            "turnstream-sqlite",
            "turnstream-testing",
        ],
    ),
    ("restate", &["turnstream-testing"]),
];

/// The only crate of this repository below the root.
const MACROS: &str = "turnstream-macros";

#[test]
fn a_satellite_depends_on_the_root_only_with_two_exceptions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = |folder: &Path| fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    assert_eq!(own_dependencies(&manifest(root)), [MACROS]);
    assert!(own_dependencies(&manifest(&root.join("crates/macros"))).is_empty());
    for folder in satellites() {
        if folder.ends_with("macros") {
            continue;
        }
        let manifest = manifest(&folder);
        let mut found = own_dependencies(&manifest);
        let exception = USERS_OF_SATELLITES.iter().find(|(name, _)| folder.ends_with(name));
        found.retain(|name| !exception.is_some_and(|(_, allowed)| allowed.contains(name)));
        assert_eq!(found, ["turnstream"], "{}", folder.display());
    }
}

#[test]
fn an_import_cycle_is_detected() {
    let found = import_cycles(
        "m",
        &[
            ("m/mod.rs", "mod a; mod b; mod c; mod d;"),
            ("m/a.rs", "use super::b::B; struct A;"),
            ("m/b.rs", "use crate::m::c; struct B; fn f() { c::C }"),
            ("m/c.rs", "struct C; fn g() -> super::a::A {}"),
            // This file uses the cycle, and is not used by it.
            ("m/d.rs", "use crate::m::{a::A, b::{self, B}};"),
        ],
    );
    assert_eq!(found, [["m/a.rs", "m/b.rs", "m/c.rs"]]);
}

#[test]
fn an_import_cycle_between_the_files_of_a_crate_is_detected() {
    // A macro generates `AClient` in `a.rs`.
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::AClient; pub struct B;"),
        ("c.rs", "use crate::{A, b::B};"),
    ];
    assert_eq!(import_cycles("", &files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_reexported_name_is_attributed_to_its_defining_file() {
    let contents = "mod a; mod b; pub use a::A; pub(crate) use b::{B, other as renamed};";
    let below = ("m/b.rs", "pub struct B; pub fn other() {}");
    let above = ("m/a.rs", "use crate::m::{B, renamed}; pub struct A;");
    assert!(import_cycles("m", &[("m/mod.rs", contents), above, below]).is_empty());

    for back in ["fn other() -> crate::m::A {}", "use super::*; fn other() -> A {}"] {
        let back = ("m/b.rs", &*format!("pub struct B; {back}"));
        let found = import_cycles("m", &[("m/mod.rs", contents), above, back]);
        assert_eq!(found, [["m/a.rs", "m/b.rs"]]);
    }
}

#[test]
fn a_mod_rs_with_code_is_checked_like_any_file() {
    let files = [
        ("m/mod.rs", "mod a; use a::A; pub const NAME: &str = \"m\"; fn f(_: A) {}"),
        ("m/a.rs", "use super::NAME; pub struct A;"),
    ];
    assert_eq!(import_cycles("m", &files), [["m/a.rs", "m/mod.rs"]]);
    let inner = "mod a; pub const NAME: u8 = 1; mod value { use super::a::A; }";
    assert_eq!(import_cycles("m", &[("m/mod.rs", inner), files[1]]), [["m/a.rs", "m/mod.rs"]]);
}

#[test]
fn tests_comments_and_string_literals_are_not_dependencies() {
    let files = [
        ("m/mod.rs", "mod a; mod b;"),
        (
            "m/a.rs",
            "pub(in crate::m) struct A; // use super::b::B;\n\
             const S: &str = \"super::b::B\"; const C: char = '\"'; fn f<'a>() {}\n\
             #[cfg(test)] mod tests { use super::super::b::B; }\n\
             #[cfg(all(test, unix))] mod more { use super::super::b::B; }",
        ),
        ("m/b.rs", "use super::a::A; pub struct B;"),
        ("m/a/tests.rs", "use crate::m::b::B;"),
    ];
    assert!(import_cycles("m", &files).is_empty());
}
