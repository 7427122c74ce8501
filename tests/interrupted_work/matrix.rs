//! The matrix, one test for each machine.
//!
//! By default, the ways to continue take turns, and some causes interrupt only a sample of the
//! positions. All cells are reached with
//!
//! ```text
//! TURNSTREAM_CASES=all cargo test --test interrupted_work -- --nocapture
//! ```

use std::collections::{BTreeSet, HashMap};

use turnstream::Agent;

use turnstream_test_support::cases::all_are_run;
use turnstream_test_support::clock;
use turnstream_test_support::seeds::catch_panic_quietly;

use crate::account;
use crate::axes::{Cause, Machine, Position, Stage, Then};
use crate::probe::Probe;
use crate::scenario::{Scenario, Settings, scenarios};
use crate::trial::{Answers, Plan, Trial};

/// The number of violations that a failed test shows.
const MAX_SHOWN: usize = 12;

/// One in this number of pairs of interruptions is tried, by default and with all cases.
const SECOND_STEPS: [usize; 2] = [499, 23];

/// The causes that interrupt a run again, each this number of moments after the run was dropped.
const SECOND_INTERRUPTIONS: &[(usize, Cause)] = &[
    (2, Cause::Drop),
    (5, Cause::TimeLimit),
    (9, Cause::Drop),
    (12, Cause::TimeLimit),
    (16, Cause::Drop),
    (17, Cause::TimeLimit),
    (23, Cause::Drop),
];

/// A cell of the matrix: where a call is, what interrupts its run, and how the program continues.
type Cell = (Position, Cause, Then);

/// Each moment of a trial, with the positions of the calls.
type Moments = Vec<Vec<(String, Position)>>;

/// The trials on one machine.
struct Matrix {
    machine: Machine,
    positions: BTreeSet<Position>,
    cells: BTreeSet<Cell>,
    /// The same, except for the way to continue.
    interrupted: BTreeSet<(Position, Cause)>,
    trials: usize,
    violations: Vec<String>,
    /// The agents of the scenarios. It takes longer to build one than to run it.
    agents: HashMap<(String, Settings), (Agent, Probe)>,
}

impl Matrix {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            positions: BTreeSet::new(),
            cells: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            trials: 0,
            violations: Vec::new(),
            agents: HashMap::new(),
        }
    }

    fn perform<'a>(&mut self, scenario: &'a Scenario, plan: Plan) -> Trial<'a> {
        let (agent, probe) =
            self.agents.entry((scenario.name.clone(), plan.settings())).or_insert_with(|| {
                let probe = Probe::default();
                (scenario.agent(&probe, plan.settings()), probe)
            });
        probe.clear();
        let mut trial = Trial::new(scenario, plan, agent, probe.clone());
        let end = catch_panic_quietly(|| clock::paused_runtime().block_on(trial.trial()));
        match end {
            Ok(()) => account::check(&mut trial),
            Err(message) => trial.violations.push(message),
        }
        self.trials += 1;
        let place = format!("{}: {plan:?}", scenario.name);
        self.violations.extend(trial.violations.iter().map(|it| format!("{place}: {it}")));
        if plan.cut.is_none() {
            self.positions.extend(trial.moments.iter().flatten().map(|(_, position)| *position));
        }
        if let (Some((_, cause, then)), None) = (plan.cut, plan.second) {
            for (_, position) in trial.cut_positions.iter().flatten() {
                self.cells.insert((*position, cause, then));
                self.interrupted.insert((*position, cause));
            }
        }
        trial
    }

    /// The number of calls with which a trial that is interrupted here adds to the matrix.
    fn new_calls(&self, moment: &[(String, Position)], cause: Cause, then: Then) -> usize {
        let is_new = |position: Position| match all_are_run() {
            true => !self.cells.contains(&(position, cause, then)),
            false => {
                is_in_sample(position, cause) && !self.interrupted.contains(&(position, cause))
            }
        };
        moment.iter().filter(|(_, position)| is_new(*position)).count()
    }

    /// Interrupts the trials of a scenario at each of these moments from the first on.
    fn interrupt(&mut self, scenario: &Scenario, plan: Plan, moments: &Moments, first: usize) {
        let thens = ways_to_continue(scenario);
        for (number, cause) in Cause::ALL.iter().enumerate() {
            if cause.impossible_on(self.machine).is_some()
                // Some causes change the agent, and so its moments.
                || cause.prepares_hooks() != (plan.cut.is_some())
                || plan.wrap_up.is_some() && cause.prepares_agent()
            {
                continue;
            }
            for (turn, then) in thens.iter().enumerate() {
                let is_turn = |at: usize| all_are_run() || (at + number) % thens.len() == turn;
                let mut at_all: Vec<usize> =
                    (first..moments.len()).filter(|at| is_turn(*at)).collect();
                // The moment that adds most comes first.
                while let Some((place, at)) = at_all
                    .iter()
                    .copied()
                    .enumerate()
                    .max_by_key(|(_, at)| self.new_calls(&moments[*at], *cause, *then))
                    .filter(|(_, at)| self.new_calls(&moments[*at], *cause, *then) > 0)
                {
                    at_all.swap_remove(place);
                    self.perform(scenario, Plan { cut: Some((at, *cause, *then)), ..plan });
                }
            }
        }
    }

    /// Drops the runs of a scenario, and then interrupts the runs that continue.
    fn interrupt_twice(
        &mut self,
        scenario: &Scenario,
        plan: Plan,
        moments: usize,
        drawn: &mut usize,
    ) {
        for at in 0..moments {
            for then in ways_to_continue(scenario) {
                for (after, cause) in SECOND_INTERRUPTIONS {
                    *drawn += 1;
                    if drawn.is_multiple_of(SECOND_STEPS[usize::from(all_are_run())]) {
                        let cut = Some((at, Cause::Drop, then));
                        self.perform(
                            scenario,
                            Plan { cut, second: Some((*after, *cause)), ..plan },
                        );
                    }
                }
            }
        }
    }

    /// Checks that the positions that were reached are those that are possible.
    fn check_positions(&mut self) {
        for position in Position::all_on(self.machine) {
            let is_reached = self.positions.contains(&position);
            let why_not = position.impossible().or(position.not_reached());
            match (is_reached, why_not) {
                (true, Some(why)) => {
                    self.violations.push(format!("{position} is reached, although {why}"));
                }
                (false, None) => self.violations.push(format!("{position} is not reached")),
                _ => {}
            }
            if position.impossible().is_some() && position.not_reached().is_some() {
                self.violations.push(format!("{position} is impossible twice"));
            }
        }
    }
}

