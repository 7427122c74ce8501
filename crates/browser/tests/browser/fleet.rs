//! On Restate, a run continues whichever process is killed, and the page shows each word once.

use serde_json::{Value, json};

use crate::approvals::allow_and_revoke;
use crate::driver::WIDE;
use crate::fleet_process::{FRONT_END, Fleet, REDIS, RESTATE, WORKERS};
use crate::model::Model;
use crate::page::Page;
use crate::pictures;
use crate::server::project;

/// The number of tool results that a request to the model has.
fn tool_results(body: &Value) -> usize {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] == "tool").count()
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn a_run_of_a_killed_worker_continues_on_another_without_repeated_text() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    fleet.post("/sessions/s/runs", &json!({ "text": "Begin" })).await;
    let asked = model.asked().await;
    asked.say("Looking. ");
    asked.end_with_call("c1", "count_lines", &json!({ "path": "." }));
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    asked.say("two ");
    page.wait_for_words("One two").await;

    let (worker, process) = fleet.worker_of("s");
    fleet.kill(&[&worker]);
    drop(asked);
    // Another worker retries the lost turn with the result of the tool, which does not run again.
    let asked = model.asked().await;
    assert_eq!(tool_results(&asked.body), 1);
    asked.say("One two ");
    page.wait_for_words("One two").await;
    asked.say("three.");
    asked.end();
    page.wait_for_words("three.").await;
    page.wait_until_idle().await;
    assert_ne!(fleet.worker_of("s").1, process);
    assert_eq!(page.answers().await.concat(), "Looking.One two three.");
    assert_eq!(page.texts(".user .words").await, ["Begin"]);
    assert_eq!(page.texts(".card > summary .status").await, ["done"]);

    // The session in the store shows the same.
    page.client.refresh().await.unwrap();
    page.wait_for_words("One two three.").await;
    assert_eq!(page.answers().await.concat(), "Looking.One two three.");
    assert_eq!(page.texts("#sessions .title").await, ["Begin"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn an_approval_can_be_given_after_every_process_was_restarted() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Write both").await;
    let asked = model.asked().await;
    let write = |name: &str| json!({ "path": name, "text": "x" });
    asked.call("c1", "write_file", &write("a.txt"));
    asked.end_with_call("c2", "write_file", &write("b.txt"));
    page.wait("document.querySelectorAll('.approval').length === 2").await;
    page.wait_until_idle().await;
    fleet.kill_and_wait(&[WORKERS[0], WORKERS[1], RESTATE, REDIS, FRONT_END]).await;
    page.client.refresh().await.unwrap();
    page.wait("document.querySelectorAll('.approval').length === 2").await;
    page.click(".approval:first-child .approve").await;
    page.wait_for_words("Approved. 1 more to answer.").await;
    assert!(!fleet.folder.join("a.txt").exists());
    page.click(".approval:last-child .deny").await;
    model.answer("One of two.").await;
    page.wait_for_words("One of two.").await;
    page.wait_until_idle().await;
    assert!(fleet.folder.join("a.txt").exists());
    assert!(!fleet.folder.join("b.txt").exists());
    assert_eq!(page.texts(".approval").await, [""; 0]);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn a_permission_is_used_by_each_run_until_it_is_revoked() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    allow_and_revoke(&page, &model, &fleet.folder).await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn a_run_continues_after_restate_and_both_workers_were_killed_mid_turn() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    fleet.kill_and_wait(&[WORKERS[0], WORKERS[1], RESTATE]).await;
    drop(asked);
    let asked = model.asked().await;
    asked.say("One ");
    asked.say("two.");
    asked.end();
    page.wait_for_words("One two.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One two."]);
    assert_eq!(page.texts(".user .words").await, ["Begin"]);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn stop_ends_the_streaming_turn_and_keeps_its_text() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("Half of ");
    page.wait_for_words("Half of").await;
    page.click("#stop").await;
    // The model has not ended its turn.
    page.wait_for_words("Stopped · ").await;
    page.wait_until_idle().await;
    drop(asked);
    assert_eq!(page.answers().await, ["Half of"]);
    page.ask("Again").await;
    model.answer("The whole of it.").await;
    page.wait_for_words("The whole of it.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["Half of", "The whole of it."]);
    assert_eq!(page.texts(".user .words").await, ["Begin", "Again"]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn steered_input_reaches_the_next_request_even_if_the_worker_is_killed() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    page.ask("And two").await;
    page.wait("document.getElementById('waiting').children.length === 1").await;
    fleet.kill(&[&fleet.worker_of("s").0]);
    drop(asked);
    let asked = model.asked().await;
    asked.say("One.");
    asked.end();
    let asked = model.asked().await;
    assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["content"], "And two");
    asked.say("Two.");
    asked.end();
    page.wait_for_words("Two.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One.", "Two."]);
    assert_eq!(page.texts(".user .words").await, ["Begin", "And two"]);
    assert_eq!(page.texts("#waiting li").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn a_queued_message_starts_its_own_run_and_a_fork_is_independent() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("One").await;
    let first = model.asked().await;
    first.say("First");
    page.wait_for_words("First").await;
    page.run("document.getElementById('text').value = 'Two'").await;
    page.click("#queue").await;
    page.wait("document.querySelector('#waiting li')").await;
    first.say(".");
    first.end();
    model.answer("Second.").await;
    page.wait_for_words("Second.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["First.", "Second."]);
    assert_eq!(page.texts("#waiting li").await, [""; 0]);
    // The session is forked before the second question, which is then changed.
    page.client.refresh().await.unwrap();
    page.wait_for_words("Second.").await;
    page.click("#history article:last-of-type .quiet").await;
    page.wait("!location.hash.endsWith('#s')").await;
    page.wait("document.querySelectorAll('.user').length === 1").await;
    page.run("document.getElementById('text').value = ''").await;
    page.ask("Three").await;
    model.answer("Third.").await;
    page.wait_for_words("Third.").await;
    page.wait_until_idle().await;
    page.wait("document.querySelectorAll('.answer').length === 2").await;
    assert_eq!(page.answers().await, ["First.", "Third."]);
    assert_eq!(fleet.get("/sessions/s/messages").await["total"], 4);
    page.wait("document.querySelectorAll('#sessions li').length === 2").await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn without_redis_and_postgresql_the_page_shows_each_turn_when_it_is_complete() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &["--without", "redis", "--without", "postgres"]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("Looking. ");
    asked.end_with_call("c1", "count_lines", &json!({ "path": "." }));
    let asked = model.asked().await;
    page.wait_for_words("Looking.").await;
    page.wait("document.body.dataset.running === 'true'").await;
    fleet.kill(&[&fleet.worker_of("s").0]);
    drop(asked);
    let asked = model.asked().await;
    assert_eq!(tool_results(&asked.body), 1);
    asked.say("None.");
    asked.end();
    page.wait_for_words("None.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["Looking.", "None."]);
    page.wait("document.querySelectorAll('#sessions li').length === 1").await;
    page.close().await;
}

/// Uses the scripted model, whose replies say that they are scripted.
#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn pictures_of_a_killed_worker_and_a_restarted_approval_are_taken() {
    let fleet = Fleet::start_in(project(), &["--scripted"], []).await;
    let page = Page::open_at(&fleet.url(), "p", WIDE).await;
    page.ask("How many lines are in crates/restate/src, and which file is the longest?").await;
    page.wait("document.querySelectorAll('.card').length > 1").await;
    page.wait("document.querySelectorAll('.answer').length === 2").await;
    fleet.kill(&[&fleet.worker_of("p").0]);
    page.wait_for_words("begins again").await;
    page.wait("document.querySelectorAll('.answer').length === 2").await;
    pictures::save(&page, "fleet-killed-worker").await;
    page.wait_until_idle().await;
    page.ask("write hello to notes.txt").await;
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    fleet.kill_and_wait(&[WORKERS[0], WORKERS[1], RESTATE, REDIS, FRONT_END]).await;
    page.client.refresh().await.unwrap();
    page.wait("document.querySelector('.approval')").await;
    pictures::save(&page, "fleet-approval").await;
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs Chromium and a Restate server: crates/browser/tests/run.sh"]
async fn a_stopped_answer_is_followed_by_the_typed_message_even_if_the_worker_is_killed() {
    let model = Model::start().await;
    let fleet = Fleet::start(&model, &[]).await;
    let page = Page::open_at(&fleet.url(), "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    page.stop_answer_with("Rather two").await;
    let next = model.asked().await;
    drop(asked);
    fleet.kill(&[&fleet.worker_of("s").0]);
    drop(next);
    let next = model.asked().await;
    let messages = next.body["messages"].as_array().unwrap();
    let [.., said, steered] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(said["content"].as_str().unwrap().trim_end(), "One");
    assert_eq!(steered["content"], "Rather two");
    next.say("Two.");
    next.end();
    page.wait_for_words("Two.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One", "Two."]);
    assert_eq!(page.texts(".user .words").await, ["Begin", "Rather two"]);
    page.close().await;
}
