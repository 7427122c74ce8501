//! The JSON format for a run's answers to commands. Later versions of the crate may only add to the
//! format.

use serde::{Deserialize, Serialize};
use turnstream::hub::NotRunning;
use turnstream::{Error, ErrorKind};

/// The version of the JSON format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct AnswerJson {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    /// Whether the error means that the run no longer accepts commands.
    #[serde(default)]
    is_over: bool,
}

/// Encodes a run's answer to a command. If the answer is an error, its source is kept only if it is
/// a [`NotRunning`].
pub(crate) fn answer_to_json(answer: Result<(), Error>) -> String {
    let error = answer.err();
    let is_over = error.as_ref().is_some_and(|error| error.find_source::<NotRunning>().is_some());
    serde_json::to_string(&AnswerJson { v: VERSION, error, is_over }).unwrap_or_default()
}

/// Decodes the answer of the run with the id `run` to a command.
///
/// # Errors
///
/// Returns the run's error, or a [`Store`](ErrorKind::Store) error if the JSON is not an answer.
pub(crate) fn answer_from_json(run: &str, json: &[u8]) -> Result<(), Error> {
    let answer: AnswerJson = serde_json::from_slice(json).map_err(|error| {
        Error::new(ErrorKind::Store, "the answer of the run cannot be read").with_source(error)
    })?;
    match answer {
        AnswerJson { is_over: true, .. } => Err(NotRunning { run: run.to_owned() }.into()),
        AnswerJson { error: Some(error), .. } => Err(error),
        AnswerJson { error: None, .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_round_trip_and_other_texts_are_errors() {
        assert_eq!(answer_to_json(Ok(())), r#"{"v":1,"is_over":false}"#);
        answer_from_json("r", answer_to_json(Ok(())).as_bytes()).unwrap();
        let refused = answer_to_json(Err(Error::new(ErrorKind::Conflict, "answered before")));
        let refused = answer_from_json("r", refused.as_bytes()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let over = answer_to_json(Err(NotRunning { run: "r".to_owned() }.into()));
        let over = answer_from_json("r", over.as_bytes()).unwrap_err();
        assert!(over.find_source::<NotRunning>().is_some());
        assert_eq!(answer_from_json("r", b"?").unwrap_err().kind(), ErrorKind::Store);
    }
}
