//! Which call a delta belongs to. Servers disagree on how they say it.

use super::wire::WireCall;
use crate::error::{Error, ErrorKind};
use crate::turn::TurnBuilder;

/// The calls of a turn while they stream. Their place here is their key.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    /// Whether the turn knows of it: from then on its name is fixed.
    started: bool,
    /// Arguments that came before the name.
    early: String,
    /// A piece of its arguments was none: what the model wrote is not known.
    broken: bool,
}

impl Calls {
    /// Takes the next delta of a call.
    pub(super) fn push(&mut self, delta: &WireCall<'_>, turn: &mut TurnBuilder) {
        let id = delta.id.or_empty();
        let function = delta.function.is.as_ref();
        let name = function.map_or("", |function| function.name.or_empty());
        let at = self.find(delta.index.0, id, name).unwrap_or_else(|| {
            self.0.push(Call { index: delta.index.0, ..Call::default() });
            self.0.len() - 1
        });
        let call = &mut self.0[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // A name may come in pieces, or be repeated with every chunk.
        if !call.started && call.name != name {
            call.name.push_str(name);
        }
        let arguments = function.map_or(Some("".into()), super::wire::Function::arguments);
        call.broken |= arguments.is_none() || delta.is_misshapen();
        let arguments = arguments.unwrap_or_default();
        if call.name.is_empty() {
            call.early.push_str(&arguments);
        } else if !arguments.is_empty() {
            call.start(key(at), turn);
            turn.tool_call_args(key(at), &arguments);
        }
    }

    /// Ends every call: the finish reason was seen.
    pub(super) fn end(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        for (at, call) in self.0.iter_mut().enumerate() {
            if call.broken {
                let message = "the arguments of a tool call are neither text nor an object";
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            if call.name.is_empty() {
                return Err(Error::new(ErrorKind::Protocol, "a tool call has no name"));
            }
            call.start(key(at), turn);
            turn.tool_call_end(key(at));
        }
        Ok(())
    }

    /// The call that a delta continues, or `None` if it begins one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let newest = |belongs: &dyn Fn(&Call) -> bool| self.0.iter().rposition(belongs);
        match (index, id) {
            // The same index under another id is another call.
            (Some(index), id) => newest(&|call| {
                call.index == Some(index) && (id.is_empty() || call.id.is_empty() || call.id == id)
            }),
            (None, "") if name.is_empty() => self.0.len().checked_sub(1),
            (None, "") => None,
            (None, id) => newest(&|call| call.id == id),
        }
    }
}

impl Call {
    fn start(&mut self, key: u32, turn: &mut TurnBuilder) {
        if !std::mem::replace(&mut self.started, true) {
            turn.tool_call_start(key, &self.id, &self.name);
            turn.tool_call_args(key, &std::mem::take(&mut self.early));
        }
    }
}

fn key(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
