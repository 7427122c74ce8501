//! A call that needs approval is shown exactly, and does not run before it is approved.

use std::path::Path;

use serde_json::json;

use crate::access::serious_issues;
use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_call_that_is_approved_runs_with_the_arguments_that_were_shown() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Write it").await;
    // The text has a character that would reverse the display order of those after it.
    let arguments = json!({ "path": "a.txt", "text": "line 1\n\"line\" 2 \u{202e}txt" });
    model.asked().await.end_with_call("c1", "write_file", &arguments);
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".approval dt").await, ["path", "text"]);
    let shown = page.texts(".approval .value").await;
    assert_eq!(shown, ["a.txt", "line 1\n\"line\" 2 U+202Etxt"]);
    let file = server.folder.join("a.txt");
    assert!(!file.exists());
    page.click(".approve").await;
    model.answer("It is written.").await;
    page.wait_for_words("It is written.").await;
    page.wait_until_idle().await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), arguments["text"].as_str().unwrap());
    assert_eq!(page.texts(".approval").await, [""; 0]);
    assert_eq!(page.texts(".card > summary .status").await, ["done"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_call_that_is_denied_does_not_run_and_the_model_reads_why() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Write it").await;
    let arguments = json!({ "path": "a.txt", "text": "no" });
    model.asked().await.end_with_call("c1", "write_file", &arguments);
    page.wait("document.querySelector('.approval input')").await;
    page.run("document.querySelector('.approval input').value = 'not here'").await;
    page.click(".deny").await;
    let asked = model.asked().await;
    let result = asked.body["messages"].as_array().unwrap().last().unwrap().clone();
    assert!(result["content"].as_str().unwrap().contains("not here"), "{result}");
    asked.say("As you like.");
    asked.end();
    page.wait_for_words("As you like.").await;
    page.wait_until_idle().await;
    assert!(!server.folder.join("a.txt").exists());
    assert_eq!(page.texts(".card > summary .status").await, ["was denied"]);
    page.close().await;
}

/// Allows all calls to a tool, checks that another call asks no question, revokes the permission,
/// and checks that the next call asks.
pub(crate) async fn allow_and_revoke(page: &Page, model: &Model, folder: &Path) {
    const HAS_GRANTS: &str = "document.getElementById('show-grants').checkVisibility()";
    let write = |name: &str| json!({ "path": name, "text": "x" });
    page.ask("Write a").await;
    model.asked().await.end_with_call("c1", "write_file", &write("a.txt"));
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    page.wait(&format!("!{HAS_GRANTS}")).await;
    page.click(".approval .always").await;
    model.answer("Wrote a.").await;
    page.wait_for_words("Wrote a.").await;
    page.wait_until_idle().await;

    page.ask("Write b").await;
    model.asked().await.end_with_call("c2", "write_file", &write("b.txt"));
    // The run continues without a verdict.
    model.answer("Wrote b.").await;
    page.wait_for_words("Wrote b.").await;
    page.wait_until_idle().await;
    assert!(folder.join("b.txt").exists());
    assert_eq!(page.texts(".approval").await, [""; 0]);

    page.wait(HAS_GRANTS).await;
    assert_eq!(page.texts("#show-grants").await, ["Always allowed: 1"]);
    page.click("#show-grants").await;
    page.wait("document.querySelector('#grants .grant')").await;
    let listed = page.texts("#grants .grant > p:first-child").await;
    assert_eq!(listed, ["write_file, with any arguments"]);
    assert_eq!(serious_issues(page).await, [""; 0]);
    page.click("#grants .revoke").await;
    page.wait("document.querySelector('#grants .grant').innerText.includes('Revoked')").await;
    page.click("#grants form button").await;
    page.wait(&format!("!{HAS_GRANTS}")).await;

    page.ask("Write c").await;
    model.asked().await.end_with_call("c3", "write_file", &write("c.txt"));
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    assert!(!folder.join("c.txt").exists());
    page.click(".deny").await;
    model.answer("As you like.").await;
    page.wait_for_words("As you like.").await;
    page.wait_until_idle().await;
    assert!(!folder.join("c.txt").exists());
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_tool_that_is_always_allowed_asks_again_after_the_permission_was_revoked() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    allow_and_revoke(&page, &model, &server.folder).await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_pending_question_survives_a_killed_server() {
    let model = Model::start().await;
    let url = model.url();
    let flags =
        ["--provider", "openai", "--base-url", &url, "--model", "m", "--session", "sessions"];
    let mut server = Server::start_with(&flags, 0).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Write both").await;
    let asked = model.asked().await;
    let write = |name: &str| json!({ "path": name, "text": "x" });
    asked.call("c1", "write_file", &write("a.txt"));
    asked.end_with_call("c2", "write_file", &write("b.txt"));
    page.wait("document.querySelectorAll('.approval').length === 2").await;
    page.wait_until_idle().await;
    server.kill().await;
    server.start_again().await;
    page.client.refresh().await.unwrap();
    page.wait("document.querySelectorAll('.approval').length === 2").await;
    page.click(".approval:first-child .approve").await;
    page.wait_for_words("Approved. 1 more to answer.").await;
    assert!(!server.folder.join("a.txt").exists());
    page.click(".approval:last-child .deny").await;
    model.answer("One of two.").await;
    page.wait_for_words("One of two.").await;
    page.wait_until_idle().await;
    assert!(server.folder.join("a.txt").exists());
    assert!(!server.folder.join("b.txt").exists());
    page.close_after_errors().await;
}

/// A page on which a call to write a file waits for approval.
async fn open_waiting_page(model: &Model, server: &Server) -> Page {
    let page = Page::open(server, "s", WIDE).await;
    page.ask("Write it").await;
    let arguments = json!({ "path": "a.txt", "text": "x" });
    model.asked().await.end_with_call("c1", "write_file", &arguments);
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    page
}

const HAS_QUESTION: &str = "document.getElementById('question').checkVisibility()";

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_message_gives_up_a_waiting_call_only_after_a_question() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = open_waiting_page(&model, &server).await;
    page.ask("Never mind").await;
    page.wait(HAS_QUESTION).await;
    assert_eq!(page.draft().await, "Never mind");
    page.click("#question .keep").await;
    page.wait(&format!("!{HAS_QUESTION}")).await;
    assert_eq!(page.texts(".user .words").await, ["Write it"]);
    let waits = ["write_file waits for your approval", "Waits for your approval · 1 request"];
    assert_eq!(page.states().await, waits);
    // Pressing Enter again does not answer the question.
    page.ask("").await;
    page.wait(HAS_QUESTION).await;
    page.ask("").await;
    page.wait(HAS_QUESTION).await;
    assert_eq!(server.items("s").await.len(), 3);
    page.click("#question .deny").await;
    let asked = model.asked().await;
    let messages = asked.body["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["content"], "Never mind");
    assert_eq!(messages[messages.len() - 2]["role"], "tool");
    asked.say("Fine.");
    asked.end();
    page.wait_for_words("Fine.").await;
    page.wait_until_idle().await;
    assert_eq!(page.draft().await, "");
    assert_eq!(page.texts("#question, .approval").await, [""]);
    assert!(!server.folder.join("a.txt").exists());
    let states =
        ["write_file was not run", "Waited for your approval · 1 request", "Done · 1 request"];
    assert_eq!(page.states().await, states);
    page.reload().await;
    assert_eq!(page.states().await, states);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn an_answer_whose_call_waits_is_not_offered_to_be_replaced() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = open_waiting_page(&model, &server).await;
    let is_offered = "document.getElementById('regenerate').checkVisibility()";
    page.wait(&format!("!{is_offered}")).await;
    page.reload().await;
    page.wait("document.querySelector('.approval')").await;
    page.wait(&format!("!{is_offered}")).await;
    page.click(".approve").await;
    model.answer("Written.").await;
    page.wait_for_words("Written.").await;
    page.wait(is_offered).await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn an_approval_elsewhere_ends_the_question() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = open_waiting_page(&model, &server).await;
    let other = Page::open(&server, "s", WIDE).await;
    page.ask("Never mind").await;
    page.wait(HAS_QUESTION).await;
    other.click(".approve").await;
    let asked = model.asked().await;
    page.wait(&format!("!{HAS_QUESTION}")).await;
    assert_eq!(page.draft().await, "Never mind");
    asked.say("Written.");
    asked.end();
    page.wait_for_words("Written.").await;
    assert!(server.folder.join("a.txt").exists());
    page.close_after_errors().await;
    other.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_queued_message_waits_until_waiting_calls_are_answered() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Write it").await;
    let asked = model.asked().await;
    asked.say("Yes.");
    page.wait_for_words("Yes.").await;
    page.run("document.getElementById('text').value = 'And then?'").await;
    page.click("#queue").await;
    page.wait("document.querySelector('#waiting li')").await;
    asked.end_with_call("c1", "write_file", &json!({ "path": "a.txt", "text": "x" }));
    page.wait_until_idle().await;
    page.click(".approve").await;
    let asked = model.asked().await;
    assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["role"], "tool");
    asked.say("Written.");
    asked.end();
    let asked = model.asked().await;
    assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["content"], "And then?");
    asked.say("Nothing.");
    asked.end();
    page.wait_for_words("Nothing.").await;
    page.wait_until_idle().await;
    assert!(server.folder.join("a.txt").exists());
    assert_eq!(page.texts(".user .words").await, ["Write it", "And then?"]);
    assert_eq!(page.texts("#waiting li").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_message_that_gives_up_waiting_calls_does_not_overtake_a_queued_message() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Write it").await;
    let asked = model.asked().await;
    asked.say("Yes.");
    page.wait_for_words("Yes.").await;
    page.run("document.getElementById('text').value = 'And then?'").await;
    page.click("#queue").await;
    page.wait("document.querySelector('#waiting li')").await;
    asked.end_with_call("c1", "write_file", &json!({ "path": "a.txt", "text": "x" }));
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    page.ask("Never mind").await;
    page.wait(HAS_QUESTION).await;
    page.click("#question .deny").await;
    for message in ["And then?", "Never mind"] {
        let asked = model.asked().await;
        assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["content"], message);
        asked.say("Fine.");
        asked.end();
    }
    page.wait("document.querySelectorAll('.user').length === 3").await;
    page.wait_until_idle().await;
    assert!(!server.folder.join("a.txt").exists());
    page.close_after_errors().await;
}
