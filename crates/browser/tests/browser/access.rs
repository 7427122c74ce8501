//! The page with the keyboard only, on a phone, and for a screen reader.

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::driver::{DARK, PHONE, Screen, WIDE};
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

/// The issues that axe-core rates as serious or critical.
pub(crate) async fn serious_issues(page: &Page) -> Vec<String> {
    let path = std::env::var("TURNSTREAM_AXE").expect("run.sh sets TURNSTREAM_AXE");
    let axe = std::fs::read_to_string(path).unwrap();
    page.client.execute(&axe, Vec::new()).await.unwrap();
    let script = "const done = arguments[0]; \
         axe.run(document, { resultTypes: ['violations'] }).then(done, (error) => done(String(error)))";
    let found = page.client.execute_async(script, Vec::new()).await.unwrap();
    let violations = found["violations"].as_array().unwrap_or_else(|| panic!("{found}"));
    let is_serious = |it: &&Value| matches!(it["impact"].as_str(), Some("serious" | "critical"));
    let line = |it: &Value| format!("{}: {}", it["id"], it["nodes"][0]["html"]);
    violations.iter().filter(is_serious).map(line).collect()
}

/// A page with every kind of content.
async fn full_page(model: &Model, server: &Server, screen: Screen) -> Page {
    let page = Page::open(server, "s", screen).await;
    page.ask("Show all").await;
    let asked = model.asked().await;
    asked.say("# A title\n\nWith [a link](https://example.org), `code` and\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n");
    asked.say("```rust\nfn main() {}\n```\n\n- [x] done\n- [ ] open\n\n> said\n");
    asked.end_with_call("c1", "research", &json!({ "prompt": "Look" }));
    model.answer("I have looked.").await;
    let asked = model.asked().await;
    // Marks, spaces and line breaks that are made visible, JSON values, escapes and the text as
    // written.
    let arguments =
        r#"{"path":"a.txt","text":"\u0061\u3164 b  c\n\td\n","size":[1e400,{"a":"\u0062"}]}"#;
    asked.call_as_written("c2", "write_file", arguments);
    asked.end_with_calls();
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    page.run("document.querySelectorAll('details').forEach((node) => { node.open = true })").await;
    page
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn axe_finds_no_serious_issue_on_wide_dark_and_phone_pages() {
    for screen in [WIDE, DARK, PHONE] {
        let model = Model::start().await;
        let server = Server::start(&model).await;
        let page = full_page(&model, &server, screen).await;
        assert_eq!(serious_issues(&page).await, [""; 0]);
        if screen.size == PHONE.size {
            page.click("#toggle-list").await;
            page.wait("document.querySelector('nav').checkVisibility()").await;
            assert_eq!(serious_issues(&page).await, [""; 0]);
        } else {
            page.click("#show-trace").await;
            page.wait("document.getElementById('trace').open").await;
            assert_eq!(serious_issues(&page).await, [""; 0]);
        }
        page.close_after_errors().await;
    }
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn axe_detects_injected_issues() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.run(
        "document.getElementById('hint').setAttribute('aria-hidden', 'maybe'); \
              document.querySelector('label').remove()",
    )
    .await;
    let found = serious_issues(&page).await.join("\n");
    assert!(found.contains("aria-valid-attr-value"), "{found}");
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_page_fits_a_phone_without_horizontal_scrolling() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = full_page(&model, &server, PHONE).await;
    let width = "return document.documentElement.scrollWidth - window.innerWidth";
    assert!(page.run(width).await.as_i64().unwrap() <= 0);
    let scroll =
        "const it = document.getElementById('scroll'); return it.scrollWidth - it.clientWidth";
    assert!(page.run(scroll).await.as_i64().unwrap() <= 0);
    page.click("#toggle-list").await;
    page.click("#new-session").await;
    page.wait("!document.querySelector('nav').checkVisibility()").await;
    page.wait("!document.getElementById('welcome').hidden").await;
    page.click("#toggle-list").await;
    page.click("#sessions a").await;
    page.wait("document.querySelector('.approval')").await;
    page.click(".approve").await;
    model.answer("Written.").await;
    page.wait_for_words("Written.").await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn all_actions_work_with_the_keyboard_alone() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let tab_to = async |id: &str| {
        for _ in 0..40 {
            let active = page
                .run("return document.activeElement.id || document.activeElement.className")
                .await;
            if active == id {
                return;
            }
            page.press(&char::from(Key::Tab).to_string()).await;
        }
        panic!("the focus does not come to {id}");
    };
    // The first tab stop skips the list, and stays in the session.
    page.run("document.activeElement.blur()").await;
    tab_to("skip").await;
    page.press(&char::from(Key::Enter).to_string()).await;
    assert_eq!(
        page.run("return [document.activeElement.id, location.hash]").await,
        json!(["text", "#s"])
    );
    page.press("Look").await;
    page.press(&char::from(Key::Enter).to_string()).await;
    let asked = model.asked().await;
    asked.say("I look");
    page.wait_for_words("I look").await;
    page.press(&char::from(Key::Escape).to_string()).await;
    page.wait_until_idle().await;
    page.press(&format!("Write{}", char::from(Key::Enter))).await;
    let arguments = json!({ "path": "a.txt", "text": "text" });
    model.asked().await.end_with_call("c1", "write_file", &arguments);
    page.wait("document.querySelector('.approval')").await;
    // Key presses that were meant for the message field do not answer a question.
    assert_eq!(page.run("return document.activeElement.id").await, "text");
    page.wait_until_idle().await;
    tab_to("approve").await;
    page.press(&char::from(Key::Enter).to_string()).await;
    model.answer("Written.").await;
    page.wait_for_words("Written.").await;
    assert!(server.folder.join("a.txt").exists());
    page.wait("document.getElementById('spoken').textContent === 'Answer: Written.'").await;
    page.close().await;
}
