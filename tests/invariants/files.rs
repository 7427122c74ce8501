//! The dependencies between source files: which file names items of which other file.
//!
//! A name is followed to the file that defines it, through modules, imports and re-exports. A
//! `mod.rs` or `lib.rs` that only declares modules and re-exports is a contents page: a name that is
//! imported through it belongs to the file that defines it. If a file does not define a name that
//! others import from it, a macro generates it there. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::Chars;

/// A path as it is written, or the path of a module below the crate's root.
type ModulePath = Vec<String>;

/// The modules of a crate, by their path.
#[derive(Default)]
pub(crate) struct ImportGraph {
    modules: BTreeMap<ModulePath, Module>,
}

/// A module, in a file of its own or inline in another one.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// The paths that its code uses.
    used_paths: Vec<ModulePath>,
}

struct Import {
    path: ModulePath,
    /// The name that is imported, `*` for all names.
    local_name: String,
    is_reexport: bool,
}

impl ImportGraph {
    /// Adds a file by its path below `src`, unless its name marks it as tests.
    pub(crate) fn add_file(&mut self, file: &str, source: &str) {
        if file.ends_with("tests.rs") || file.contains("tests/") {
            return;
        }
        let mut place: ModulePath =
            file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(place.last().map(String::as_str), Some("mod" | "lib")) {
            place.pop();
        }
        self.read_module(file, &place, &mut Tokens(tokenize(source).into_iter().peekable()));
    }

    /// The groups of files below a folder, or in the whole crate if it is empty, that use each other,
    /// directly or through others.
    pub(crate) fn import_cycles(&self, folder: &str) -> Vec<Vec<String>> {
        let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let inside = folder.split('/').filter(|name| !name.is_empty());
        let inside: ModulePath = inside.map(str::to_owned).collect();
        for (place, module) in &self.modules {
            if place.starts_with(&inside) {
                used.entry(&module.file).or_default().extend(self.used_files(place, module));
            }
        }
        let reached = |from: &str| {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&str> = vec![from];
            while let Some(file) = next.pop() {
                let new = used.get(file).into_iter().flatten().filter(|to| reached.insert(**to));
                next.extend(new.copied().collect::<Vec<_>>());
            }
            reached
        };
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            used.keys().map(|file| (*file, reached(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, others) in &reached {
            if others.contains(file) {
                let uses_it =
                    |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(file));
                let back = others.iter().filter(uses_it);
                circles.insert(back.map(|&file| file.to_owned()).collect::<Vec<_>>());
            }
        }
        circles.into_iter().collect()
    }

    /// The other files whose items a module uses.
    fn used_files<'a>(
        &'a self,
        place: &ModulePath,
        module: &'a Module,
    ) -> impl Iterator<Item = &'a str> {
        let contents = is_contents_page(&module.file);
        let imports = module.imports.iter().filter(move |import| !(contents && import.is_reexport));
        // A path of a single name is an import, which was counted already, unless all names are
        // imported.
        let all = module.imports.iter().any(|import| import.local_name == "*");
        let paths = module.used_paths.iter().filter(move |path| all || path.len() > 1);
        let paths = imports.map(|import| &import.path).chain(paths);
        let files: Vec<&str> = paths.filter_map(|path| self.resolve_file(place, path, 0)).collect();
        files.into_iter().filter(|file| *file != module.file)
    }

    /// The file that defines the item at a path, as seen from a module.
    fn resolve_file(&self, from: &[String], path: &[String], depth: usize) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            _ if depth > 30 => None,
            "crate" => self.resolve_in_module(&[], rest, depth),
            "self" => self.resolve_in_module(from, rest, depth),
            "super" => match rest.first().map(String::as_str) {
                Some("super") => self.resolve_file(from.split_last()?.1, rest, depth + 1),
                _ => self.resolve_in_module(from.split_last()?.1, rest, depth),
            },
            // A name that the module does not know belongs to another crate.
            name if self.is_known_name(from, name) => self.resolve_in_module(from, path, depth),
            _ => None,
        }
    }

    fn is_known_name(&self, place: &[String], name: &str) -> bool {
        let module = &self.modules[place];
        self.modules.contains_key(&child_path(place, name))
            || module.items.contains(name)
            || module
                .imports
                .iter()
                .any(|import| import.local_name == name || import.local_name == "*")
    }

    /// The same for a path that starts in a module.
    fn resolve_in_module(&self, place: &[String], path: &[String], depth: usize) -> Option<&str> {
        let own = self.modules.get(place).map(|module| module.file.as_str());
        let Some((name, rest)) = path.split_first() else {
            // The path names the module itself.
            return own.filter(|file| !is_contents_page(file));
        };
        let inner = child_path(place, name);
        if self.modules.contains_key(&inner) {
            return self.resolve_in_module(&inner, rest, depth);
        }
        let module = self.modules.get(place)?;
        if module.items.contains(name) {
            return own;
        }
        let imported = |import: &Import| {
            let path = match import.local_name.as_str() {
                "*" => [&import.path, path].concat(),
                alias if alias == name => [&import.path, rest].concat(),
                _ => return None,
            };
            self.resolve_file(place, &path, depth + 1)
        };
        let imported = module.imports.iter().find_map(imported);
        imported.or_else(|| own.filter(|file| !is_contents_page(file)))
    }

    /// Parses a module up to its end.
    fn read_module(&mut self, file: &str, place: &ModulePath, tokens: &mut Tokens) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let mut depth = 0;
        let mut is_public = false;
        while let Some(token) = tokens.0.next() {
            match token.as_str() {
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "#" => {
                    if tokens.read_is_test_attribute() {
                        tokens.skip_item();
                    }
                    continue;
                }
                "pub" => {
                    tokens.skip_group("(", ")");
                    is_public = true;
                    continue;
                }
                "use" => {
                    for (path, name) in tokens.read_use_tree(&[]) {
                        module.imports.push(Import {
                            path,
                            local_name: name,
                            is_reexport: is_public,
                        });
                    }
                }
                "mod" => {
                    let inner = child_path(place, &tokens.0.next().unwrap_or_default());
                    if tokens.0.next_if(|token| token == "{").is_some() {
                        self.read_module(file, &inner, tokens);
                    }
                }
                "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type"
                | "macro_rules"
                    if depth == 0 =>
                {
                    tokens.0.next_if(|token| token == "!" || token == "mut");
                    module.items.extend(tokens.0.next_if(|token| is_identifier(token)));
                }
                _ if is_identifier(&token) => module.used_paths.push(tokens.read_path(token)),
                _ => {}
            }
            is_public = false;
        }
        self.modules.insert(place.clone(), module);
    }
}

