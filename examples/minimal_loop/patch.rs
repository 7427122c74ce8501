//! Patches: hunks of lines that stay (` `), go (`-`) or come (`+`), set apart by `@@`.

/// What a patch makes of a text.
#[derive(Debug, PartialEq)]
pub(crate) enum Patched {
    /// The text that it becomes.
    Changed(String),
    /// All of it is there already: it was applied before.
    AlreadyThere,
}

struct Hunk<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    adds: bool,
}

/// Applies all hunks, or none.
pub(crate) fn apply(text: &str, patch: &str) -> Result<Patched, String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut changed = false;
    for hunk in hunks(patch)? {
        let found = places(&lines, &hunk.old);
        match found[..] {
            _ if hunk.adds && !places(&lines, &hunk.new).is_empty() => {}
            [at] => {
                lines.splice(at..at + hunk.old.len(), hunk.new);
                changed = true;
            }
            [] if !hunk.adds => {}
            [] => return Err(format!("these lines are not in the file: {:?}", hunk.old)),
            _ => {
                return Err(format!("these lines are there {} times: {:?}", found.len(), hunk.old));
            }
        }
    }
    Ok(match changed {
        true => Patched::Changed(lines.join("\n") + "\n"),
        false => Patched::AlreadyThere,
    })
}

fn hunks(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks = Vec::new();
    for part in patch.split("@@\n").filter(|part| !part.is_empty()) {
        let mut hunk = Hunk { old: Vec::new(), new: Vec::new(), adds: false };
        for line in part.lines() {
            match (line.get(..1), line.get(1..)) {
                (Some("+"), Some(line)) => {
                    hunk.new.push(line);
                    hunk.adds = true;
                }
                (Some("-"), Some(line)) => hunk.old.push(line),
                (Some(" "), Some(line)) => {
                    hunk.old.push(line);
                    hunk.new.push(line);
                }
                (None, _) => {
                    hunk.old.push("");
                    hunk.new.push("");
                }
                _ => return Err(format!("a line begins with none of ` `, `-` and `+`: {line:?}")),
            }
        }
        if hunk.old.is_empty() {
            return Err("a hunk needs a line that is there, to know where it belongs".to_owned());
        }
        hunks.push(hunk);
    }
    match hunks.is_empty() {
        true => Err("the patch is empty".to_owned()),
        false => Ok(hunks),
    }
}

fn places(lines: &[&str], wanted: &[&str]) -> Vec<usize> {
    let windows = lines.windows(wanted.len()).enumerate();
    windows.filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, patch: &str, expected: &Result<Patched, String>) {
        let got = apply(text, patch);
        assert!(got == *expected || (got.is_err() && expected.is_err()), "{got:?}");
    }

    #[test]
    fn a_patch_is_applied_once() {
        let changed = |text: &str| Ok(Patched::Changed(text.to_owned()));
        check("a\nb\n", " a\n+x\n b\n", &changed("a\nx\nb\n"));
        check("a\nx\nb\n", " a\n+x\n b\n", &Ok(Patched::AlreadyThere));
        check("a\nb\nc\n", "-a\n b\n@@\n-c\n+d\n b\n", &Err(String::new()));
        check("a\nb\nc\n", " a\n-b\n", &changed("a\nc\n"));
        check("a\nc\n", " a\n-b\n", &Ok(Patched::AlreadyThere));
    }

    #[test]
    fn an_ambiguous_patch_changes_nothing() {
        for patch in ["", "+x\n", "?x\n", " z\n+x\n", " a\n+x\n"] {
            check("a\na\n", patch, &Err(String::new()));
        }
    }
}
