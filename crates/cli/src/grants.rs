//! The commands of the chat that list and revoke grants: the permissions that the user gave with
//! the answer "always".

use turnstream::item::{Grant, GrantScope};
use turnstream::session::Session;
use turnstream::{Error, RunHandle};

use crate::text::{escape_invisible, one_line};

/// A line that the user types for the program and not for the model.
#[derive(Debug, PartialEq)]
pub(crate) enum GrantCommand {
    /// Lists the grants.
    List,
    /// Revokes the grant with this number in the list, as the user typed it.
    Revoke(String),
}

impl GrantCommand {
    /// Parses a line. Returns `None` if it is a message for the model.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.contains('\n') {
            return None;
        }
        match text.split_once(char::is_whitespace).unwrap_or((text, "")) {
            ("/grants", "") => Some(Self::List),
            ("/revoke", number) => Some(Self::Revoke(number.trim().to_owned())),
            _ => None,
        }
    }

    /// Applies the command to the session, while no run is active. Returns the lines for the user.
    pub(crate) async fn apply_to_session(&self, session: &Session) -> String {
        let grants = session.grants();
        match self.find_revoked(&grants) {
            Ok(Some(grant)) => describe_revocation(grant, session.revoke_grant(&grant.id).await),
            Ok(None) => describe_grants(&grants),
            Err(message) => message,
        }
    }

    /// Applies the command to the active run. Returns the lines for the user.
    pub(crate) fn apply_to_run(&self, run: &RunHandle) -> String {
        let grants = run.grants();
        match self.find_revoked(&grants) {
            Ok(Some(grant)) => describe_revocation(grant, run.revoke_grant(&grant.id)),
            Ok(None) => describe_grants(&grants),
            Err(message) => message,
        }
    }

    /// Returns the grant to revoke, if any, or why there is no grant with its number.
    fn find_revoked<'a>(&self, grants: &'a [Grant]) -> Result<Option<&'a Grant>, String> {
        match self {
            Self::List => Ok(None),
            Self::Revoke(number) => find_grant(number, grants).map(Some),
        }
    }
}

fn describe_revocation(grant: &Grant, revoked: Result<(), Error>) -> String {
    match revoked {
        Ok(()) => format!("revoked: {}", describe_grant(grant)),
        Err(error) => format!("error: nothing was revoked: {}", error.message()),
    }
}

fn find_grant<'a>(number: &str, grants: &'a [Grant]) -> Result<&'a Grant, String> {
    if grants.is_empty() {
        return Err("error: nothing was revoked: no call is always allowed".to_owned());
    }
    let found = number.parse::<usize>().ok().and_then(|number| grants.get(number.checked_sub(1)?));
    found.ok_or_else(|| {
        let last = grants.len();
        let numbers = if last == 1 { "the number 1".to_owned() } else { format!("1 to {last}") };
        format!(
            "error: nothing was revoked: `/revoke` needs {numbers}, as `/grants` shows, not `{}`",
            one_line(number, 40)
        )
    })
}

fn describe_grants(grants: &[Grant]) -> String {
    if grants.is_empty() {
        return "No call is always allowed.".to_owned();
    }
    let mut lines = vec!["Always allowed:".to_owned()];
    let described = grants.iter().zip(1..);
    lines.extend(described.map(|(grant, number)| format!("  {number}. {}", describe_grant(grant))));
    lines.push("`/revoke N` revokes the permission with this number.".to_owned());
    lines.join("\n")
}

/// Describes which calls of which agent are allowed.
fn describe_grant(grant: &Grant) -> String {
    let mut line = one_line(&grant.tool, 64);
    if !grant.source.is_empty() {
        line.extend([" of ", &one_line(&grant.source, 64)]);
    }
    match &grant.terms.scope {
        GrantScope::AnyArguments => line.push_str(" with any arguments"),
        GrantScope::SameArguments => {
            let arguments = grant.arguments.as_deref().unwrap_or_default();
            line.extend([" with ", &escape_invisible(arguments, 200)]);
        }
        GrantScope::Predicate(name) => line.extend([" if ", &one_line(name, 64)]),
    }
    for agent in &grant.agent_path {
        line.extend([", by the sub-agent ", &one_line(agent, 64)]);
    }
    line
}

#[cfg(test)]
mod tests {
    use turnstream::item::{GrantDuration, GrantTerms};

    use super::*;

    #[test]
    fn only_lines_that_are_exactly_a_command_are_not_for_the_model() {
        let revoke = |number: &str| Some(GrantCommand::Revoke(number.to_owned()));
        for (text, expected) in [
            ("/grants", Some(GrantCommand::List)),
            (" /grants \n", Some(GrantCommand::List)),
            ("/revoke 2", revoke("2")),
            ("/revoke   2 ", revoke("2")),
            ("/revoke", revoke("")),
            ("/revoke all of them", revoke("all of them")),
            ("/grants are listed where?", None),
            ("/grants\nand more", None),
            ("/revoked", None),
            ("/usr/bin is full", None),
            ("grants", None),
            ("", None),
        ] {
            assert_eq!(GrantCommand::parse(text), expected, "{text}");
        }
    }

    fn grant(scope: GrantScope) -> Grant {
        Grant {
            id: "a".to_owned(),
            agent_path: Vec::new(),
            tool: "write_file".to_owned(),
            source: String::new(),
            definition: "d".to_owned(),
            arguments: None,
            terms: GrantTerms::new(scope, GrantDuration::Session),
        }
    }

    #[test]
    fn a_grant_is_described_by_its_calls() {
        let any = grant(GrantScope::AnyArguments);
        assert_eq!(describe_grant(&any), "write_file with any arguments");
        let same = Grant {
            arguments: Some("{\"path\":\"a\u{202e}b\"}".to_owned()),
            source: "files".to_owned(),
            agent_path: vec!["research".to_owned()],
            ..grant(GrantScope::SameArguments)
        };
        assert_eq!(
            describe_grant(&same),
            r#"write_file of files with {"path":"a\u{202e}b"}, by the sub-agent research"#
        );
        let small = grant(GrantScope::Predicate("small".to_owned()));
        assert_eq!(describe_grant(&small), "write_file if small");
    }

    #[test]
    fn a_wrong_number_is_refused_with_the_numbers_that_exist() {
        let all = [GrantScope::AnyArguments, GrantScope::SameArguments].map(grant);
        assert_eq!(find_grant("2", &all), Ok(&all[1]));
        for wrong in ["0", "3", "", "-1", "two", "99999999999999999999999"] {
            let message = format!(
                "error: nothing was revoked: `/revoke` needs 1 to 2, as `/grants` shows, not \
                 `{wrong}`"
            );
            assert_eq!(find_grant(wrong, &all), Err(message));
        }
        let one = find_grant("2", &all[..1]).unwrap_err();
        assert!(one.contains("needs the number 1, as"), "{one}");
        let none = find_grant("1", &[]).unwrap_err();
        assert_eq!(none, "error: nothing was revoked: no call is always allowed");
    }
}