/// Whether a call is interrupted here by this cause by default.
fn is_in_sample(position: Position, cause: Cause) -> bool {
    let is_always =
        matches!(cause, Cause::Drop | Cause::Interrupt | Cause::HookFails | Cause::WriteFails);
    let Position { stage, state, who, .. } = position;
    is_always || (stage as usize + state as usize + who as usize + cause as usize).is_multiple_of(4)
}

fn ways_to_continue(scenario: &Scenario) -> Vec<Then> {
    let is_possible = |then: &&Then| **then != Then::SameVerdicts || scenario.has_answers();
    Then::ALL.iter().filter(is_possible).copied().collect()
}

/// Plays all scenarios on a machine, and checks each trial.
fn check_matrix(machine: Machine) {
    let mut matrix = Matrix::new(machine);
    let (mut drawn, mut wrap_up_starts) = (0, BTreeSet::new());
    for scenario in &scenarios() {
        let answers: &[Answers] = match scenario.needs_verdicts() {
            true => &[Answers::AfterRun, Answers::WhenStalled, Answers::AtOnce],
            false => &[Answers::AfterRun],
        };
        for answers in answers {
            let plan = Plan { answers: *answers, ..Plan::new(machine) };
            let moments = matrix.perform(scenario, plan).moments;
            matrix.interrupt(scenario, plan, &moments, 0);
            let with_hooks =
                Plan { cut: Some((usize::MAX, Cause::HookFails, Then::Resume)), ..plan };
            let hook_moments = matrix.perform(scenario, with_hooks).moments;
            matrix.interrupt(scenario, with_hooks, &hook_moments, 0);
            matrix.interrupt_twice(scenario, plan, moments.len(), &mut drawn);
            for (at, moment) in moments.iter().enumerate() {
                if moment.iter().any(|(_, position)| wrap_up_starts.insert(*position)) {
                    let plan = Plan { wrap_up: Some(at), ..plan };
                    let mut moments = matrix.perform(scenario, plan).moments;
                    for moment in &mut moments {
                        moment.retain(|(_, position)| position.stage == Stage::WrappingUp);
                    }
                    matrix.interrupt(scenario, plan, &moments, at + 1);
                }
            }
        }
    }
    matrix.check_positions();
    let Matrix { positions, cells, trials, violations, .. } = matrix;
    println!(
        "{machine:?}: {} positions, {} cells, {trials} trials, {} violations",
        positions.len(),
        cells.len(),
        violations.len()
    );
    let shown = violations[..violations.len().min(MAX_SHOWN)].join("\n");
    assert!(violations.is_empty(), "{} violations:\n{shown}", violations.len());
}

#[test]
fn work_of_an_agent_is_accounted_for() {
    check_matrix(Machine::Agent);
}

#[test]
fn work_of_a_session_is_accounted_for() {
    check_matrix(Machine::Session);
}

#[test]
fn work_of_a_durable_run_is_accounted_for() {
    check_matrix(Machine::Durable);
}

#[test]
fn work_that_a_durable_run_executes_elsewhere_is_accounted_for() {
    check_matrix(Machine::DurableWithWorker);
}
