//! A browser, controlled through `WebDriver`.

use axum::http::Method;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use url::{ParseError, Url};

/// The browser's appearance.
#[derive(Clone, Copy, Default)]
pub(crate) struct Screen {
    pub(crate) size: Option<(u32, u32)>,
    pub(crate) is_dark: bool,
}

pub(crate) const WIDE: Screen = Screen { size: Some((1200, 800)), is_dark: false };
pub(crate) const DARK: Screen = Screen { size: Some((1200, 800)), is_dark: true };
pub(crate) const PHONE: Screen = Screen { size: Some((360, 640)), is_dark: false };

/// Starts a browser with a profile of its own.
pub(crate) async fn open_browser(screen: Screen) -> Client {
    let driver = std::env::var("TURNSTREAM_WEBDRIVER").expect("run.sh sets TURNSTREAM_WEBDRIVER");
    let (width, height) = screen.size.unwrap_or((1200, 800));
    let args = [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        &format!("--window-size={width},{height}"),
    ];
    let mut options = json!({ "args": args });
    if width < 500 {
        let metrics = json!({ "width": width, "height": height, "pixelRatio": 2.0, "touch": true });
        options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
    }
    let mut capabilities = Map::new();
    capabilities.insert("goog:chromeOptions".to_owned(), options);
    capabilities.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
    // A dialog is a bug of the page: it must be noticed, not closed.
    capabilities.insert("unhandledPromptBehavior".to_owned(), "ignore".into());
    let client = ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities)
        .connect(&driver)
        .await
        .expect("the driver starts a browser");
    if screen.is_dark {
        let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        cdp(&client, "Emulation.setEmulatedMedia", json!({ "features": dark })).await;
    }
    client
}

/// A command of the Chrome `DevTools` Protocol.
pub(crate) async fn cdp(client: &Client, command: &str, parameters: Value) -> Value {
    let body = json!({ "cmd": command, "params": parameters });
    client.issue_cmd(OwnCommand { path: "goog/cdp/execute", body }).await.unwrap()
}

/// The page's console messages since the last call.
pub(crate) async fn console(client: &Client) -> Vec<String> {
    let command = OwnCommand { path: "se/log", body: json!({ "type": "browser" }) };
    let entries = client.issue_cmd(command).await.unwrap();
    let entries = entries.as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| entry["message"].as_str().unwrap_or("?").to_owned()).collect()
}

/// A command that only this driver has.
#[derive(Debug)]
struct OwnCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for OwnCommand {
    fn endpoint(&self, base_url: &Url, session_id: Option<&str>) -> Result<Url, ParseError> {
        let session = session_id.unwrap_or_default();
        base_url.join(&format!("session/{session}/{}", self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
