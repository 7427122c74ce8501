//! Streams that are damaged on purpose, to see which readers detect the damage.

use std::fmt::Write;

/// One way to damage a stream. It has to change the stream that it is applied to.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) change: fn(&str) -> String,
}

/// A table of the readers that have detected each mutation.
#[derive(Default)]
pub(crate) struct Table {
    rows: String,
    unseen: Vec<String>,
}

impl Table {
    /// Adds a row: the mutation, the clients that have detected it, and whether the grammar has.
    pub(crate) fn add(&mut self, name: &str, clients: &[&str], by_grammar: bool) {
        let seen_by = if clients.is_empty() { "-".to_owned() } else { clients.join(" ") };
        let grammar = if by_grammar { "yes" } else { "-" };
        writeln!(self.rows, "{name:48} {seen_by:36} {grammar}").unwrap();
        if clients.is_empty() && !by_grammar {
            self.unseen.push(name.to_owned());
        }
    }

    /// Prints the table. Panics if a mutation was detected by no reader.
    pub(crate) fn check(&self) {
        println!("{:48} {:36} grammar\n{}", "what was damaged", "clients", self.rows);
        assert!(self.unseen.is_empty(), "not detected: {:?}", self.unseen);
    }
}
