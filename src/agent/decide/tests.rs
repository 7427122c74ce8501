#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{History, Item, ToolCall, ToolResult};
    use crate::turn::{TurnBuilder, TurnEvent};

    fn turn(reason: StopReason, text: &str, calls: u32) -> std::sync::Arc<Turn> {
        let mut turn = TurnBuilder::new();
        turn.text(0, text);
        for call in 0..calls {
            turn.tool_call_start(call, "", "t");
            turn.tool_call_end(call);
        }
        turn.stop(reason, "");
        turn.complete().unwrap();
        match std::iter::from_fn(|| turn.next_event()).last() {
            Some(TurnEvent::TurnComplete { turn }) => turn,
            _ => panic!("no turn"),
        }
    }

    fn state() -> State {
        State { model_calls: 1, ..State::new(History::with_id("h")) }
    }

    #[track_caller]
    fn check(reason: StopReason, text: &str, calls: u32, expected: &Decision) {
        let turn = turn(reason, text, calls);
        assert_eq!(&decide(&state(), &turn, Limits::default(), false), expected);
    }

    #[test]
    fn the_table_of_turns() {
        use Reason::{Completed, ContextWindow, Filtered, Malformed, Refused, Truncated};
        let other = || StopReason::Other("odd".into());
        check(StopReason::Stop, "hi", 0, &finish(Completed));
        check(StopReason::Stop, "hi", 1, &Decision::RunTools);
        check(StopReason::Stop, "", 0, &Decision::Correct(EMPTY_REPLY.into()));
        check(StopReason::ToolCalls, "", 2, &Decision::RunTools);
        check(StopReason::ToolCalls, "hi", 0, &finish(Completed));
        check(StopReason::ToolCalls, "", 0, &finish(Malformed));
        check(StopReason::MaxTokens, "hi", 0, &finish(Truncated));
        check(StopReason::MaxTokens, "", 1, &finish(Truncated));
        check(StopReason::ContextWindow, "", 1, &finish(ContextWindow));
        check(StopReason::ContentFilter, "hi", 1, &finish(Filtered));
        check(StopReason::Refusal, "no", 0, &finish(Refused));
        check(StopReason::Pause, "", 0, &go_on(Transition::PauseResumed));
        check(other(), "", 0, &finish(Completed));
        check(other(), "", 1, &go_on(Transition::Corrective));
    }

    #[test]
    fn an_empty_reply_behind_tool_results_is_the_end() {
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
        let result = ToolResult::answering(&call, ResultKind::Ok, "done");
        let history = History::from_items("h", [Item::tool_result(result)]);
        let state = State { model_calls: 1, ..State::new(history) };
        let turn = turn(StopReason::Stop, "", 0);
        assert_eq!(decide(&state, &turn, Limits::default(), false), completed());
    }

    #[test]
    fn the_third_unusable_reply_in_a_row_ends_the_run() {
        let empty = turn(StopReason::Stop, "", 0);
        let state = State { malformed: 2, ..state() };
        assert_eq!(decide(&state, &empty, Limits::default(), false), finish(Reason::Malformed));
        let wrong = [ResultKind::UnknownTool, ResultKind::InvalidArguments];
        let ended = Answered::Finish(Reason::Malformed);
        assert_eq!(after_tools(&state, &wrong, Limits::default()), ended);
        let mixed = [ResultKind::UnknownTool, ResultKind::Ok];
        let goes_on = Answered::Continue(Transition::NextTurn);
        assert_eq!(after_tools(&state, &mixed, Limits::default()), goes_on);
    }

    #[test]
    fn a_stop_reason_that_is_not_understood_is_asked_about_once() {
        let turn = turn(StopReason::Other("odd".into()), "", 1);
        let state = State { asked_again: true, ..state() };
        assert_eq!(decide(&state, &turn, Limits::default(), false), finish(Reason::Malformed));
    }

    #[test]
    fn at_the_cap_nothing_goes_on_but_the_tools_still_run() {
        let limits = Limits { max_turns: 1, ..Limits::default() };
        let capped = finish(Reason::MaxTurns);
        let at_cap =
            |reason, text, calls| decide(&state(), &turn(reason, text, calls), limits, true);
        assert_eq!(at_cap(StopReason::Pause, "", 0), capped);
        assert_eq!(at_cap(StopReason::Stop, "", 0), capped);
        assert_eq!(at_cap(StopReason::Stop, "hi", 0), completed());
        assert_eq!(at_cap(StopReason::ToolCalls, "", 1), Decision::RunTools);
        let ended = Answered::Finish(Reason::MaxTurns);
        assert_eq!(after_tools(&state(), &[ResultKind::Ok], limits), ended);
    }

    #[test]
    fn an_answer_that_is_objected_to_is_corrected_so_often_as_the_limit_says() {
        let after = |malformed, objection| {
            let state = State { malformed, ..state() };
            after_validation(&state, objection, Limits::default())
        };
        assert_eq!(after(2, None), completed());
        let Decision::Correct(text) = after(1, Some("it is blue")) else { panic!("not corrected") };
        assert!(text.contains("it is blue"), "{text}");
        assert_eq!(after(2, Some("it is blue")), finish(Reason::Malformed));
        let one = Limits { max_turns: 1, ..Limits::default() };
        assert_eq!(after_validation(&state(), Some("no"), one), finish(Reason::MaxTurns));
    }

    #[test]
    fn steering_starts_one_more_turn_only_when_the_model_stops_by_itself() {
        let steered = |reason| decide(&state(), &turn(reason, "hi", 0), Limits::default(), true);
        assert_eq!(steered(StopReason::Stop), go_on(Transition::Steering));
        assert_eq!(steered(StopReason::Refusal), finish(Reason::Refused));
        assert_eq!(steered(StopReason::MaxTokens), finish(Reason::Truncated));
    }
}
