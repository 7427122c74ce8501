//! Detects a run that continues while the results of its checks do not change.

use std::collections::HashMap;

use crate::agent::detect::detection_input::{CompletedIteration, DetectionInput, Finding};
use crate::item::Evidence;

/// Detects runs that keep calling tools while the results of their checks stay the same, or
/// without any check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingTermination {
    /// How many times in a row the same check must fail with the same exit code and error output
    /// before a problem is reported; 3 by default. If set to 0, this problem is never reported.
    /// Changes made between the failures do not reset the count.
    pub max_same_failures: u32,
    /// The number of consecutive turns without a change or a new check result after which a problem
    /// is reported; 10 by default. Only turns that follow a check and contain tool calls are
    /// counted. If set to 0, this problem is never reported.
    pub max_turns_without_progress: u32,
    /// The number of turns with tool calls without any check after which a problem is reported; 20
    /// by default. Only runs of an agent that [requires evidence](crate::Agent::with_evidence) are
    /// examined, since other runs need not record checks. If set to 0, this problem is never
    /// reported.
    pub max_turns_without_evidence: u32,
}

impl Default for MissingTermination {
    fn default() -> Self {
        Self {
            max_same_failures: 3,
            max_turns_without_progress: 10,
            max_turns_without_evidence: 20,
        }
    }
}

impl MissingTermination {
    pub(super) fn detect(self, seen: &DetectionInput<'_>) -> Option<Finding> {
        seen.newest_and_earlier_iterations()?;
        let mut last: HashMap<String, (Evidence, u32)> = HashMap::new();
        let mut quiet = 0;
        let mut found = None;
        for iteration in &seen.iterations {
            let (news, stuck) = self.count_checks(iteration, &mut last);
            quiet = match news || iteration.has_side_effects() || last.is_empty() {
                true => 0,
                false => quiet + 1,
            };
            let is_quiet =
                self.max_turns_without_progress > 0 && quiet == self.max_turns_without_progress;
            let finding = || Finding {
                call_id: None,
                message: format!("no check has had a new result for {quiet} turns"),
            };
            // Only a problem that starts with the latest iteration is reported.
            found = stuck.or_else(|| is_quiet.then(finding));
        }
        let turns = u32::try_from(seen.iterations.len()).unwrap_or(u32::MAX);
        let is_unproven = seen.state.evidence.is_required
            && last.is_empty()
            && self.max_turns_without_evidence > 0
            && turns == self.max_turns_without_evidence;
        found.or_else(|| {
            let message = format!("no check was recorded in {turns} turns");
            is_unproven.then_some(Finding { call_id: None, message })
        })
    }

    /// Counts the checks in an iteration. Returns whether any check returned a new result, along
    /// with a finding if a check has failed in the same way `max_same_failures` times.
    fn count_checks(
        self,
        iteration: &CompletedIteration<'_>,
        last: &mut HashMap<String, (Evidence, u32)>,
    ) -> (bool, Option<Finding>) {
        let (mut news, mut stuck) = (false, None);
        for (call, evidence) in iteration.recorded_checks() {
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
