//! The screenshots of the README.

use std::path::PathBuf;

use crate::driver::{DARK, PHONE, Screen, WIDE};
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
#[ignore = "needs a browser: tests/browser/run.sh"]
async fn pictures_are_taken_of_the_offline_model() {
    let count = "How many lines of Rust are in src/hub, and which file is the longest?";
    take("wide", WIDE, &[count]).await;
    take("phone", PHONE, &["What is (2 + 3) * 4?"]).await;
    take("dark", DARK, &["research where OwnedTask stands"]).await;
    take("approval", WIDE, &["write hello to notes.txt"]).await;
}
