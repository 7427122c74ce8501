//! Creates the names under which a model sees a server's tools.

use crate::fnv::fnv1a_64;

/// The maximum length of a tool name that every provider accepts.
const MAX_NAME_LEN: usize = 64;

/// The maximum length of the server's name within a tool name.
const MAX_SERVER_NAME_LEN: usize = 24;

const SEPARATOR: &str = "__";

/// The start of the name of a server whose own name does not begin with a letter.
const LETTER_PREFIX: &str = "s_";

/// Returns the name `{server}__{tool}`, adapted to the characters and the length that every
/// provider accepts. The name begins with a letter. A server or tool name that has to be changed or
/// shortened ends with a hash of the original name, so that different names remain different and
/// each listing produces the same name.
pub(crate) fn tool_name(server: &str, tool: &str) -> String {
    let server = match server.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => fit(server, MAX_SERVER_NAME_LEN),
        false => changed(LETTER_PREFIX, server, MAX_SERVER_NAME_LEN),
    };
    let max_tool_len = MAX_NAME_LEN - server.len() - SEPARATOR.len();
    format!("{server}{SEPARATOR}{}", fit(tool, max_tool_len))
}

/// Converts a name to at most `max_len` characters, each of which is a letter, a digit, `_` or `-`.
fn fit(name: &str, max_len: usize) -> String {
    if name.len() <= max_len && name.chars().all(is_allowed) {
        return name.to_owned();
    }
    changed("", name, max_len)
}

/// Converts a name that has to be changed. The new name begins with `prefix` and ends with a hash.
fn changed(prefix: &str, name: &str, max_len: usize) -> String {
    let suffix = format!("_{:08x}", fnv1a_64(name.bytes()) >> 32);
    let cleaned = name.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let cleaned = cleaned.take(max_len - prefix.len() - suffix.len());
    prefix.chars().chain(cleaned).collect::<String>() + &suffix
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_name_that_fits_is_kept() {
        assert_eq!(tool_name("files", "read-File_2"), "files__read-File_2");
    }

    #[test]
    fn names_that_are_changed_or_cut_stay_distinct_and_the_same() {
        let long = "a".repeat(300);
        let longer = "a".repeat(301);
        let tools = ["a.b", "a/b", "a b", "a_b", "", "über", "ÜBER", &long, &longer];
        let names: HashSet<String> = tools.iter().map(|tool| tool_name("s", tool)).collect();
        assert_eq!(names.len(), tools.len(), "{names:?}");
        assert_eq!(tool_name("s", "a.b"), "s__a_b_e61d9919");
        for name in names.iter().chain([&tool_name(&long, &long), &tool_name("", "x")]) {
            assert!(name.len() <= 64 && !name.is_empty(), "{name}");
            assert!(name.chars().all(is_allowed), "{name}");
        }
        assert_ne!(tool_name(&long, "x"), tool_name(&longer, "x"));
    }

    #[test]
    fn every_name_begins_with_a_letter() {
        let digits = "9".repeat(300);
        let servers = ["1mcp", "-mcp", "_mcp", "", "ümcp", "s_1mcp", &digits];
        let names: HashSet<String> =
            servers.iter().map(|server| tool_name(server, "7run")).collect();
        assert_eq!(names.len(), servers.len(), "{names:?}");
        for name in &names {
            assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{name}");
            assert!(name.len() <= 64 && name.chars().all(is_allowed), "{name}");
        }
        assert_eq!(
            tool_name("1mcp", "run"),
            format!("s_1mcp_{:08x}__run", fnv1a_64("1mcp".bytes()) >> 32)
        );
    }
}
