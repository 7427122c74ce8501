//! Reads the turns in a recording.

use std::collections::VecDeque;

use crate::error::Error;
use crate::json_lines::parse_values;
use crate::provider::record::line::{FORMAT_VERSION, RecordLine, RecordedRequest, RequestJson};
use crate::provider::replay::rebuild_turn::unreadable_record_error;
use crate::provider::replay::replayed_turn::{ReplayedEvent, ReplayedTurn, TurnEnding};
use crate::turn::TurnEvent;

/// A parsed recording.
pub(super) struct RecordFile {
    pub(super) model: String,
    pub(super) turns: Vec<RecordedTurn>,
    /// Whether the recording's last line is truncated.
    pub(super) has_torn_line: bool,
}

/// A turn in a recording.
pub(super) struct RecordedTurn {
    pub(super) number: u32,
    pub(super) request: RecordedRequest,
    pub(super) replayed_turn: ReplayedTurn,
}

/// Parses the lines of a recording. A truncated last line is skipped and reported in
/// `has_torn_line`.
pub(super) fn read_record(text: &str) -> Result<RecordFile, Error> {
    let mut tape: Option<RecordFile> = None;
    let torn = parse_values(text, |line: RecordLine<'_>| {
        match (line, &mut tape) {
            (RecordLine::Recording { version: FORMAT_VERSION, model }, None) => {
                tape = Some(RecordFile {
                    model: model.into_owned(),
                    turns: Vec::new(),
                    has_torn_line: false,
                });
            }
            (RecordLine::Recording { version, .. }, None) => {
                return Err(format!("version {version} of the format is not known"));
            }
            (_, None) => return Err("a recording begins with a line `recording`".to_owned()),
            (line, Some(tape)) => tape.push_line(line)?,
        }
        Ok(())
    });
    let torn = torn.map_err(|why| unreadable_record_error(&why))?;
    let mut tape = tape.ok_or_else(|| unreadable_record_error("it is empty"))?;
    if let Some(torn) = torn {
        tape.mark_unfinished_turns_torn(turn_number_in(torn));
    }
    Ok(tape)
}

impl RecordFile {
    fn push_line(&mut self, line: RecordLine<'_>) -> Result<(), String> {
        match line {
            RecordLine::Recording { .. } => return Err("a second recording begins".to_owned()),
            RecordLine::Request { turn, request } => self.begin_turn(turn, *request)?,
            RecordLine::Event { turn, is_vetoed, event } => {
                let event = event.into_owned();
                let played = self.unfinished_turn_mut(turn)?;
                if matches!(event, TurnEvent::TurnComplete { .. }) {
                    played.ending = TurnEnding::Complete;
                }
                played.events.push_back(ReplayedEvent { event, is_vetoed });
            }
            RecordLine::Error { turn, error } => {
                self.unfinished_turn_mut(turn)?.ending = TurnEnding::Failed(error.into_owned());
            }
            RecordLine::Unknown => {}
        }
        Ok(())
    }

    fn begin_turn(&mut self, turn: u32, request: RequestJson) -> Result<(), String> {
        if self.turns.iter().any(|recorded| recorded.number == turn) {
            return Err(format!("turn {turn} is requested twice"));
        }
        let find = |turn| self.turns.iter().find(|it| it.number == turn).map(|it| &it.request);
        let asked = RecordedRequest::from_json(request, find)?;
        let played = ReplayedTurn { events: VecDeque::new(), ending: TurnEnding::Dropped };
        self.turns.push(RecordedTurn { number: turn, request: asked, replayed_turn: played });
        Ok(())
    }

    /// Returns the unfinished turn with the number `turn`.
    fn unfinished_turn_mut(&mut self, turn: u32) -> Result<&mut ReplayedTurn, String> {
        let recorded = self.turns.iter_mut().rfind(|recorded| recorded.number == turn);
        match recorded.map(|recorded| &mut recorded.replayed_turn) {
            Some(played) if matches!(played.ending, TurnEnding::Dropped) => Ok(played),
            Some(_) => Err(format!("turn {turn} continues after its end")),
            None => Err(format!("turn {turn} was not requested")),
        }
    }

    /// Marks as torn the turn to which the truncated last line belongs. If the turn's number is
    /// unknown, all unfinished turns are marked as torn.
    fn mark_unfinished_turns_torn(&mut self, turn: Option<u32>) {
        self.has_torn_line = true;
        for recorded in &mut self.turns {
            let concerned = turn.is_none_or(|turn| turn == recorded.number);
            if concerned && matches!(recorded.replayed_turn.ending, TurnEnding::Dropped) {
                recorded.replayed_turn.ending = TurnEnding::Torn;
            }
        }
    }
}

/// Returns the turn number in a truncated line, if the line is long enough to contain it.
fn turn_number_in(line: &[u8]) -> Option<u32> {
    let line = String::from_utf8_lossy(line);
    let (_, number) = line.split_once("\"turn\":")?;
    let (number, _) = number.split_once(',')?;
    number.parse().ok()
}
