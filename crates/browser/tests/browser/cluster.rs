//! Two servers that share one PostgreSQL and one Redis act as one server for the page.

use serde_json::json;
use turnstream_test_support::{postgres, redis};

use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

/// The resources that the servers share.
struct Shared {
    postgres: postgres::Server,
    redis: redis::Server,
}

impl Shared {
    fn start() -> Self {
        Self { postgres: postgres::Server::start(&[]), redis: redis::Server::start() }
    }

    async fn server(&self, model: &Model) -> Server {
        let (store, events, url) = (self.postgres.url(), self.redis.url(), model.url());
        let flags = ["--provider", "openai", "--base-url", &url, "--model", "m"];
        let shared = ["--store", &store, "--events", &events];
        Server::start_with(&[&flags[..], &shared].concat(), 0).await
    }
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_run_of_a_killed_server_continues_elsewhere_without_repeated_text() {
    let (shared, model) = (Shared::start(), Model::start().await);
    let (here, mut elsewhere) = (shared.server(&model).await, shared.server(&model).await);
    let page = Page::open(&here, "s", WIDE).await;
    elsewhere.post("/sessions/s/runs", &json!({ "text": "Begin" })).await;
    let asked = model.asked().await;
    asked.say("Looking. ");
    asked.end_with_call("c1", "calculate", &json!({ "expression": "2 + 3" }));
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    asked.say("two ");
    page.wait_for_words("One two").await;

    elsewhere.kill().await;
    drop(asked);
    // The other server retries the lost turn, with the result of the tool.
    let asked = model.asked().await;
    let messages = asked.body["messages"].as_array().unwrap();
    assert_eq!(messages.iter().filter(|message| message["role"] == "tool").count(), 1);
    assert_eq!(messages.last().unwrap()["role"], "tool");
    asked.say("One two ");
    page.wait_for_words("One two").await;
    asked.say("three.");
    asked.end();
    page.wait_for_words("three.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await.concat(), "Looking.One two three.");
    assert_eq!(page.texts(".user .words").await, ["Begin"]);
    assert_eq!(page.texts(".card > summary .status").await, ["done"]);

    // A restarted server shows the same.
    elsewhere.start_again().await;
    page.go(&elsewhere, "s").await;
    page.wait_for_words("One two three.").await;
    assert_eq!(page.answers().await.concat(), "Looking.One two three.");
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_run_continues_after_its_database_was_killed_without_repeated_text() {
    let (shared, model) = (Shared::start(), Model::start().await);
    let server = shared.server(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("One two ");
    page.wait_for_words("One two").await;
    shared.postgres.kill();
    shared.postgres.start_again();
    drop(asked);
    // The run has lost its lease, acquires another one, and sends the request again.
    let asked = model.asked().await;
    asked.say("One two ");
    asked.say("three.");
    asked.end();
    page.wait_for_words("three.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One two three."]);
    assert_eq!(page.texts(".user .words").await, ["Begin"]);
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_run_of_another_server_can_be_steered_stopped_and_approved() {
    let (shared, model) = (Shared::start(), Model::start().await);
    let (here, elsewhere) = (shared.server(&model).await, shared.server(&model).await);
    let page = Page::open(&here, "s", WIDE).await;
    elsewhere.post("/sessions/s/runs", &json!({ "text": "Begin" })).await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    page.ask("And two").await;
    page.wait("document.getElementById('waiting').children.length === 1").await;
    asked.end();
    let asked = model.asked().await;
    assert_eq!(asked.body["messages"].as_array().unwrap().last().unwrap()["content"], "And two");
    asked.say("Two ");
    page.wait_for_words("Two").await;
    page.click("#stop").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, ["Begin", "And two"]);

    // Two approval questions of the other server, answered here.
    elsewhere.post("/sessions/s/runs", &json!({ "text": "Write both" })).await;
    let asked = model.asked().await;
    let write = |name: &str| json!({ "path": name, "text": "x" });
    asked.call("c1", "write_file", &write("a.txt"));
    asked.end_with_call("c2", "write_file", &write("b.txt"));
    page.wait("document.querySelectorAll('.approval').length === 2").await;
    page.wait_until_idle().await;
    page.click(".approval:first-child .approve").await;
    page.wait_for_words("Approved. 1 more to answer.").await;
    page.click(".approval:last-child .deny").await;
    model.answer("One of two.").await;
    page.wait_for_words("One of two.").await;
    page.wait_until_idle().await;
    assert!(here.folder.join("a.txt").exists());
    assert!(!here.folder.join("b.txt").exists() && !elsewhere.folder.join("a.txt").exists());
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_answer_of_another_server_can_be_stopped_and_redirected() {
    let (shared, model) = (Shared::start(), Model::start().await);
    let (here, elsewhere) = (shared.server(&model).await, shared.server(&model).await);
    let page = Page::open(&here, "s", WIDE).await;
    elsewhere.post("/sessions/s/runs", &json!({ "text": "Begin" })).await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    page.stop_answer_with("Rather two").await;
    let next = model.asked().await;
    drop(asked);
    assert_eq!(next.body["messages"].as_array().unwrap().last().unwrap()["content"], "Rather two");
    next.say("Two.");
    next.end();
    page.wait_for_words("Two.").await;
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One", "Two."]);
    page.close().await;
}
