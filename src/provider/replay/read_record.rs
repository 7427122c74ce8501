//! From the lines of a record to its turns.

use std::collections::VecDeque;

use crate::error::Error;
use crate::json_lines::parse_values;
use crate::provider::record::line::{Asked, AskedOnWire, Line, OLDEST, VERSION};
use crate::provider::replay::rebuild_turn::refusal;
use crate::provider::replay::replayed_turn::{Ending, Played, PlayedEvent};
use crate::turn::TurnEvent;

/// A record, read.
pub(super) struct Tape {
    pub(super) model: String,
    pub(super) turns: Vec<Recorded>,
    /// The last line is cut off.
    pub(super) torn: bool,
}

/// A turn of a record.
pub(super) struct Recorded {
    pub(super) turn: u32,
    pub(super) asked: Asked,
    pub(super) played: Played,
}

/// Reads the lines. A last one that is cut off is passed over, and noted.
pub(super) fn tape(text: &str) -> Result<Tape, Error> {
    let mut tape: Option<Tape> = None;
    let torn = parse_values(text, |line: Line<'_>| {
        match (line, &mut tape) {
            (Line::Recording { version: OLDEST..=VERSION, model }, None) => {
                tape = Some(Tape { model: model.into_owned(), turns: Vec::new(), torn: false });
            }
            (Line::Recording { version, .. }, None) => {
                return Err(format!("version {version} of the format is not known"));
            }
            (_, None) => return Err("a record begins with a line `recording`".to_owned()),
            (line, Some(tape)) => tape.push(line)?,
        }
        Ok(())
    });
    let torn = torn.map_err(|why| refusal(&why))?;
    let mut tape = tape.ok_or_else(|| refusal("it is empty"))?;
    if let Some(torn) = torn {
        tape.tear(turn_of(torn));
    }
    Ok(tape)
}

impl Tape {
    fn push(&mut self, line: Line<'_>) -> Result<(), String> {
        match line {
            Line::Recording { .. } => return Err("a second record begins".to_owned()),
            Line::Asked { turn, request } => self.begin(turn, *request)?,
            Line::Event { turn, vetoed, event } => {
                let event = event.into_owned();
                let played = self.open(turn)?;
                if matches!(event, TurnEvent::TurnComplete { .. }) {
                    played.ending = Ending::Complete;
                }
                played.events.push_back(PlayedEvent { event, vetoed });
            }
            Line::Error { turn, error } => {
                self.open(turn)?.ending = Ending::Failed(error.into_owned());
            }
            Line::Unknown => {}
        }
        Ok(())
    }

    fn begin(&mut self, turn: u32, request: AskedOnWire) -> Result<(), String> {
        if self.turns.iter().any(|recorded| recorded.turn == turn) {
            return Err(format!("turn {turn} is asked for twice"));
        }
        let find = |turn| self.turns.iter().find(|it| it.turn == turn).map(|it| &it.asked);
        let asked = Asked::read(request, find)?;
        let played = Played { events: VecDeque::new(), ending: Ending::Dropped };
        self.turns.push(Recorded { turn, asked, played });
        Ok(())
    }

    /// The turn that a line goes on with.
    fn open(&mut self, turn: u32) -> Result<&mut Played, String> {
        let recorded = self.turns.iter_mut().rfind(|recorded| recorded.turn == turn);
        match recorded.map(|recorded| &mut recorded.played) {
            Some(played) if matches!(played.ending, Ending::Dropped) => Ok(played),
            Some(_) => Err(format!("turn {turn} goes on behind its end")),
            None => Err(format!("turn {turn} was not asked for")),
        }
    }

    /// Notes that the last line is cut off: that of a turn, or of any that had not ended.
    fn tear(&mut self, turn: Option<u32>) {
        self.torn = true;
        for recorded in &mut self.turns {
            let concerned = turn.is_none_or(|turn| turn == recorded.turn);
            if concerned && matches!(recorded.played.ending, Ending::Dropped) {
                recorded.played.ending = Ending::Torn;
            }
        }
    }
}

/// The turn of a line that is cut off, where it reaches so far.
fn turn_of(line: &[u8]) -> Option<u32> {
    let line = String::from_utf8_lossy(line);
    let (_, number) = line.split_once("\"turn\":")?;
    let (number, _) = number.split_once(',')?;
    number.parse().ok()
}
