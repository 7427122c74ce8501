//! Patches: hunks of unchanged (` `), removed (`-`) and added (`+`) lines, separated by `@@`.

/// The result of applying a patch to a text.
#[derive(Debug, PartialEq)]
pub(crate) enum PatchOutcome {
    /// The patched text.
    Changed(String),
    /// The text has all the changes already: the patch was applied before.
    AlreadyApplied,
}

struct Hunk<'a> {
    old_lines: Vec<&'a str>,
    new_lines: Vec<&'a str>,
    has_additions: bool,
}

/// Applies all hunks, or none.
pub(crate) fn apply(text: &str, patch: &str) -> Result<PatchOutcome, String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut changed = false;
    for hunk in parse_hunks(patch)? {
        let found = match_positions(&lines, &hunk.old_lines);
        match found[..] {
            _ if hunk.has_additions && !match_positions(&lines, &hunk.new_lines).is_empty() => {}
            [at] => {
                lines.splice(at..at + hunk.old_lines.len(), hunk.new_lines);
                changed = true;
            }
            [] if !hunk.has_additions => {}
            [] => return Err(format!("these lines are not in the file: {:?}", hunk.old_lines)),
            _ => {
                return Err(format!(
                    "these lines occur {} times: {:?}",
                    found.len(),
                    hunk.old_lines
                ));
            }
        }
    }
    Ok(match changed {
        true => PatchOutcome::Changed(lines.join("\n") + "\n"),
        false => PatchOutcome::AlreadyApplied,
    })
}

fn parse_hunks(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks = Vec::new();
    for part in patch.split("@@\n").filter(|part| !part.is_empty()) {
        let mut hunk = Hunk { old_lines: Vec::new(), new_lines: Vec::new(), has_additions: false };
        for line in part.lines() {
            match (line.get(..1), line.get(1..)) {
                (Some("+"), Some(line)) => {
                    hunk.new_lines.push(line);
                    hunk.has_additions = true;
                }
                (Some("-"), Some(line)) => hunk.old_lines.push(line),
                (Some(" "), Some(line)) => {
                    hunk.old_lines.push(line);
                    hunk.new_lines.push(line);
                }
                (None, _) => {
                    hunk.old_lines.push("");
                    hunk.new_lines.push("");
                }
                _ => return Err(format!("a line must begin with ` `, `-` or `+`: {line:?}")),
            }
        }
        if hunk.old_lines.is_empty() {
            return Err("a hunk needs an existing line that locates it".to_owned());
        }
        hunks.push(hunk);
    }
    match hunks.is_empty() {
        true => Err("the patch is empty".to_owned()),
        false => Ok(hunks),
    }
}

fn match_positions(lines: &[&str], wanted: &[&str]) -> Vec<usize> {
    let windows = lines.windows(wanted.len()).enumerate();
    windows.filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_applies(text: &str, patch: &str, expected: &Result<PatchOutcome, String>) {
        let got = apply(text, patch);
        assert!(got == *expected || (got.is_err() && expected.is_err()), "{got:?}");
    }

    #[test]
    fn a_patch_is_applied_once() {
        let changed = |text: &str| Ok(PatchOutcome::Changed(text.to_owned()));
        assert_applies("a\nb\n", " a\n+x\n b\n", &changed("a\nx\nb\n"));
        assert_applies("a\nx\nb\n", " a\n+x\n b\n", &Ok(PatchOutcome::AlreadyApplied));
        assert_applies("a\nb\nc\n", "-a\n b\n@@\n-c\n+d\n b\n", &Err(String::new()));
        assert_applies("a\nb\nc\n", " a\n-b\n", &changed("a\nc\n"));
        assert_applies("a\nc\n", " a\n-b\n", &Ok(PatchOutcome::AlreadyApplied));
    }

    #[test]
    fn an_ambiguous_patch_changes_nothing() {
        for patch in ["", "+x\n", "?x\n", " z\n+x\n", " a\n+x\n"] {
            assert_applies("a\na\n", patch, &Err(String::new()));
        }
    }
}
