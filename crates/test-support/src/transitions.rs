//! Walks a state machine at random, and compares each transition with a table of the transitions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::seeded_random::Dice;

/// The number of random sequences of inputs in each check.
const SEQUENCES: u64 = 2_000;

/// The number of inputs in a sequence.
const INPUTS: usize = 60;

/// A machine under test. Its states and inputs have the names that its table uses.
pub trait Machine {
    fn state(&self) -> String;

    /// Applies an input, and describes the effect, or returns `-` if the input has no effect.
    fn apply(&mut self, input: &str) -> String;
}

/// The next state and the effect, by state and input.
type Rows = BTreeMap<(String, String), (String, String)>;

/// Reads the rows of a Markdown table. A slash separates states, or inputs, with the same row.
fn rows(markdown: &str, heading: &str) -> Rows {
    let (_, section) = markdown.split_once(heading).expect("the heading exists");
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let mut rows = Rows::new();
    for line in lines.take_while(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [states, inputs, next, effect] = cells[..] else { panic!("not four cells: {line}") };
        for state in states.split(" / ") {
            for input in inputs.split(" / ") {
                let next = if next == "unchanged" { state } else { next };
                let row = (next.to_owned(), effect.to_owned());
                assert!(next != state || effect != "-", "the row changes nothing: {line}");
                let former = rows.insert((state.to_owned(), input.to_owned()), row);
                assert!(former.is_none(), "`{state}` has two rows for `{input}`");
            }
        }
    }
    rows
}

/// Applies random inputs. Returns the rows that were used, or the first transition that is not in
/// the table. An input without a row must change nothing and have no effect.
fn walk<M: Machine>(
    rows: &Rows,
    inputs: &[String],
    seed: u64,
    machine: &mut M,
) -> Result<HashSet<(String, String)>, String> {
    let dice = Dice::new(seed + 1);
    let mut used = HashSet::new();
    for _ in 0..INPUTS {
        let input = inputs[usize::try_from(dice.roll(inputs.len() as u64)).unwrap()].clone();
        let at = (machine.state(), input.clone());
        let effect = machine.apply(&input);
        let found = (machine.state(), effect);
        match rows.get(&at) {
            Some(row) if *row == found => drop(used.insert(at)),
            None if found.0 == at.0 && found.1 == "-" => {}
            row => return Err(format!("{at:?} leads to {found:?}, but its row is {row:?}")),
        }
    }
    Ok(used)
}

/// Checks that all transitions of a machine are in the table, that all rows of the table occur, and
/// that the check fails if any row is removed. Prints the number of sequences and rows.
#[track_caller]
pub fn check<M: Machine>(markdown: &str, heading: &str, new: impl Fn() -> M) {
    check_with_inputs(markdown, heading, &[], new);
}

/// The same as [`check`], with more inputs, which change nothing in any state.
#[track_caller]
pub fn check_with_inputs<M: Machine>(
    markdown: &str,
    heading: &str,
    more: &[&str],
    new: impl Fn() -> M,
) {
    let rows = rows(markdown, heading);
    let inputs = rows.keys().map(|(_, input)| input.clone());
    let more = more.iter().map(|input| (*input).to_owned());
    let inputs: BTreeSet<String> = inputs.chain(more).collect();
    let inputs: Vec<String> = inputs.into_iter().collect();
    let walk = |rows: &Rows, seed| walk(rows, &inputs, seed, &mut new());
    // The first sequence in which each row is used.
    let mut used = HashMap::new();
    for seed in 0..SEQUENCES {
        for row in walk(&rows, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}")) {
            used.entry(row).or_insert(seed);
        }
    }
    for row in rows.keys() {
        let seed = *used.get(row).unwrap_or_else(|| panic!("the row {row:?} never occurs"));
        let mut fewer = rows.clone();
        fewer.remove(row);
        assert!(walk(&fewer, seed).is_err(), "the check passes without the row {row:?}");
    }
    println!("{heading}: {SEQUENCES} sequences of {INPUTS} inputs, {} rows", rows.len());
}
