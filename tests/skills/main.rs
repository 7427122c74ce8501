//! Skills: folders with a `SKILL.md`, which a model finds, loads and reads.
//!
//! | module | claims |
//! |---|---|
//! | `format` | which front matters are read, and with which warnings and errors |
//! | `files` | which files of a skill are read, and which are refused |
//! | `conversation` | how the model receives the list of skills, and that changes keep the encoded prefix |
#![cfg(feature = "skills")]

mod conversation;
mod files;
mod format;

use std::fs;
use std::path::Path;

use serde_json::Value;
use turnstream::tool::{Skill, Skills};
use turnstream::{Error, History};
use turnstream_test_support::temp_folder::TempFolder;

/// A folder of skills.
struct SkillsFolder(TempFolder);

impl SkillsFolder {
    fn new() -> Self {
        Self(TempFolder::new())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn skills(&self) -> Skills {
        Skills::from_dir(self.path())
    }

    /// Writes a file, and creates its folder.
    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Adds or changes a skill.
    fn add(&self, name: &str, description: &str) {
        self.write(&format!("{name}/SKILL.md"), skill_text(name, description));
    }

    fn remove(&self, name: &str) {
        fs::remove_dir_all(self.0.join(name)).unwrap();
    }

    async fn list(&self) -> Vec<Result<Skill, Error>> {
        self.skills().list().await.unwrap()
    }
}

fn skill_text(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nHow to {name}.\n")
}

/// Calls a tool of the skills, and returns the text of its result.
async fn call(skills: &Skills, tool: &str, arguments: Value) -> String {
    use turnstream::Agent;
    use turnstream::provider::{Reply, Scripted};
    let model = Scripted::new([Reply::new().call(tool, arguments), Reply::text("done")]);
    let agent = Agent::new(model).with_tool_source(skills.clone());
    let outcome = agent.run("go").outcome().await;
    last_result(&outcome.history)
}

fn last_result(history: &History) -> String {
    let mut results = history.newest_first().filter_map(|item| item.as_tool_result());
    results.next().unwrap().content.text()
}