fn is_contents_page(file: &str) -> bool {
    file.ends_with("mod.rs") || file == "lib.rs"
}

fn child_path(place: &[String], name: &str) -> ModulePath {
    [place, &[name.to_owned()]].concat()
}

fn is_identifier(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Tokens(Peekable<std::vec::IntoIter<String>>);

impl Tokens {
    /// Parses the tokens after `#`. Returns whether they are a test attribute.
    fn read_is_test_attribute(&mut self) -> bool {
        self.0.next_if(|token| token == "!");
        let attribute = self.skip_group("[", "]").concat();
        attribute == "cfg(test)" || attribute.starts_with("cfg(all(test,")
    }

    /// Skips to the end of an item: a semicolon or a block.
    fn skip_item(&mut self) {
        while let Some(token) = self.0.next_if(|token| token != "{") {
            if token == ";" {
                return;
            }
        }
        self.skip_group("{", "}");
    }

    /// Skips a group in brackets, if one starts here.
    fn skip_group(&mut self, open: &str, close: &str) -> Vec<String> {
        let mut inside = Vec::new();
        let mut depth = 0;
        while let Some(token) = self.0.next_if(|token| depth > 0 || token == open) {
            depth += i32::from(token == open) - i32::from(token == close);
            if depth == 0 {
                break;
            }
            inside.push(token);
        }
        inside.into_iter().skip(1).collect()
    }

    /// Parses a path whose first name was parsed already.
    fn read_path(&mut self, first: String) -> ModulePath {
        let mut path = vec![first];
        while self.0.next_if(|token| token == "::").is_some() {
            match self.0.next_if(|token| is_identifier(token)) {
                Some(name) => path.push(name),
                None => break,
            }
        }
        path
    }

    /// Parses a tree of imports: each path, and its local name.
    fn read_use_tree(&mut self, before: &[String]) -> Vec<(ModulePath, String)> {
        self.0.next_if(|token| token == "::");
        let mut path = before.to_vec();
        let mut found = Vec::new();
        while let Some(token) = self.0.next_if(|token| token != "," && token != "}") {
            match token.as_str() {
                "{" => {
                    while self.0.next_if(|token| token == "}").is_none() {
                        found.extend(self.read_use_tree(&path));
                        self.0.next_if(|token| token == ",");
                    }
                    return found;
                }
                "as" => return vec![(path, self.0.next().unwrap_or_default())],
                "*" => return vec![(path, token)],
                ";" => break,
                "::" => {}
                "self" if !before.is_empty() => {}
                _ => path.push(token),
            }
        }
        let name = path.last().cloned().unwrap_or_default();
        vec![(path, name)]
    }
}

/// The names and symbols of a source, without comments, strings, characters and lifetimes.
fn tokenize(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => drop(rest.by_ref().find(|c| *c == '\n')),
            '"' => skip_string(&mut rest),
            '\'' => skip_char_or_lifetime(&mut rest),
            ':' if rest.next_if_eq(&':').is_some() => tokens.push("::".to_owned()),
            c if c.is_alphanumeric() || c == '_' => {
                let mut name = c.to_string();
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                match name.as_str() {
                    "r" | "br" if matches!(rest.peek(), Some('"' | '#')) => {
                        skip_raw_string(&mut rest);
                    }
                    _ => tokens.push(name),
                }
            }
            c if c.is_whitespace() => {}
            c => tokens.push(c.to_string()),
        }
    }
    tokens
}

fn skip_string(rest: &mut Peekable<Chars<'_>>) {
    while let Some(c) = rest.next() {
        match c {
            '\\' => drop(rest.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips a character or a lifetime, including the lifetime's name.
fn skip_char_or_lifetime(rest: &mut Peekable<Chars<'_>>) {
    let first = rest.next();
    if first == Some('\\') {
        rest.next();
        rest.by_ref().find(|c| *c == '\'');
    } else if rest.next_if_eq(&'\'').is_none() {
        while rest.next_if(|c| c.is_alphanumeric() || *c == '_').is_some() {}
    }
}

fn skip_raw_string(rest: &mut Peekable<Chars<'_>>) {
    let mut hashes = 0;
    while rest.next_if_eq(&'#').is_some() {
        hashes += 1;
    }
    // Without a quote, it is a raw identifier.
    if rest.next_if_eq(&'"').is_none() {
        return;
    }
    while rest.by_ref().find(|c| *c == '"').is_some() {
        let mut left = hashes;
        while left > 0 && rest.next_if_eq(&'#').is_some() {
            left -= 1;
        }
        if left == 0 {
            return;
        }
    }
}
