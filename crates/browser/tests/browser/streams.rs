//! Text streams in, disconnecting does not stop a run, and a page that reconnects has lost nothing.

use serde_json::json;

use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn text_is_shown_while_the_model_streams() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Tell me").await;
    let asked = model.asked().await;
    assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["content"], "Tell me");
    asked.say("It is **so");
    page.wait_for_words("It is so").await;
    assert_eq!(page.texts("#send").await, ["Steer now"]);
    asked.say("** and `so`.");
    asked.end();
    page.wait_until_idle().await;
    page.wait_for_words("Done · 1 request").await;
    assert_eq!(page.texts(".answer strong, .answer code").await, ["so", "so"]);
    assert_eq!(page.texts(".user .words").await, ["Tell me"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn stop_ends_the_run_and_every_call_has_a_result() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Look into it").await;
    // A sub-agent is a tool that takes as long as its model.
    model.asked().await.end_with_call("c1", "research", &json!({ "prompt": "Where?" }));
    let research = model.asked().await;
    research.say("I begin");
    page.wait_for_words("I begin").await;
    page.click("#stop").await;
    page.wait_until_idle().await;
    page.wait_for_words("Stopped · ").await;
    assert_eq!(page.texts("#live > .turn > .card > summary .status").await, ["was stopped"]);
    let items = server.items("s").await;
    let of = |kind: &str| items.iter().filter(|item| item["type"] == kind).count();
    assert_eq!((of("tool_call"), of("tool_result")), (1, 1), "{items:?}");
    // The same after a reload of the page.
    page.client.refresh().await.unwrap();
    page.wait_for_words("Look into it").await;
    page.wait("document.querySelector('#history .status')").await;
    assert_eq!(page.texts("#history .card > summary .status").await, ["was stopped"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn input_typed_during_a_turn_is_in_the_next_request() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Count").await;
    let first = model.asked().await;
    first.say("I count.");
    page.wait_for_words("I count.").await;
    page.ask("Only the files of Rust").await;
    page.wait("document.querySelector('#waiting li')").await;
    first.end_with_call("c1", "count_lines", &json!({ "path": "." }));
    let second = model.asked().await;
    let said = second.body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(said["content"], "Only the files of Rust");
    page.wait("!document.querySelector('#waiting li')").await;
    second.say("None.");
    second.end();
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, ["Count", "Only the files of Rust"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_message_sent_after_a_run_starts_the_next_one() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("One").await;
    let first = model.asked().await;
    first.say("Working");
    page.wait_for_words("Working").await;
    page.run("document.getElementById('text').value = 'Two'").await;
    page.click("#queue").await;
    page.wait("document.querySelector('#waiting li')").await;
    first.say(".");
    first.end();
    let second = model.asked().await;
    second.say("Next.");
    second.end();
    page.wait_for_words("Next.").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, ["One", "Two"]);
    assert_eq!(page.answers().await, ["Working.", "Next."]);
    assert_eq!(page.texts("#waiting li").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_reloaded_page_continues_at_the_current_event() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Before").await;
    model.answer("Earlier.").await;
    page.wait_for_words("Earlier.").await;
    page.wait_until_idle().await;
    page.ask("Tell me").await;
    let asked = model.asked().await;
    for word in ["one ", "two ", "three "] {
        asked.say(word);
        page.wait_for_words(word.trim()).await;
        page.client.refresh().await.unwrap();
        page.wait_for_words(word.trim()).await;
    }
    asked.say("four");
    asked.end();
    page.wait_until_idle().await;
    page.wait_for_words("four").await;
    assert_eq!(page.answers().await, ["Earlier.", "one two three four"]);
    assert_eq!(page.texts(".user .words").await, ["Before", "Tell me"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn two_pages_of_one_run_show_the_same_text() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let one = Page::open(&server, "s", WIDE).await;
    let two = Page::open(&server, "s", WIDE).await;
    one.ask("Tell us").await;
    let asked = model.asked().await;
    asked.say("Hello ");
    two.wait_for_words("Hello").await;
    // The other page stops it.
    two.click("#stop").await;
    one.wait_until_idle().await;
    two.wait_until_idle().await;
    assert_eq!(one.answers().await, ["Hello"]);
    let shown = "return document.getElementById('column').innerText";
    assert_eq!(one.run(shown).await, two.run(shown).await);
    // A regenerated answer replaces the first one on both pages.
    one.click("#regenerate").await;
    model.answer("Again.").await;
    for page in [&one, &two] {
        page.wait_for_words("Again.").await;
        page.wait_until_idle().await;
    }
    assert_eq!(one.texts(".user .words").await, ["Tell us"]);
    assert_eq!(two.texts(".user .words").await, ["Tell us"]);
    one.close().await;
    two.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_killed_server_continues_its_runs_after_a_restart() {
    let model = Model::start().await;
    let url = model.url();
    let flags =
        ["--provider", "openai", "--base-url", &url, "--model", "m", "--session", "sessions"];
    let mut server = Server::start_with(&flags, 0).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("First").await;
    model.answer("Done before.").await;
    page.wait_for_words("Done before.").await;
    page.wait_until_idle().await;
    page.ask("Second").await;
    let asked = model.asked().await;
    asked.say("Half of");
    page.wait_for_words("Half of").await;
    server.kill().await;
    page.wait("document.getElementById('connection').textContent").await;
    server.start_again().await;
    // The page finds it without a new user message. The turn that was streaming is lost, the
    // question is not.
    page.wait("!document.getElementById('unfinished').hidden").await;
    assert_eq!(page.texts(".user .words").await, ["First", "Second"]);
    assert_eq!(page.answers().await, ["Done before."]);
    page.click("#continue").await;
    model.answer("The whole of it.").await;
    page.wait_for_words("The whole of it.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["Done before.", "The whole of it."]);
    assert_eq!(page.texts(".user .words").await, ["First", "Second"]);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_fork_is_a_separate_session() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("One").await;
    model.answer("First.").await;
    page.wait_for_words("First.").await;
    page.wait_until_idle().await;
    page.ask("Two").await;
    model.answer("Second.").await;
    page.wait_for_words("Second.").await;
    page.wait_until_idle().await;
    page.client.refresh().await.unwrap();
    page.wait_for_words("Second.").await;
    // The session is forked before the second question, which is then changed.
    page.click("#history article:last-of-type .quiet").await;
    page.wait("!location.hash.endsWith('#s')").await;
    page.wait_for_words("First.").await;
    assert_eq!(page.run("return document.getElementById('text').value").await, "Two");
    page.run("document.getElementById('text').value = ''").await;
    page.ask("Three").await;
    model.answer("Third.").await;
    page.wait_for_words("Third.").await;
    assert_eq!(page.answers().await, ["First.", "Third."]);
    assert_eq!(server.items("s").await.len(), 4);
    page.wait("document.querySelectorAll('#sessions li').length === 2").await;
    page.click("#sessions a[data-id=s]").await;
    page.wait_for_words("Second.").await;
    assert_eq!(page.answers().await, ["First.", "Second."]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_retry_delay_is_shown_and_can_be_interrupted() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Ask").await;
    model.asked().await.refuse(503, 1);
    page.wait("document.querySelector('.retry')").await;
    let words = page.texts(".retry").await.concat();
    assert!(words.starts_with("Attempt 1 failed (") && words.contains("Next one in "), "{words}");
    model.answer("At last.").await;
    page.wait_for_words("At last.").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".retry").await, [""; 0]);
    page.ask("Ask again").await;
    model.asked().await.refuse(503, 30);
    page.wait("document.querySelector('.retry')").await;
    page.click("#stop").await;
    page.wait_until_idle().await;
    page.wait_for_words("Stopped · ").await;
    assert_eq!(page.texts(".retry").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_end_of_a_run_shows_its_tokens_and_cost() {
    let model = Model::start().await;
    let url = model.url();
    let flags = ["--provider", "openai", "--base-url", &url, "--model", "m"];
    let priced = [&flags[..], &["--price", "3,15", "--max-cost", "100"]].concat();
    for (flags, cost) in [(&flags[..], ""), (&priced, " · cost 3.0450")] {
        let server = Server::start_with(flags, 0).await;
        let page = Page::open(&server, "s", WIDE).await;
        page.ask("Count").await;
        let asked = model.asked().await;
        asked.say("Done.");
        asked.end_with_usage(1_000_000, 3_000);
        page.wait("document.querySelector('.end')").await;
        let end = format!("Done · 1 request · 1,000,000 tokens in, 3,000 out{cost}");
        assert_eq!(page.texts(".end").await, [end.as_str()]);
        page.reload().await;
        assert_eq!(page.texts(".end").await, [end]);
        page.close().await;
    }
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_reload_keeps_the_ends_of_runs_even_if_the_server_was_restarted() {
    let model = Model::start().await;
    let url = model.url();
    let flags =
        ["--provider", "openai", "--base-url", &url, "--model", "m", "--session", "sessions"];
    let mut server = Server::start_with(&flags, 0).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Calculate").await;
    let asked = model.asked().await;
    asked.call("c1", "calculate", &json!({ "expression": "2 + 3" }));
    asked.end_with_calls_and_usage(100, 20);
    let asked = model.asked().await;
    asked.say("Five.");
    asked.end_with_usage(200, 30);
    page.wait_for_words("Done").await;
    page.wait_until_idle().await;
    page.ask("Write").await;
    let asked = model.asked().await;
    asked.call("c2", "write_file", &json!({ "path": "a.txt", "text": "x" }));
    asked.end_with_calls_and_usage(1_000, 40);
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    let states = [
        "calculate done",
        "Done · 2 requests · 300 tokens in, 50 out",
        "write_file waits for your approval",
        "Waits for your approval · 1 request · 1,000 tokens in, 40 out",
    ];
    assert_eq!(page.states().await, states);
    page.reload().await;
    assert_eq!(page.states().await, states);
    server.kill().await;
    server.start_again().await;
    page.reload().await;
    assert_eq!(page.states().await, states);
    page.click(".approve").await;
    model.answer("Written.").await;
    page.wait_for_words("Written.").await;
    page.wait_until_idle().await;
    let states = [
        states[0],
        states[1],
        "write_file done",
        "Waited for your approval · 1 request · 1,000 tokens in, 40 out",
        "Done · 1 request",
    ];
    assert_eq!(page.states().await, states);
    page.reload().await;
    assert_eq!(page.states().await, states);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_reload_keeps_the_conversation_of_a_finished_sub_agent() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Look into it").await;
    model.asked().await.end_with_call("c1", "research", &json!({ "prompt": "Where?" }));
    let look = json!({ "query": "nothing-like-this", "path": "." });
    model.asked().await.end_with_call("c2", "search_text", &look);
    model.answer("Nowhere.").await;
    model.answer("It is nowhere.").await;
    page.wait_for_words("It is nowhere.").await;
    page.wait_until_idle().await;
    let nested = async || {
        page.texts(".nested > .user .words, .nested .card > summary, .nested .answer, .nested .end")
            .await
    };
    let shown = nested().await;
    assert_eq!(shown, ["Where?", "search_text done", "Nowhere.", "Done · 2 requests"]);
    assert_eq!(page.states().await.last().unwrap(), "Done · 2 requests");
    page.reload().await;
    page.wait("document.querySelector('.nested .end')").await;
    assert_eq!(nested().await, shown);
    // It is folded away as before.
    assert_eq!(
        page.run("return document.querySelector('.card:has(.nested .end)').open").await,
        false
    );
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_sign_of_life_is_shown_while_the_model_thinks() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let is_shown = "document.querySelector('#live > .thinking:last-child')?.checkVisibility()";
    let is_hidden = "!document.querySelector('.thinking')";
    page.ask("Think").await;
    let asked = model.asked().await;
    page.wait(is_shown).await;
    page.reload().await;
    page.wait(is_shown).await;
    // Reasoning is folded away.
    asked.reason("Let me see.");
    page.wait("document.querySelector('.reasoning')").await;
    page.wait(is_shown).await;
    asked.say("I look.");
    page.wait_for_words("I look.").await;
    page.wait(is_hidden).await;
    asked.end_with_call("c1", "calculate", &json!({ "expression": "2 + 3" }));
    // The model reads the result.
    let asked = model.asked().await;
    page.wait(is_shown).await;
    page.click("#stop").await;
    page.wait_until_idle().await;
    page.wait(is_hidden).await;
    drop(asked);
    // The time is shown if it is long.
    page.ask("Think again").await;
    let asked = model.asked().await;
    page.wait(is_shown).await;
    let later = "Date.now = () => performance.timeOrigin + performance.now() + 60_000";
    page.run(later).await;
    page.wait("/^Thinking … 6\\d s$/.test(document.querySelector('.thinking').textContent)").await;
    asked.say("Done.");
    asked.end();
    page.wait_until_idle().await;
    page.wait(is_hidden).await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_failed_run_can_be_tried_again_if_that_may_help() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let offer = "document.getElementById('unfinished')";
    page.ask("Ask").await;
    // The provider asks for a longer delay than the page waits for.
    model.asked().await.refuse(503, 3_600);
    page.wait(&format!("{offer}.checkVisibility()")).await;
    let (ends, words) = (page.texts(".end").await, page.texts("#unfinished").await.concat());
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends[0].starts_with("The request to the model failed: "), "{ends:?}");
    assert_eq!(ends[1], "1 request");
    assert!(words.contains("may succeed now") && words.contains("Try again"), "{words}");
    page.reload().await;
    page.wait(&format!("{offer}.checkVisibility()")).await;
    assert_eq!(page.texts(".end").await, ends);
    assert_eq!(page.texts("#unfinished").await.concat(), words);
    page.click("#continue").await;
    model.answer("At last.").await;
    page.wait_for_words("At last.").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, ["Ask"]);
    // The same request cannot succeed.
    page.ask("Ask again").await;
    model.asked().await.refuse(401, 0);
    page.wait("document.querySelectorAll('.end.bad').length === 2").await;
    page.wait_until_idle().await;
    page.wait(&format!("!{offer}.checkVisibility()")).await;
    page.reload().await;
    page.wait("document.querySelectorAll('.end.bad').length === 2").await;
    page.wait(&format!("!{offer}.checkVisibility()")).await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn an_answer_that_was_cut_off_can_be_tried_again() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let offer = "document.getElementById('unfinished')";
    page.ask("Ask").await;
    // The agent tries twice.
    for _ in 0..2 {
        let asked = model.asked().await;
        asked.say("Half of it.");
        page.wait("!document.querySelector('.thinking')").await;
    }
    page.wait(&format!("{offer}.checkVisibility()")).await;
    page.reload().await;
    page.wait(&format!("{offer}.checkVisibility()")).await;
    assert!(page.texts("#unfinished").await.concat().contains("Try again"));
    page.click("#continue").await;
    model.answer("The whole of it.").await;
    page.wait_for_words("The whole of it.").await;
    page.wait_until_idle().await;
    page.wait(&format!("!{offer}.checkVisibility()")).await;
    assert_eq!(page.texts(".user .words").await, ["Ask"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn an_example_question_is_asked_with_one_click() {
    let server = Server::start_offline().await;
    let page = Page::open(&server, "s", WIDE).await;
    page.wait("document.querySelectorAll('#examples button').length > 3").await;
    let examples = page.texts("#examples button").await;
    let at = examples.iter().position(|it| it.contains('*')).unwrap();
    page.click(&format!("#examples li:nth-child({}) button", at + 1)).await;
    page.wait_for_words("is 20").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, [examples[at].as_str()]);
    page.wait("!document.getElementById('welcome').checkVisibility()").await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_trace_of_a_run_is_shown_step_by_step() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "a-session-with-a-long-name", WIDE).await;
    page.ask("Calculate").await;
    model.asked().await.end_with_call("c1", "calculate", &json!({ "expression": "2 + 3" }));
    model.answer("Five.").await;
    page.wait_for_words("Done · 2 requests").await;
    page.wait_until_idle().await;
    page.ask("Look into it").await;
    model.asked().await.end_with_call("c2", "research", &json!({ "prompt": "Where?" }));
    model.answer("Nowhere.").await;
    model.answer("It is nowhere.").await;
    page.wait_for_words("It is nowhere.").await;
    page.wait_until_idle().await;
    page.click("#show-trace").await;
    page.wait("document.getElementById('trace').open").await;
    let steps = page.texts("#trace-runs section:last-child summary").await;
    assert_eq!(steps, ["1. calculate", "2. Done: Five."]);
    let steps = page.texts("#trace-runs section:first-child summary").await;
    assert_eq!(steps, ["1. in research: Done: Nowhere.", "1. research", "2. Done: It is nowhere."]);
    // Each run has an id of its own.
    let ids = page.texts("#trace-runs h3").await;
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn stop_answer_ends_the_words_and_sends_the_typed_message() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Clean up").await;
    let asked = model.asked().await;
    asked.say("First, I delete ");
    page.wait_for_words("First, I delete").await;
    page.stop_answer_with("Delete nothing").await;
    // The model has not ended its turn.
    let next = model.asked().await;
    drop(asked);
    let messages = next.body["messages"].as_array().unwrap();
    let [.., said, steered] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(said["content"].as_str().unwrap().trim_end(), "First, I delete");
    assert_eq!(steered["content"], "Delete nothing");
    page.wait_for_words("Stopped here").await;
    next.say("Then I only list them.");
    next.end();
    page.wait_for_words("Then I only list them.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["First, I delete", "Then I only list them."]);
    assert_eq!(page.texts(".user .words").await, ["Clean up", "Delete nothing"]);
    assert_eq!(page.texts("#waiting li").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn stop_answer_lets_a_running_tool_finish() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Look into it").await;
    // A sub-agent is a tool that takes as long as its model.
    model.asked().await.end_with_call("c1", "research", &json!({ "prompt": "Where?" }));
    let research = model.asked().await;
    research.say("I begin");
    page.wait_for_words("I begin").await;
    page.stop_answer_with("And when?").await;
    page.wait("document.querySelector('#waiting li')").await;
    research.say(" and find it.");
    research.end();
    let next = model.asked().await;
    let messages = next.body["messages"].as_array().unwrap();
    let [.., result, steered] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((&result["role"], &steered["content"]), (&json!("tool"), &json!("And when?")));
    assert!(result["content"].to_string().contains("I begin and find it."), "{result}");
    next.say("Yesterday.");
    next.end();
    page.wait_for_words("Yesterday.").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".turn > .card > summary .status").await, ["done"]);
    page.close().await;
}
