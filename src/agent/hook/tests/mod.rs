//! How several hooks are put together, and what closures give.

mod ask;
mod label;
mod repair;

use std::borrow::Cow;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::FutureExt;

use super::*;
use crate::agent::State;
use crate::error::{Error, ErrorKind};
use crate::event::{Outcome, Reason};
use crate::item::{History, Item, Json, ResultKind, ToolCall, ToolResult};
use crate::request::Request;
use crate::story::Journal;
use crate::turn::{Turn, TurnBuilder, TurnEvent};

type Shared<T> = Arc<Mutex<T>>;

fn state() -> State {
    State::new(History::from_id("h"))
}

fn call(arguments: &str) -> ToolCall {
    ToolCall { call_id: "c1".into(), name: "t".into(), arguments: arguments.into() }
}

fn turn(text: &str) -> Arc<Turn> {
    let mut turn = TurnBuilder::new();
    turn.text(0, text);
    turn.stop(crate::item::StopReason::Stop, "");
    turn.complete().unwrap();
    match std::iter::from_fn(|| turn.next_event()).last() {
        Some(TurnEvent::TurnComplete { turn }) => turn,
        _ => panic!("no turn"),
    }
}

fn outcome() -> Outcome {
    Journal::new(History::from_id("h")).outcome(Reason::Completed, None)
}

fn hooks(hooks: impl IntoIterator<Item = Box<dyn Hook>>) -> Hooks {
    let mut all = Hooks::new();
    for hook in hooks {
        all.push(hook.into());
    }
    all
}

fn one(hook: impl Hook + 'static) -> Hooks {
    hooks([Box::new(hook) as Box<dyn Hook>])
}

/// What a future gives at its first poll, outside of any runtime.
#[track_caller]
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an answer at the first poll")
}

/// What hooks that observe give, each at its first poll.
#[track_caller]
fn observed(observers: impl Iterator<Item = Observer>) -> Vec<Result<Vec<Item>, Error>> {
    let mut cx = Context::from_waker(Waker::noop());
    let polled = observers.map(|mut observer| observer.poll(&mut cx));
    let ready = |polled| match polled {
        Poll::Ready(given) => given,
        Poll::Pending => panic!("it is not over at the first poll"),
    };
    polled.map(ready).collect()
}

fn answering(answer: BeforeTool) -> Box<dyn Hook> {
    Box::new(before_tool(move |_, _| ready(answer.clone())))
}

fn stopping(answer: OnStop) -> Box<dyn Hook> {
    Box::new(stop(move |_, _| ready(answer.clone())))
}

fn rewrite(arguments: &str) -> BeforeTool {
    BeforeTool::Rewrite(arguments.to_owned())
}

fn deny(why: &str) -> BeforeTool {
    BeforeTool::Deny(why.to_owned())
}

fn block(text: &str) -> OnStop {
    OnStop::Block(text.to_owned())
}

fn prevent(why: &str) -> OnStop {
    OnStop::Prevent(why.to_owned())
}

#[track_caller]
fn check_before_tool<const N: usize>(answers: [BeforeTool; N], expected: &Permitted) {
    let hooks = hooks(answers.map(answering));
    assert_eq!(&at_once(hooks.before_tool(&state(), &call("{}"))).unwrap(), expected);
}

#[track_caller]
fn check_stop<const N: usize>(answers: [OnStop; N], expected: &OnStop) {
    let hooks = hooks(answers.map(stopping));
    assert_eq!(&at_once(hooks.stop(&state(), &turn("done"))).unwrap(), expected);
}

/// Checks kind and message of an error, and the kind and the words of its source.
#[track_caller]
fn check_error(error: &Error, named: &str, source: (ErrorKind, &str)) {
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    assert_eq!(error.to_string(), format!("the hook {named}: {}", source.1));
    let found = error.find_source::<Error>().unwrap();
    assert_eq!((found.kind(), found.message()), source);
}

