//! The page in a browser, as a user operates it.

use std::time::Duration;

use fantoccini::key::Key;
use fantoccini::{Client, Locator};
use serde_json::Value;

use crate::driver::{self, Screen};
use crate::server::Server;

/// The time limit for each wait on the page.
const LIMIT: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Page {
    pub(crate) client: Client,
}

impl Page {
    /// Opens a session in a browser of its own.
    pub(crate) async fn open(server: &Server, session: &str, screen: Screen) -> Self {
        Self::open_at(&server.url(), session, screen).await
    }

    /// Opens a session on the server at a URL.
    pub(crate) async fn open_at(url: &str, session: &str, screen: Screen) -> Self {
        let page = Self { client: driver::open_browser(screen).await };
        page.go_to(url, session).await;
        page
    }

    pub(crate) async fn go(&self, server: &Server, session: &str) {
        self.go_to(&server.url(), session).await;
    }

    pub(crate) async fn go_to(&self, url: &str, session: &str) {
        self.client.goto(&format!("{url}#{session}")).await.unwrap();
        self.wait("document.body.dataset.running").await;
    }

    /// Runs a script on the page, and returns its value.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client
            .execute(script, Vec::new())
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let is_true = async {
            while self.run(&script).await != Value::Bool(true) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        if tokio::time::timeout(LIMIT, is_true).await.is_err() {
            let shown = self.run("return document.body.innerText").await;
            let console = driver::console(&self.client).await;
            panic!("it does not become true: {expression}\n{shown}\n{console:?}");
        }
    }

    /// Waits until the conversation has this text.
    pub(crate) async fn wait_for_words(&self, words: &str) {
        let words = Value::from(words);
        self.wait(&format!("document.getElementById('column').innerText.includes({words})")).await;
    }

    /// Types a message, and stops the model's answer with it.
    pub(crate) async fn stop_answer_with(&self, text: &str) {
        self.run(&format!("document.getElementById('text').value = {}", Value::from(text))).await;
        self.click("#stop-answer").await;
    }

    /// Waits until no run is active.
    pub(crate) async fn wait_until_idle(&self) {
        self.wait("document.body.dataset.running === 'false'").await;
    }

    /// The displayed texts of all elements that a selector finds.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll({})].map((node) => node.textContent)",
            Value::from(selector)
        );
        let texts = self.run(&script).await;
        texts.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// The model's answers as text.
    pub(crate) async fn answers(&self) -> Vec<String> {
        let texts =
            self.texts("#column > div > .turn > .answer, #history .answer, #live > .answer");
        let mut texts = texts.await;
        for text in &mut texts {
            *text = text.trim().to_owned();
        }
        texts
    }

    /// The displayed states of calls and ends of runs.
    pub(crate) async fn states(&self) -> Vec<String> {
        self.texts("#column .card > summary, #column .end").await
    }

    /// The text in the message box.
    pub(crate) async fn draft(&self) -> String {
        let text = self.run("return document.getElementById('text').value").await;
        text.as_str().unwrap().to_owned()
    }

    /// Loads the page again, and waits until the session is shown.
    pub(crate) async fn reload(&self) {
        self.client.refresh().await.unwrap();
        self.wait("document.querySelector('#column .user')").await;
    }

    /// Writes a message and sends it with Enter.
    pub(crate) async fn ask(&self, text: &str) {
        let input = self.client.find(Locator::Id("text")).await.unwrap();
        input.send_keys(&format!("{text}{}", char::from(Key::Enter))).await.unwrap();
    }

    /// Waits for an element, and clicks it.
    pub(crate) async fn click(&self, selector: &str) {
        self.wait(&format!(
            "document.querySelector({0})?.checkVisibility() && !document.querySelector({0}).disabled",
            Value::from(selector)
        ))
        .await;
        self.client.find(Locator::Css(selector)).await.unwrap().click().await.unwrap();
    }

    /// Presses keys in the focused element.
    pub(crate) async fn press(&self, keys: &str) {
        self.client.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    /// Closes the browser. Checks that the page wrote nothing to its console, so nothing failed or
    /// was blocked.
    pub(crate) async fn close(self) {
        let console = driver::console(&self.client).await;
        assert!(console.is_empty(), "{console:#?}");
        self.client.close().await.unwrap();
    }

    /// Closes a browser whose page has lost its server meanwhile.
    pub(crate) async fn close_after_errors(self) {
        self.client.close().await.unwrap();
    }
}
