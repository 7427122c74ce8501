//! Values that are stored are read back exactly, also by an earlier version.

use turnstream::Event;
use turnstream::event::{AppendReason, EndReason, InterruptedPhase, ToolEvent};
use turnstream::item::ResultKind;

#[test]
fn numbers_in_tool_output_round_trip_exactly() {
    let mut seed = 88_172_645_463_325_252_u64;
    for _ in 0..10_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let number = f64::from_bits(seed);
        let data = turnstream::item::RawJson::new(&number).unwrap();
        let event =
            Event::Tool(ToolEvent::Progress { call_id: "c".into(), name: "t".into(), data });
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
    }
}

#[test]
fn additions_of_a_later_version_are_ignored_where_unknown() {
    let read = |line: &str| serde_json::from_str::<Event>(line).unwrap();
    let appended = read(r#"{"type":"appended","why":"telepathy","id":"i","items":[]}"#);
    assert!(matches!(appended, Event::Appended { why: AppendReason::Other, .. }));
    let output = read(
        r#"{"type":"tool_output","call_id":"c","name":"t","is_error":true,"kind":"quota","content":"x"}"#,
    );
    assert_eq!(output.tool_output().unwrap().kind, ResultKind::Error);
    let nested = r#"{"type":"nested","call_id":"c","name":"n","event":{"type":"later"}}"#;
    assert_eq!(read(nested), Event::Unknown);
    assert!(serde_json::from_str::<Event>(r#"{"type":"continued","reason":"boredom"}"#).is_ok());
    let finished = read(r#"{"type":"finished","outcome":{"reason":"boredom","text":"so"}}"#);
    let outcome = finished.outcome().unwrap();
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Other, "so"));
    assert!(outcome.clone().into_result().is_err(), "it is not taken for completed");
    let written = serde_json::to_string(&finished).unwrap();
    assert_eq!(read(&written), finished);
    let interrupted =
        read(r#"{"type":"finished","outcome":{"reason":"interrupted","phase":"dreaming"}}"#);
    assert_eq!(
        interrupted.outcome().unwrap().reason,
        EndReason::Interrupted(InterruptedPhase::Streaming)
    );
}
