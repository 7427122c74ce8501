//! The screenshots of the README, and others to look at.

use std::path::PathBuf;

use serde_json::json;

use crate::driver::{DARK, PHONE, Screen, WIDE};
use crate::model::Model;
use crate::page::Page;
use crate::server::{Server, project};

fn folder() -> PathBuf {
    match std::env::var_os("TURNSTREAM_PICTURES") {
        Some(folder) => folder.into(),
        None => project().join("target/pictures"),
    }
}

/// Takes a screenshot with the offline model, whose replies say that they are scripted.
async fn take(name: &str, screen: Screen, questions: &[&str]) {
    let server = Server::start_offline().await;
    let page = Page::open(&server, name, screen).await;
    page.wait_for_words("This model is scripted").await;
    for question in questions {
        page.ask(question).await;
        page.wait("document.body.dataset.running === 'true'").await;
        page.wait_until_idle().await;
    }
    // Shows a sub-agent at work.
    page.run(
        "document.querySelectorAll('.card:has(.turn)').forEach((node) => { node.open = true })",
    )
    .await;
    page.run("document.activeElement.blur(); document.getElementById('scroll').scrollTop = 0")
        .await;
    save(&page, name).await;
    page.close().await;
}

/// Takes a screenshot of a page.
pub(crate) async fn save(page: &Page, name: &str) {
    page.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        .await;
    std::fs::create_dir_all(folder()).unwrap();
    let file = folder().join(format!("{name}.png"));
    std::fs::write(file, page.client.screenshot().await.unwrap()).unwrap();
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn pictures_are_taken_of_the_offline_model() {
    let count = "How many lines of Rust are in src/hub, and which file is the longest?";
    take("wide", WIDE, &[count]).await;
    take("phone", PHONE, &["What is (2 + 3) * 4?"]).await;
    take("dark", DARK, &["research where OwnedTask stands"]).await;
    take("approval", WIDE, &["write hello to notes.txt"]).await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn pictures_are_taken_of_waiting_calls_and_failed_runs() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "waiting", WIDE).await;
    page.ask("What is 2 + 3? Write it to sum.txt").await;
    let asked = model.asked().await;
    save(&page, "thinking").await;
    asked.call("c1", "calculate", &json!({ "expression": "2 + 3" }));
    asked.end_with_calls_and_usage(1_200, 30);
    let asked = model.asked().await;
    asked.say("It is **5**. I write it to `sum.txt`, if I may.");
    asked.call("c2", "write_file", &json!({ "path": "sum.txt", "text": "5\n" }));
    asked.end_with_calls_and_usage(1_300, 60);
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    save(&page, "waiting").await;
    page.reload().await;
    page.wait("document.querySelector('.approval')").await;
    save(&page, "waiting-reloaded").await;
    page.ask("No, write it to five.txt").await;
    page.wait("document.getElementById('question').checkVisibility()").await;
    save(&page, "waiting-question").await;
    page.click("#question .keep").await;
    page.run("document.getElementById('text').value = ''").await;
    page.go(&server, "failed").await;
    page.ask("Are you there?").await;
    model.asked().await.refuse(503, 3_600);
    page.wait("document.querySelector('.end.bad')").await;
    page.wait_until_idle().await;
    save(&page, "failed").await;
    page.reload().await;
    page.wait_until_idle().await;
    save(&page, "failed-reloaded").await;
    page.close_after_errors().await;
}
