//! Reads the turns in a recording.

use std::collections::VecDeque;

use crate::error::Error;
use crate::event::Event;
use crate::json_lines::parse_values;
use crate::replay::recorded_request::{RecordedRequest, RequestLine};
use crate::replay::recording::parse_error;
use crate::replay::recording_line::{FORMAT_VERSION, LineOwner, RecordingLine};
use crate::turn::TurnEvent;
use crate::world::{ReplayedEvent, ReplayedTurn, TurnEnding};

/// The turns in a recording of a provider or of runs.
#[derive(Default)]
pub(super) struct RecordedTurns {
    pub(super) model: String,
    pub(super) turns: Vec<RecordedTurn>,
    /// Whether the recording's last line is truncated.
    pub(super) has_torn_line: bool,
}

/// A turn in a recording.
pub(super) struct RecordedTurn {
    owner: LineOwner,
    /// The number of the turn in the recording, counted from 1.
    pub(super) number: usize,
    pub(super) request: RecordedRequest,
    pub(super) replayed_turn: ReplayedTurn,
}

/// Parses the lines of a recording. A truncated last line is skipped and reported in
/// `has_torn_line`.
pub(super) fn read_turns(text: &str) -> Result<RecordedTurns, Error> {
    let mut recorded: Option<RecordedTurns> = None;
    let torn = parse_values(text, |line: RecordingLine<'_>| {
        match (line, &mut recorded) {
            (RecordingLine::Recording { version, .. } | RecordingLine::Run { version, .. }, _)
                if version != FORMAT_VERSION =>
            {
                return Err(format!("version {version} of the format is not known"));
            }
            (RecordingLine::Recording { model, .. }, None) => {
                let model = model.into_owned();
                recorded = Some(RecordedTurns { model, ..RecordedTurns::default() });
            }
            (RecordingLine::Run { .. }, None) => recorded = Some(RecordedTurns::default()),
            (_, None) => {
                return Err("a recording begins with a line `recording` or `run`".to_owned());
            }
            (line, Some(recorded)) => recorded.push_line(line)?,
        }
        Ok(())
    });
    let torn = torn.map_err(parse_error)?;
    let mut recorded = recorded.ok_or_else(|| parse_error("it is empty"))?;
    if let Some(torn) = torn {
        recorded.mark_unfinished_turns_torn(owner_of(torn));
    }
    Ok(recorded)
}

impl RecordedTurns {
    fn push_line(&mut self, line: RecordingLine<'_>) -> Result<(), String> {
        match line {
            RecordingLine::Recording { .. } => {
                return Err("a second recording begins".to_owned());
            }
            RecordingLine::Request { owner, request } => self.begin_turn(owner, *request)?,
            RecordingLine::Event { owner, is_vetoed, event } => match event.into_owned() {
                Event::Turn(event) => self.push_event(owner, event, is_vetoed)?,
                Event::TurnStarted { model, .. } if self.model.is_empty() => self.model = model,
                _ => {}
            },
            RecordingLine::TurnFailed { owner, error } => {
                if let Some(played) = self.unfinished_turn_mut(owner)? {
                    played.ending = TurnEnding::Failed(error.into_owned());
                }
            }
            RecordingLine::Run { .. }
            | RecordingLine::Value { .. }
            | RecordingLine::LoopEnded { .. }
            | RecordingLine::Unknown => {}
        }
        Ok(())
    }

    fn begin_turn(&mut self, owner: LineOwner, line: RequestLine) -> Result<(), String> {
        let is_shared = |turn: &&RecordedTurn| match owner {
            LineOwner::Turn(_) => matches!(turn.owner, LineOwner::Turn(_)),
            LineOwner::Run(_) => turn.owner == owner,
        };
        let last = self.turns.iter().rfind(is_shared);
        if let LineOwner::Turn(number) = owner
            && self.turns.iter().any(|turn| turn.owner == owner)
        {
            return Err(format!("turn {number} is requested twice"));
        }
        let request = match last {
            Some(last) => RecordedRequest::from_line(line, &last.request)?,
            None => RecordedRequest::from_line(line, &RecordedRequest::default())?,
        };
        let replayed_turn = ReplayedTurn { events: VecDeque::new(), ending: TurnEnding::Dropped };
        let number = self.turns.len() + 1;
        self.turns.push(RecordedTurn { owner, number, request, replayed_turn });
        Ok(())
    }

    fn push_event(
        &mut self,
        owner: LineOwner,
        event: TurnEvent,
        is_vetoed: bool,
    ) -> Result<(), String> {
        if let Some(played) = self.unfinished_turn_mut(owner)? {
            if matches!(event, TurnEvent::TurnComplete { .. }) {
                played.ending = TurnEnding::Complete;
            }
            played.events.push_back(ReplayedEvent { event, is_vetoed });
        }
        Ok(())
    }

    /// Returns the unfinished turn to which a line belongs. In a run, an event from a turn may
    /// follow its end: a retraction by the agent.
    fn unfinished_turn_mut(
        &mut self,
        owner: LineOwner,
    ) -> Result<Option<&mut ReplayedTurn>, String> {
        let recorded = self.turns.iter_mut().rfind(|recorded| recorded.owner == owner);
        match (recorded.map(|recorded| &mut recorded.replayed_turn), owner) {
            (Some(played), _) if matches!(played.ending, TurnEnding::Dropped) => Ok(Some(played)),
            (_, LineOwner::Run(_)) => Ok(None),
            (Some(_), LineOwner::Turn(turn)) => Err(format!("turn {turn} continues after its end")),
            (None, LineOwner::Turn(turn)) => Err(format!("turn {turn} was not requested")),
        }
    }

    /// Marks as unreadable the turn to which the truncated last line belongs. If the owner of the
    /// line is unknown, all unfinished turns are marked.
    fn mark_unfinished_turns_torn(&mut self, owner: Option<LineOwner>) {
        self.has_torn_line = true;
        for recorded in &mut self.turns {
            let concerned = owner.is_none_or(|owner| owner == recorded.owner);
            if concerned && matches!(recorded.replayed_turn.ending, TurnEnding::Dropped) {
                let why = parse_error("its last line, of this turn, is cut off");
                recorded.replayed_turn.ending = TurnEnding::Unreadable(why);
            }
        }
    }
}

/// Returns the owner of a truncated line, if the line is long enough to contain it.
fn owner_of(line: &[u8]) -> Option<LineOwner> {
    let line = String::from_utf8_lossy(line);
    let number = |key: &str| -> Option<(usize, u32)> {
        let at = line.find(key)?;
        let (number, _) = line[at + key.len()..].split_once(',')?;
        Some((at, number.parse().ok()?))
    };
    match (number("\"turn\":"), number("\"run\":")) {
        (Some((turn_at, _)), Some((at, run))) if at < turn_at => Some(LineOwner::Run(run)),
        (Some((_, turn)), _) => Some(LineOwner::Turn(turn)),
        (None, Some((_, run))) => Some(LineOwner::Run(run)),
        (None, None) => None,
    }
}