/// A hook with a name.
struct Named<H>(&'static str, H);

impl<H: Hook> Hook for Named<H> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        call: &'a ToolCall,
    ) -> HookFuture<'a, BeforeTool> {
        self.1.before_tool(state, call)
    }

    fn repair(&self, state: &State, call: &ToolCall, why: &str) -> Option<String> {
        self.1.repair(state, call, why)
    }

    fn after_sampling(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        self.1.after_sampling(state, turn)
    }

    fn after_tool(&self, state: &State, call: &ToolCall, result: &mut ToolResult) {
        self.1.after_tool(state, call, result);
    }
}

/// A hook that does nothing.
struct Nothing;

impl Hook for Nothing {}

#[test]
fn without_hooks_everything_is_let_through_at_the_first_poll() {
    for hooks in [Hooks::new(), one(Nothing)] {
        let (state, turn) = (Arc::new(state()), turn("hi"));
        let request = Request { model: Some("m".into()), ..Request::new(state.history.clone()) };
        let prepared = at_once(hooks.request(&state, request)).unwrap();
        assert_eq!((prepared.model.as_deref(), prepared.context.len()), (Some("m"), 0));
        for given in [
            observed(hooks.turn_started(&state)),
            observed(hooks.assistant_message(&state, &turn)),
            observed(hooks.after_sampling(&state, &turn)),
        ] {
            assert!(given.iter().all(|given| *given == Ok(Vec::new())));
        }
        let permitted = at_once(hooks.before_tool(&state, &call("{}"))).unwrap();
        assert_eq!(permitted, Permitted::Run { arguments: None });
        assert!(!at_once(hooks.should_stop(&state)).unwrap());
        assert_eq!(at_once(hooks.stop(&state, &turn)).unwrap(), OnStop::LetGo);
        hooks.failure(&state, &Error::new(ErrorKind::Server, "no"));
        hooks.finished(&state, &outcome());
    }
    assert!(Hooks::new().is_empty() && !one(Nothing).is_empty());
}

#[test]
fn the_first_deny_wins_and_ends_the_round() {
    use BeforeTool::{Ask, Run};
    check_before_tool([Run, Run], &Permitted::Run { arguments: None });
    let denied = |why: &str| Permitted::Deny { why: why.to_owned() };
    check_before_tool([Run, deny("a"), deny("b")], &denied("a"));
    check_before_tool([Ask, deny("a")], &denied("a"));
    check_before_tool([rewrite("{}"), deny("a")], &denied("a"));

    let heard = Shared::<Vec<String>>::default();
    let observer = {
        let heard = heard.clone();
        before_tool(move |_, call| {
            heard.lock().unwrap().push(call.call_id);
            ready(Run)
        })
    };
    let hooks = hooks([answering(deny("a")), Box::new(observer)]);
    at_once(hooks.before_tool(&state(), &call("{}"))).unwrap();
    assert!(heard.lock().unwrap().is_empty());
}

