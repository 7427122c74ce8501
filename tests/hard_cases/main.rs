//! The hard cases of an agent's loop, in rows: each test begins with the number of its row.
//!
//! | rows | file | what goes wrong |
//! |---|---|---|
//! | H01 to H05 | `interrupt` | an interrupt, in every phase |
//! | H06 to H08 | `stop_and_drop` | a stop, a drop, a consumer that pauses |
//! | H09 to H11 | `interrupt_beside` | an interrupt beside failures, sub-agents, approvals |
//! | H12, H13 | `interrupt_waits` | an interrupt in a wait, and what hooks hear of the end |
//! | H14 to H17, H29, H31 | `failing_tools` | tools that fail, are not there, or say too much |
//! | H18 to H24 | `arguments` | arguments that cannot be used, ids that are not unique |
//! | H25 to H28 | `approvals` | approvals, and tools that run elsewhere |
//! | H30 | `hooks` | hooks that fail |
//! | H32 to H37 | `terminal` | what the end of a turn says, and turns without one |
//! | H38 to H48 | `ending` | the other reasons to stop |
//! | H49 to H54 | `limits` | the order of results, and what bounds a run |
//! | H55 to H57 | `heard` | words that come while a run goes on, and objections to its end |
//! | H58 to H61 | `history` | compaction, crashes, a change of the model |
//! | H62 | `repair` | histories that are not lawful |
//! | H63 to H65 | `bytes` | caches, transforms, frames cut anywhere |
//! | H28, H35, H41, H47, H54 | `wires` | the same rows on each of the wires |
//!
//! H06, H43 and H59 are also checked over each store, in the binary `sessions`, and H13 at every ending
//! of a run, in the binary `agent`.

mod approvals;
mod arguments;
mod bytes;
mod ending;
mod failing_tools;
mod heard;
mod history;
mod hooks;
mod interrupt;
mod interrupt_beside;
mod interrupt_waits;
mod limits;
mod repair;
mod stop_and_drop;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod wires;

/// The files with tests, in the order of their rows.
const SOURCES: [&str; 16] = [
    include_str!("interrupt.rs"),
    include_str!("stop_and_drop.rs"),
    include_str!("interrupt_beside.rs"),
    include_str!("interrupt_waits.rs"),
    include_str!("failing_tools.rs"),
    include_str!("arguments.rs"),
    include_str!("approvals.rs"),
    include_str!("hooks.rs"),
    include_str!("terminal.rs"),
    include_str!("ending.rs"),
    include_str!("limits.rs"),
    include_str!("heard.rs"),
    include_str!("history.rs"),
    include_str!("repair.rs"),
    include_str!("bytes.rs"),
    include_str!("wires.rs"),
];

#[test]
fn every_row_has_a_test() {
    let is_told = |row: &u32| {
        let name = format!("fn h{row:02}_");
        SOURCES.iter().any(|source| source.contains(&name))
    };
    let missing: Vec<_> = (1..=65).filter(|row| !is_told(row)).collect();
    assert_eq!(missing, [0; 0]);
}
