//! The verdicts on a session's pending calls.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::durable::engine::StoredCommand;
use crate::error::{Error, ErrorKind};
use crate::hub::Command;
use crate::item::PendingCall;
use crate::tool::Verdict;

/// Collects verdicts on the calls that a run has left pending. An engine stores these verdicts.
///
/// The verdicts arrive one at a time, possibly over several days. When the last verdict arrives,
/// the engine starts a run that resumes the calls.
///
/// ```
/// use turnstream::durable::storage::{AddedVerdict, GivenVerdicts};
/// use turnstream::item::ToolCall;
/// use turnstream::tool::Verdict;
///
/// # fn main() -> Result<(), turnstream::Error> {
/// let call = |id: &str| ToolCall { call_id: id.into(), name: "pay".into(), arguments: "{}".into() };
/// let pending = [call("c1").into(), call("c2").into()];
/// let mut given = GivenVerdicts::default();
/// let added = given.add(&pending, pending[0].clone(), Verdict::Approve)?;
/// assert_eq!(added, AddedVerdict::SomeMissing);
/// let added = given.add(&pending, pending[1].clone(), Verdict::Deny("too much".into()))?;
/// assert_eq!(added, AddedVerdict::AllGiven);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenVerdicts {
    #[serde(with = "stored_commands")]
    verdicts: Vec<(PendingCall, Verdict)>,
    /// The id of the run that resumes the calls. The engine sets the id after starting the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// The result of adding a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedVerdict {
    /// The verdict was added. Other pending calls still need verdicts.
    SomeMissing,
    /// The verdict was added, and every pending call now has a verdict. The engine should start a
    /// run that resumes the calls.
    AllGiven,
    /// The same verdict had already been given, for example because a client lost the response and
    /// sent the verdict again.
    Repeated,
}

impl GivenVerdicts {
    /// Adds a verdict on one of the session's `pending` calls.
    ///
    /// `call` must equal the pending call, including its approval id, its arguments and the
    /// definition of its tool. A verdict other than an approval may leave the [approval
    /// id](PendingCall::approval_id) empty.
    ///
    /// Returns [`Repeated`](AddedVerdict::Repeated) for a repeated verdict, even if the call has
    /// already been answered.
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](ErrorKind::Conflict) error if the verdict does not answer the request
    /// of a pending call, or if the call already has a different verdict. If an error is returned,
    /// no verdict is added.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a verdict and its call are passed on together"
    )]
    pub fn add(
        &mut self,
        pending: &[PendingCall],
        call: PendingCall,
        verdict: Verdict,
    ) -> Result<AddedVerdict, Error> {
        let is_repeated = |(request, known): &(PendingCall, Verdict)| {
            *known == verdict && verdict.answers(request, &call)
        };
        if self.verdicts.iter().any(is_repeated) {
            return Ok(AddedVerdict::Repeated);
        }
        let conflict = |message| {
            let error = Error::new(ErrorKind::Conflict, message);
            error.with_parameter(call.call_id.as_str())
        };
        let request = pending.iter().find(|request| verdict.answers(request, &call));
        let Some(request) = request else {
            return Err(conflict("the verdict does not answer the request of a pending call"));
        };
        if self.has_verdict(request) {
            return Err(conflict("the call has another verdict already"));
        }
        self.verdicts.push((request.clone(), verdict));
        Ok(match pending.iter().all(|request| self.has_verdict(request)) {
            true => AddedVerdict::AllGiven,
            false => AddedVerdict::SomeMissing,
        })
    }

    fn has_verdict(&self, request: &PendingCall) -> bool {
        self.verdicts.iter().any(|(known, _)| known == request)
    }
}

impl FromIterator<(PendingCall, Verdict)> for GivenVerdicts {
    fn from_iter<T: IntoIterator<Item = (PendingCall, Verdict)>>(verdicts: T) -> Self {
        Self { verdicts: verdicts.into_iter().collect(), run: None }
    }
}

impl IntoIterator for GivenVerdicts {
    type Item = (PendingCall, Verdict);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.verdicts.into_iter()
    }
}

/// Serializes verdicts as commands, because the JSON format for commands is versioned.
mod stored_commands {
    use super::{
        Command, Deserialize, Deserializer, PendingCall, Serializer, StoredCommand, Verdict,
    };

