//! The page of the example `growing_form`: its fields are filled in while the answer arrives.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::driver::{self, WIDE};
use crate::page::Page;
use crate::pictures::save;

/// The fields of the form, and the state that the page shows.
const FIELDS: &str = "return [form.dataset.state, Object.fromEntries(new FormData(form))]";

/// The texts of the complete form.
fn complete_form() -> Value {
    json!({
        "title": "Dinner with the whole family", "occasion": "Birthday", "guests": "12",
        "date": "the last Friday of November", "city": "Oslo",
        "street": "Tollbugata 24, on the second floor", "contact": "Kari, who has the key",
        "vegetarian": "true", "wishes": "a quiet corner, candles, a cake with one candle",
        "notes": "Please keep the cake a secret until the coffee is on the table.",
    })
}

/// Starts the example, and returns its address.
async fn start() -> (Child, String) {
    let program = std::env::var_os("TURNSTREAM_FORM").expect("TURNSTREAM_FORM is set by run.sh");
    let mut child =
        Command::new(program).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("the server prints its address");
    (child, line)
}

/// Checks that each field of the page begins like that of the complete form, and that a number and
/// a choice are whole. Returns the number of fields that have text.
fn count_filled(fields: &Value) -> usize {
    let complete = complete_form();
    let fields = fields.as_object().unwrap();
    assert_eq!(fields.len(), 10);
    for (name, text) in fields {
        let (text, whole) = (text.as_str().unwrap(), complete[name].as_str().unwrap());
        assert!(whole.starts_with(text), "{name}: {text}");
        let is_whole = !matches!(&**name, "guests" | "occasion" | "vegetarian");
        assert!(is_whole || text.is_empty() || text == whole, "{name}: {text}");
    }
    fields.values().filter(|text| **text != "").count()
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_form_of_ten_fields_is_filled_in_while_the_answer_arrives() {
    let (_child, url) = start().await;
    let page = Page { client: driver::open_browser(WIDE).await };
    page.client.goto(&url).await.unwrap();
    page.click("#start").await;
    let mut counts = Vec::new();
    let fields = loop {
        let read = page.run(FIELDS).await;
        if read[0] == "complete" {
            break read[1].clone();
        }
        let count = count_filled(&read[1]);
        if counts.last() != Some(&count) {
            counts.push(count);
            if count == 6 {
                save(&page, "form-growing").await;
            }
        }
    };
    save(&page, "form-complete").await;
    println!("fields with text, in order: {counts:?}");
    assert_eq!(fields, complete_form());
    assert!(counts.is_sorted() && counts.len() > 5, "{counts:?}");
    assert!(counts.contains(&6), "a picture in the middle");
    page.close().await;
}
