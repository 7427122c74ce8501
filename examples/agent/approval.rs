//! Who allows the calls that need approval.

use std::io::{self, Write};

use turnstream::item::ToolCall;
use turnstream::tool::Verdict;
use turnstream::{Error, RunHandle};

use crate::args::Args;
use crate::lines::Lines;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Approval {
    /// The user is asked, call by call.
    Ask,
    /// Every call is allowed.
    Yes,
    /// Nobody is there: the run ends as `pending`.
    Suspend,
}

impl Approval {
    /// `terminal` is whether a user sees a question and can answer it.
    pub(crate) fn new(args: &Args, terminal: bool) -> Self {
        match (args.yes, args.json, terminal) {
            (true, _, _) => Self::Yes,
            (false, false, true) => Self::Ask,
            (false, true, _) | (false, false, false) => Self::Suspend,
        }
    }

    /// Whether the run waits for a verdict.
    pub(crate) fn is_interactive(self) -> bool {
        match self {
            Self::Ask | Self::Yes => true,
            Self::Suspend => false,
        }
    }

    /// Comes to a verdict on a call that waits. Meanwhile the run is not pulled, and so nothing of
    /// it goes on. Dropping the future leaves the call waiting.
    pub(crate) async fn decide(
        self,
        run: &RunHandle,
        call: &ToolCall,
        lines: &mut Lines,
    ) -> Result<(), Error> {
        match self.verdict(lines).await {
            Some(verdict) => run.decide(call, verdict),
            None => Ok(()),
        }
    }

    /// The verdict on the call that was shown last; `None` if there is nobody to come to one.
    pub(crate) async fn verdict(self, lines: &mut Lines) -> Option<Verdict> {
        match self {
            Self::Yes => Some(Verdict::Approve),
            Self::Ask => {
                let _ =
                    write!(io::stderr(), "  allow it? [y/N] ").and_then(|()| io::stderr().flush());
                // The end of the input, and an input that cannot be read, allow nothing.
                let line = lines.next().await.ok().flatten().unwrap_or_default();
                if !line.ends_with('\n') {
                    let _ = writeln!(io::stderr());
                }
                Some(match line.trim().to_lowercase().as_str() {
                    "y" | "yes" => Verdict::Approve,
                    _ => Verdict::deny("the user does not allow it"),
                })
            }
            Self::Suspend => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_asked_only_where_somebody_is() {
        for (yes, json, terminal, expected) in [
            (false, false, true, Approval::Ask),
            (false, false, false, Approval::Suspend),
            (false, true, true, Approval::Suspend),
            (true, false, true, Approval::Yes),
            (true, true, false, Approval::Yes),
        ] {
            let args = Args { yes, json, ..Args::default() };
            assert_eq!(Approval::new(&args, terminal), expected, "{args:?} {terminal}");
        }
    }
}
