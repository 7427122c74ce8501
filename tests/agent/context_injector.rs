//! Context that is injected into a single request besides the conversation.

use std::sync::{Arc, Mutex};

use turnstream::context::{
    ContextCandidate, ContextInjector, ContextSelection, RejectedCandidate, SelectedCandidate,
};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, History, Item};

use crate::compaction::{look_call_reply, look_tool};
use turnstream_test_support::items::{
    history_of, look_turn, message_texts, session_items, token_usage,
};

fn context_candidate(source: &str, text: &str, why: &str) -> ContextCandidate {
    ContextCandidate { source: source.into(), text: text.into(), why: why.into() }
}

/// Counts bytes instead of tokens, so that the numbers are easy to check.
fn byte_counting_injector(cap: u64, candidates: Vec<ContextCandidate>) -> ContextInjector {
    ContextInjector {
        counter: Arc::new(|text: &str| text.len() as u64),
        ..ContextInjector::new(cap, move |_| candidates.clone())
    }
}

#[test]
fn candidates_are_selected_in_order_up_to_the_cap_with_recorded_reasons() {
    // Each block is `# s\n(w)\n` and the text; the separators have two bytes.
    let candidates = vec![
        context_candidate("a", "12345", "w"),
        context_candidate("b", "no reason", "  "),
        context_candidate("c", &"x".repeat(99), "w"),
        context_candidate("d", "123", "w"),
        context_candidate("e", "", "w"),
    ];
    let before = history_of([Item::user("u")]);
    let narrowed = byte_counting_injector(26, candidates).inject(&before);
    let chosen =
        |source: &str, tokens| SelectedCandidate { source: source.into(), why: "w".into(), tokens };
    let left_out =
        |source: &str, why: &str| RejectedCandidate { source: source.into(), why: why.into() };
    assert_eq!(
        narrowed.selection,
        ContextSelection {
            chosen: vec![chosen("a", 13), chosen("d", 13)],
            left_out: vec![
                left_out("b", "no reason was given"),
                left_out("c", "it has 109 tokens, and 13 are left"),
                left_out("e", "it has 10 tokens, and 0 are left"),
            ],
            tokens: 26,
            cap: 26,
        }
    );
    assert_eq!(message_texts(&narrowed.context), ["u", "# a\n(w)\n12345\n\n# d\n(w)\n123"]);
    let json = serde_json::to_string(&narrowed.selection).unwrap();
    assert_eq!(serde_json::from_str::<ContextSelection>(&json).unwrap(), narrowed.selection);
}

#[test]
fn the_cap_also_applies_to_constraints_and_the_step_summary() {
    for cap in 0..120 {
        let injector = ContextInjector {
            constraints: "Be brief.".to_owned(),
            max_turns: Some(1),
            ..byte_counting_injector(cap, vec![context_candidate("a", "12345", "w")])
        };
        let it = injector.inject(&history_of(session_items(3)));
        let added = message_texts(&it.context).last().unwrap().len() as u64;
        let selection = &it.selection;
        assert!(selection.tokens <= cap && (selection.tokens == added || selection.tokens == 0));
        let is_left_out = |name| selection.left_out.iter().any(|it| it.source == name);
        assert_eq!(is_left_out("constraints"), cap < 22, "{cap}");
    }
}

#[test]
fn without_context_to_inject_the_history_is_sent_unchanged() {
    let before = history_of(session_items(2));
    let mut injector = byte_counting_injector(99, vec![context_candidate("a", "x", "")]);
    injector.constraints = " \n".to_owned();
    let it = injector.inject(&before);
    assert!(it.context == before);
    assert_eq!((it.selection.tokens, it.selection.left_out.len()), (0, 1));
}

#[test]
fn old_turns_are_replaced_by_one_line_per_call() {
    let mut items = vec![Item::system("rule"), Item::user("old")];
    items.extend(look_turn(0));
    items.push(Item::user("newest"));
    items.extend((1..4).flat_map(look_turn));
    let before = history_of(items);
    let mut injector = byte_counting_injector(999, vec![]);
    injector.constraints = "Be brief.".to_owned();
    injector.max_turns = Some(1);
    let it = injector.inject(&before);
    assert!(it.context.is_settled());
    assert_eq!(it.context.iter().next(), Some(&Item::system("rule")));
    let steps = "Done so far:\n- look {\"n\":0}: ok\n- look {\"n\":1}: ok\n- look {\"n\":2}: ok";
    let said = format!("Constraints:\nBe brief.\n\n{steps}");
    assert_eq!(message_texts(&it.context), ["newest", "text 3", &said]);
    injector.constraints.clear();
    injector.step_summary = Arc::new(|old| format!("{} entries", old.len()));
    assert_eq!(message_texts(&injector.inject(&before).context)[2], "Done so far:\n15 entries");
}

#[tokio::test]
async fn as_a_hook_it_changes_the_request_and_never_the_history() {
    let seen: Arc<Mutex<Vec<ContextSelection>>> = Arc::default();
    let noted = seen.clone();
    let mut narrow = ContextInjector::new(1_000, |history: &History| {
        vec![context_candidate("state", &format!("{} entries", history.len()), "it is asked for")]
    });
    narrow.on_selection =
        Some(Arc::new(move |selection| noted.lock().unwrap().push(selection.clone())));
    let model = Scripted::new([look_call_reply(token_usage(1, 1)), Reply::text("done")]);
    let agent = Agent::new(model.clone()).with_tools([look_tool(3)]).with_hook(narrow);
    let outcome = agent.run("go").outcome().await;
    assert_eq!(message_texts(&outcome.history), ["go", "Let me look.", "done"]);
    let requests = model.requests();
    assert!(requests[1].history.len() == 4 && requests[1].context.len() == 5);
    let said = "# state\n(it is asked for)\n4 entries";
    assert_eq!(message_texts(&requests[1].context).last().unwrap(), said);
    let sources: Vec<_> = seen.lock().unwrap().iter().map(|it| it.chosen.len()).collect();
    assert_eq!(sources, [1, 1]);
}

#[tokio::test]
async fn a_panicking_candidate_function_is_a_hook_failure() {
    let narrow = ContextInjector::new(9, |_: &History| panic!("no index"));
    let agent = Agent::new(Scripted::new(["never"])).with_hook(narrow);
    let outcome = agent.run("go").outcome().await;
    let error = outcome.error.unwrap().to_string();
    assert!(error.contains("`context_injector` failed in `transform_context`"), "{error}");
}