    pub(super) fn serialize<S: Serializer>(
        verdicts: &[(PendingCall, Verdict)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(verdicts.iter().cloned().map(|(call, verdict)| StoredCommand {
            id: call.call_id.clone(),
            command: Command::Verdict { call, verdict },
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(PendingCall, Verdict)>, D::Error> {
        use serde::de::Error as _;
        let stored = Vec::<StoredCommand>::deserialize(deserializer)?;
        let verdict = |stored: StoredCommand| match stored.command {
            Command::Verdict { call, verdict } => Ok((call, verdict)),
            _ => Err(D::Error::custom("a command that is not a verdict")),
        };
        stored.into_iter().map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ToolCall;
    use crate::tool::ToolOutput;

    fn call(id: &str) -> PendingCall {
        let (call_id, name) = (id.to_owned(), "pay".to_owned());
        let approval_id = format!("request for {id}");
        let call = ToolCall { call_id, name, arguments: "{}".to_owned() };
        PendingCall { approval_id, ..call.into() }
    }

    /// Adds a verdict on the call with this id while the given calls are pending.
    fn add(
        given: &mut GivenVerdicts,
        pending: &[&str],
        id: &str,
        verdict: Verdict,
    ) -> Result<AddedVerdict, ErrorKind> {
        let pending: Vec<PendingCall> = pending.iter().map(|id| call(id)).collect();
        given.add(&pending, call(id), verdict).map_err(|error| error.kind())
    }

    fn deny() -> Verdict {
        Verdict::Deny("no".to_owned())
    }

    #[test]
    fn only_the_last_missing_verdict_completes_the_verdicts() {
        let (mut given, pending) = (GivenVerdicts::default(), ["c1", "c2"]);
        let added = add(&mut given, &pending, "c2", Verdict::Approve);
        assert_eq!(added, Ok(AddedVerdict::SomeMissing));
        assert_eq!(add(&mut given, &pending, "c1", deny()), Ok(AddedVerdict::AllGiven));
        let verdicts: Vec<_> = given.into_iter().collect();
        assert_eq!(verdicts, [(call("c2"), Verdict::Approve), (call("c1"), deny())]);
    }

    #[test]
    fn a_repeated_verdict_does_not_complete_the_verdicts_again() {
        let (mut given, pending) = (GivenVerdicts::default(), ["c1", "c2"]);
        let mut approve = |id| add(&mut given, &pending, id, Verdict::Approve);
        assert_eq!(approve("c1"), Ok(AddedVerdict::SomeMissing));
        assert_eq!(approve("c1"), Ok(AddedVerdict::Repeated));
        assert_eq!(approve("c2"), Ok(AddedVerdict::AllGiven));
        assert_eq!(approve("c2"), Ok(AddedVerdict::Repeated));
        assert_eq!(given.into_iter().count(), 2);
    }

    #[test]
    fn a_verdict_may_be_repeated_after_its_call_was_answered() {
        let mut given = GivenVerdicts::default();
        assert_eq!(add(&mut given, &["c1"], "c1", Verdict::Approve), Ok(AddedVerdict::AllGiven));
        assert_eq!(add(&mut given, &[], "c1", Verdict::Approve), Ok(AddedVerdict::Repeated));
        // A different verdict is too late.
        assert_eq!(add(&mut given, &[], "c1", deny()), Err(ErrorKind::Conflict));
    }

    #[test]
    fn the_first_of_two_different_verdicts_counts() {
        let mut given = GivenVerdicts::default();
        add(&mut given, &["c1", "c2"], "c1", Verdict::Approve).unwrap();
        let before = given.clone();
        assert_eq!(add(&mut given, &["c1", "c2"], "c1", deny()), Err(ErrorKind::Conflict));
        assert_eq!(given, before);
    }

    #[test]
    fn a_verdict_on_different_arguments_is_refused() {
        let mut given = GivenVerdicts::default();
        let other = PendingCall { arguments: r#"{"amount":1}"#.to_owned(), ..call("c1") };
        let error = given.add(&[call("c1")], other, Verdict::Approve).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(given, GivenVerdicts::default());
    }

    #[test]
    fn only_a_denial_or_a_result_may_leave_the_approval_id_empty() {
        let unnamed = || PendingCall { approval_id: String::new(), ..call("c1") };
        let other = || PendingCall { approval_id: "another request".to_owned(), ..call("c1") };
        let output = || Verdict::Output(ToolOutput::error("broken"));
        for (name, verdict, accepts_unnamed) in [
            ("approve", Verdict::Approve, false),
            ("deny", deny(), true),
            ("output", output(), true),
        ] {
            let mut given = GivenVerdicts::default();
            let mut add = |call| {
                let added = given.add(&[self::call("c1")], call, verdict.clone());
                added.map_err(|error| error.kind())
            };
            assert_eq!(add(other()), Err(ErrorKind::Conflict), "{name}");
            let expected = match accepts_unnamed {
                true => [Ok(AddedVerdict::AllGiven), Ok(AddedVerdict::Repeated)],
                false => [Err(ErrorKind::Conflict), Err(ErrorKind::Conflict)],
            };
            assert_eq!([add(unnamed()), add(unnamed())], expected, "{name}");
            // The verdict is stored with the request that it answers.
            let calls: Vec<_> = given.into_iter().map(|(call, _)| call).collect();
            assert_eq!(calls, vec![call("c1"); usize::from(accepts_unnamed)], "{name}");
        }
    }

    #[test]
    fn verdicts_round_trip_through_json() {
        let output = Verdict::Output(ToolOutput::error("broken"));
        let verdicts = [(call("c1"), Verdict::Approve), (call("c2"), deny()), (call("c3"), output)];
        let mut given: GivenVerdicts = verdicts.into_iter().collect();
        given.run = Some("run-1".to_owned());
        let json = serde_json::to_string(&given).unwrap();
        assert_eq!(serde_json::from_str::<GivenVerdicts>(&json).unwrap(), given);
        assert_eq!(serde_json::from_str::<GivenVerdicts>("{}").unwrap(), GivenVerdicts::default());
        let foreign = r#"{"verdicts":[{"v":1,"id":"x","command":{"type":"interrupt"}}]}"#;
        assert!(serde_json::from_str::<GivenVerdicts>(foreign).is_err());
    }
}
