//! Skills: instructions in `SKILL.md` files, which the model loads when a task needs them.
//!
//! ```text
//! cargo run --example skills --features skills             a scripted run with a skill
//! cargo run --example skills --features skills -- FOLDER   checks the skills in a folder
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Skills;
use turnstream::{Agent, Event};

const COMMIT: &str = "---
name: commit
description: Writes commit messages. Use it for each commit.
allowed-tools: Bash(git diff:*)
---
Write one line in the imperative, without a full stop. The file `types.md` has the prefixes.
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::args().nth(1) {
        return check_skills(Path::new(&folder)).await;
    }
    println!("The model's words are scripted, the files are real.");
    let folder = std::env::temp_dir().join(format!("turnstream-skills-{}", std::process::id()));
    fs::create_dir_all(folder.join("commit"))?;
    fs::write(folder.join("commit/SKILL.md"), COMMIT)?;
    fs::write(folder.join("commit/types.md"), "fix: for bugs\n")?;
    let result = run_agent(&folder).await;
    fs::remove_dir_all(&folder)?;
    result
}

async fn run_agent(folder: &Path) -> Result<(), Box<dyn Error>> {
    // A real model: `turnstream::provider::from_env()?`.
    let model = Scripted::new([
        Reply::text("A skill describes this.").call("load_skill", json!({ "name": "commit" })),
        Reply::new().call("read_skill_file", json!({ "skill": "commit", "path": "types.md" })),
        Reply::text("fix: accept CRLF line ends"),
    ]);
    let agent = Agent::new(model).with_tool_source(Skills::from_dir(folder));
    let mut run = agent.run("Write the message for my commit.");
    while let Some(event) = run.next().await {
        match event? {
            // The message with the names and descriptions of the skills.
            Event::Appended { items, .. } => {
                for text in items.iter().filter_map(|item| item.as_user()) {
                    println!("> {}", text.text().replace('\n', "\n> "));
                }
            }
            Event::Tool(ToolEvent::Output(result)) => {
                println!("[{}]\n{}", result.name, result.content.text().trim_end());
            }
            Event::Finished(outcome) => println!("{}", outcome.text),
            _ => {}
        }
    }
    Ok(())
}

/// Prints the skills in a folder, with their warnings and errors.
async fn check_skills(folder: &Path) -> Result<(), Box<dyn Error>> {
    let skills = Skills::from_dir(folder).list().await?;
    for skill in &skills {
        match skill {
            Ok(skill) => {
                println!("{}: {} characters", skill.name, skill.description.chars().count());
                for warning in &skill.warnings {
                    println!("  warning: {warning}");
                }
            }
            Err(error) => println!("error: {}", error.message()),
        }
    }
    let usable = skills.iter().filter(|skill| skill.is_ok()).count();
    println!("{usable} of {} skills are usable", skills.len());
    Ok(())
}