#[test]
fn an_ask_is_remembered_together_with_rewrites_before_and_behind_it() {
    use BeforeTool::{Ask, Run};
    check_before_tool([Ask, Run], &Permitted::Ask { arguments: None });
    let asked = Permitted::Ask { arguments: Some(r#"{"a":2}"#.to_owned()) };
    check_before_tool([rewrite(r#"{"a":1}"#), Ask, rewrite(r#"{"a":2}"#)], &asked);
}

#[test]
fn rewrites_chain() {
    let append = || {
        Box::new(before_tool(|_, call: ToolCall| async move {
            BeforeTool::Rewrite(call.arguments.replace(']', ",1]"))
        })) as Box<dyn Hook>
    };
    let hooks = hooks([append(), append()]);
    let permitted = at_once(hooks.before_tool(&state(), &call(r#"{"n":[0]}"#))).unwrap();
    assert_eq!(permitted, Permitted::Run { arguments: Some(r#"{"n":[0,1,1]}"#.to_owned()) });
}

#[test]
fn a_rewrite_to_anything_but_an_object_is_an_error() {
    for arguments in ["", "[]", "null", "{", "{} {}"] {
        let hooks = one(Named("r", answering(rewrite(arguments))));
        let error = at_once(hooks.before_tool(&state(), &call("{}"))).unwrap_err();
        let source = (ErrorKind::Other, "its arguments are not a JSON object");
        check_error(&error, "`r` failed in `before_tool`", source);
    }
}

#[test]
fn blocking_is_looked_at_before_preventing() {
    use OnStop::LetGo;
    check_stop([LetGo, LetGo], &LetGo);
    check_stop([prevent("a"), prevent("b")], &prevent("a"));
    check_stop([prevent("a"), block("b")], &block("b"));
    check_stop([block("a"), prevent("x"), LetGo, block("b")], &block("a\n\nb"));
    let prove = || OnStop::Prove { text: "p".to_owned(), why: "w".to_owned() };
    check_stop([prove(), LetGo], &prove());
    check_stop([prove(), prevent("x")], &prevent("x"));
    check_stop([block("a"), prove()], &block("a"));
    check_stop([block(""), prevent("x")], &block(""));
}

#[test]
fn the_first_hook_that_stops_the_run_is_the_last_one_asked() {
    let asked = Shared::<Vec<u8>>::default();
    let hook = |id: u8, answer: bool| {
        let asked = asked.clone();
        Box::new(should_stop(move |_| {
            asked.lock().unwrap().push(id);
            ready(answer)
        })) as Box<dyn Hook>
    };
    let hooks = hooks([hook(1, false), hook(2, true), hook(3, false)]);
    assert!(at_once(hooks.should_stop(&state())).unwrap());
    assert_eq!(*asked.lock().unwrap(), [1, 2]);
}

#[test]
fn the_context_is_changed_in_order_and_the_history_stays() {
    let push = |text: &'static str| {
        Box::new(transform_context(move |_, mut context| async move {
            context.push(Item::text(text));
            context
        })) as Box<dyn Hook>
    };
    let meddling = prepare(|_, mut request| async move {
        assert_eq!(request.context.len(), 3);
        request.history = History::from_id("another");
        request.context = History::from_id("another");
        request.model = Some("large".into());
        request
    });
    let state = State::new(History::from_items("h", [Item::user("q")]));
    let hooks = hooks([push("a"), Box::new(meddling), push("b")]);
    let request = at_once(hooks.request(&state, Request::new(state.history.clone()))).unwrap();
    let texts: Vec<_> = request.context.iter().filter_map(Item::as_text).collect();
    assert_eq!(texts, ["a", "b"]);
    assert_eq!(request.history, state.history);
    assert_eq!(request.model.as_deref(), Some("large"));
}

#[test]
fn items_for_the_next_turn_are_collected_from_all_hooks() {
    let saying = |item: Item| {
        Box::new(Named("s", after_sampling(move |_, _| ready(vec![item.clone()])))) as Box<dyn Hook>
    };
    let all = hooks([saying(Item::user("1")), saying(Item::system("2"))]);
    let (state, turn) = (Arc::new(state()), turn("hi"));
    let items = observed(all.after_sampling(&state, &turn));
    assert_eq!(items, [Ok(vec![Item::user("1")]), Ok(vec![Item::system("2")])]);

    let answered = ToolResult::for_call(&call("{}"), ResultKind::Ok, "fine");
    let others = [
        Item::text("I said so"),
        Item::reasoning("hm"),
        Item::tool_call("c1", "t", "{}"),
        Item::tool_result(answered),
    ];
    for item in others {
        let hooks = hooks([saying(Item::user("1")), saying(item)]);
        let [ok, error] = &observed(hooks.after_sampling(&state, &turn))[..] else { panic!() };
        assert_eq!(*ok, Ok(vec![Item::user("1")]));
        let error = error.as_ref().unwrap_err();
        let source = (ErrorKind::Other, "it may add only user and system items");
        check_error(error, "`s` failed in `after_sampling`", source);
    }
}

#[test]
fn a_result_is_changed_in_order_and_still_answers_its_call() {
    let append = |text: &'static str| {
        Box::new(after_tool(move |_, call: &ToolCall, result: &mut ToolResult| {
            assert_eq!(call.call_id, "c1");
            result.content = format!("{}{text}", result.content.text()).into();
            result.call_id = "another".into();
            result.name.clear();
            result.kind = ResultKind::Error;
        })) as Box<dyn Hook>
    };
    let hooks = hooks([append("1"), append("2")]);
    let mut result = ToolResult::for_call(&call("{}"), ResultKind::Ok, "0");
    hooks.after_tool(&state(), &call("{}"), &mut result).unwrap();
    assert_eq!(result, ToolResult::for_call(&call("{}"), ResultKind::Error, "012"));
}

#[test]
fn a_panic_in_after_tool_changes_nothing_and_the_others_still_get_the_result() {
    let panicking = after_tool(|_, _: &ToolCall, result: &mut ToolResult| {
        result.content = "".into();
        panic!("boom");
    });
    let redacting = after_tool(|_, _: &ToolCall, result: &mut ToolResult| {
        result.content = result.content.text().replace("secret", "***").into();
    });
    let second = after_tool(|_, _: &ToolCall, _: &mut ToolResult| panic!("boom again"));
    let hooks = hooks([
        Box::new(Named("p", panicking)) as Box<dyn Hook>,
        Box::new(redacting),
        Box::new(second),
    ]);
    let mut result = ToolResult::for_call(&call("{}"), ResultKind::Ok, "a secret");
    let error = hooks.after_tool(&state(), &call("{}"), &mut result).unwrap_err();
    check_error(&error, "`p` failed in `after_tool`", (ErrorKind::Panic, "it panicked: boom"));
    assert_eq!(result.content.text(), "a ***");
}

#[test]
fn the_futures_can_move_between_threads() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    fn can_move<T: Send + 'static>() {}
    can_move::<Observer>();
    let (hooks, state, turn) = (Hooks::new(), state(), turn("done"));
    let request = Request::new(state.history.clone());
    at_once(is_send(hooks.request(&state, request))).unwrap();
    at_once(is_send(hooks.before_tool(&state, &call("{}")))).unwrap();
    at_once(is_send(hooks.should_stop(&state))).unwrap();
    at_once(is_send(hooks.stop(&state, &turn))).unwrap();
}

#[test]
fn a_closure_gives_an_answer_or_a_result_of_one() {
    fn failing() -> Result<bool, Error> {
        Err(Error::new(ErrorKind::Store, "no"))
    }
    let plain = before_tool(async |_, call: ToolCall| match call.arguments.is_empty() {
        true => BeforeTool::Ask,
        false => BeforeTool::Run,
    });
    let fallible = before_tool(|_, _| async move {
        if failing()? {
            return Ok(BeforeTool::Ask);
        }
        Ok(BeforeTool::Run)
    });
    let counting = Shared::<u32>::default();
    let capturing = {
        let counting = counting.clone();
        turn_started(move |state| {
            let counting = counting.clone();
            async move { *counting.lock().unwrap() += state.counts.model_calls + 1 }
        })
    };
    let said = assistant_message(|_, turn| async move {
        assert_eq!(turn.text(), "hi");
        Ok(())
    });
    let (state, turn) = (state(), turn("hi"));
    assert_eq!(at_once(plain.before_tool(&state, &call(""))), Ok(BeforeTool::Ask));
    let error = at_once(fallible.before_tool(&state, &call(""))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    at_once(capturing.turn_started(&state)).unwrap();
    assert_eq!(*counting.lock().unwrap(), 1);
    at_once(said.assistant_message(&state, &turn)).unwrap();
    assert!(plain.name().contains("a_closure_gives_an_answer_or_a_result_of_one"));
}
