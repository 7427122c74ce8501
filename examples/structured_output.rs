//! An answer with a type: the type's schema is sent to the model, and an answer that does not fit
//! is sent back to it.
//!
//! ```text
//! cargo run --example structured_output
//! ```

use turnstream::item::ItemKind;
use turnstream::provider::Scripted;
use turnstream::{Agent, Error};

/// A structured review.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Review {
    /// From 1 to 5.
    stars: u8,
    /// In one sentence.
    verdict: String,
    /// The things that the reviewer praised.
    praised: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model is scripted, the check is real.");
    let model = Scripted::new([
        r#"{ "stars": 6, "verdict": "Great!", "praised": ["the food"] }"#,
        r#"{ "stars": "five", "verdict": "Great!", "praised": ["the food"] }"#,
        r#"{ "stars": 5, "verdict": "Great!", "praised": ["the food"] }"#,
    ]);
    let agent = Agent::new(model).with_output::<Review>().with_validation(|turn| {
        match turn.parse::<Review>() {
            Ok(review) if review.stars > 5 => Err("there are at most 5 stars"),
            _ => Ok(()),
        }
    });
    let outcome =
        agent.run("The food was great, we will be back!").outcome().await.into_result()?;
    for item in outcome.new_items() {
        match &item.kind {
            ItemKind::User { content } => println!("\n> {}", content.text()),
            ItemKind::Text { text } => println!("{text}"),
            _ => {}
        }
    }
    let review: Review = outcome.parse()?;
    println!("\n{} stars for {}: {}", review.stars, review.praised.join(", "), review.verdict);
    Ok(())
}
