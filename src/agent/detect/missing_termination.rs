//! The run goes on, and nothing that can be checked changes.

use std::collections::HashMap;

use crate::agent::detect::detection_input::{CompletedIteration, DetectionInput, Finding};
use crate::item::Evidence;

/// Sees that the tools run on and on while what can be checked stays as it is.
///
/// A run that has put no check on record yet is not looked at: it may be reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingTermination {
    /// So many times in a row a check fails with the same exit code and the same complaint,
    /// whatever was changed in between; 3 by default, 0 for never.
    pub max_same_failures: u32,
    /// For so many turns with calls, behind a check, no check says anything new and nothing is
    /// changed; 10 by default, 0 for never.
    pub max_turns_without_progress: u32,
}

impl Default for MissingTermination {
    fn default() -> Self {
        Self { max_same_failures: 3, max_turns_without_progress: 10 }
    }
}

impl MissingTermination {
    pub(super) fn detect(self, seen: &DetectionInput<'_>) -> Option<Finding> {
        seen.newest_and_earlier_iterations()?;
        let mut last: HashMap<String, (Evidence, u32)> = HashMap::new();
        let mut quiet = 0;
        let mut found = None;
        for lap in &seen.iterations {
            let (news, stuck) = self.count_checks(lap, &mut last);
            quiet = match news || lap.has_side_effects() || last.is_empty() {
                true => 0,
                false => quiet + 1,
            };
            let is_quiet =
                self.max_turns_without_progress > 0 && quiet == self.max_turns_without_progress;
            let words = || Finding {
                call_id: None,
                message: format!("no check has said anything new for {quiet} turns"),
            };
            // Only what has come about with the newest lap is told.
            found = stuck.or_else(|| is_quiet.then(words));
        }
        found
    }

    /// Counts the checks of a lap: whether one says something new, and whether one has failed in
    /// the same way for the last time that is allowed.
    fn count_checks(
        self,
        lap: &CompletedIteration<'_>,
        last: &mut HashMap<String, (Evidence, u32)>,
    ) -> (bool, Option<Finding>) {
        let (mut news, mut stuck) = (false, None);
        for (call, evidence) in lap.recorded_checks() {
            let times = match last.get(&evidence.command) {
                Some((before, times)) if *before == evidence => times + 1,
                Some(_) | None => 1,
            };
            news |= times == 1;
            if !evidence.is_passing() && times == self.max_same_failures {
                let command = &evidence.command;
                let what = format!("`{command}` has failed {times} times in the same way");
                stuck = Some(Finding::for_call(call, what));
            }
            last.insert(evidence.command.clone(), (evidence, times));
        }
        (news, stuck)
    }
}
