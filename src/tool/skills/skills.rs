//! A folder of skills as a source of tools.

use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::store_thread::StoreThread;
use crate::tool::skills::skill::Skill;
use crate::tool::skills::skill_library::{FoundSkill, SkillLibrary, listed_description};
use crate::tool::skills::skill_tools::skill_tools;
use crate::tool::{CatalogEntry, Tool, ToolList, ToolSource};

/// A folder of skills: instructions that a model loads when a task needs them.
///
/// The folder contains a folder for each skill, with a file `SKILL.md` in the [Agent
/// Skills](https://agentskills.io) format: a front matter in YAML with a `name` and a
/// `description`, and instructions in Markdown. Pass the value to
/// [`Agent::with_tool_source`](crate::Agent::with_tool_source).
///
/// ```
/// use serde_json::json;
/// use turnstream::Agent;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::Skills;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let skills = std::env::temp_dir().join("doc-skills");
/// std::fs::create_dir_all(skills.join("commit"))?;
/// let text = "---\nname: commit\ndescription: Writes commit messages\n---\nUse one line.";
/// std::fs::write(skills.join("commit/SKILL.md"), text)?;
///
/// let model = Scripted::new([
///     Reply::new().call("load_skill", json!({ "name": "commit" })),
///     Reply::text("Fix the parser"),
/// ]);
/// let agent = Agent::new(model.clone()).with_tool_source(Skills::from_dir(&skills));
/// assert_eq!(agent.run("Write a commit message").outcome().await.text, "Fix the parser");
///
/// let history = &model.requests()[1].history;
/// assert!(history.last().unwrap().as_tool_result().unwrap().content.text().ends_with("Use one line."));
/// # std::fs::remove_dir_all(&skills)?;
/// # Ok(())
/// # }
/// ```
///
/// # The model's view
///
/// The model receives the names and descriptions of the skills in a message after the first input,
/// as the source's [catalog](ToolList::catalog), and each later change in a further message. It
/// always has the same three tools, whose schemas do not contain names of skills. A skill that is
/// added, changed or removed therefore does not change the beginning of the next request.
///
/// | tool | arguments | result |
/// |---|---|---|
/// | `load_skill` | `name` | the instructions, the other fields of the front matter, and a list of the skill's files |
/// | `read_skill_file` | `skill`, `path`, and optionally `offset` | the text of a file in the skill's folder |
/// | `find_skills` | `query` | the names and descriptions of the 10 skills that match best |
///
/// More than 100 skills, or more than 32 KiB of descriptions, are not listed. The message then
/// tells the model to search, and changes are not reported. `find_skills` uses the search of a
/// [searchable toolkit](crate::Toolkit::searchable), and always finds the current skills.
///
/// A call to `load_skill` returns the current content of the file. In a [trace](crate::trace), it
/// is a tool step with the skill's name in its arguments.
///
/// # Access to files
///
/// `read_skill_file` reads only files inside of the skill's folder. Paths and links that lead out
/// of it are refused, as are folders of skills that are links out of the folder passed to
/// [`from_dir`](Self::from_dir). A call returns at most 48 KiB; the rest of a longer file can be
/// read from an offset. A file that is not UTF-8 text is an error.
///
/// Scripts are only read, and never run. The field `allowed-tools` is shown to the model, and
/// never permits a call; approvals and [policies](crate::tool::ToolPolicy) apply as without
/// skills. However, a skill's instructions are part of the prompt, so use only skills that you
/// trust.
///
/// # Invalid skills
///
/// A skill's name is the name of its folder. A different `name`, or one that breaks the rules of
/// the format, is a [warning](Skill::warnings). So are texts that are longer than the format
/// allows, counted in characters: 64 for the name, 1,024 for the description (the list contains
/// the first 1,024) and 500 for `compatibility`. If a value is not valid YAML because it contains
/// a colon, as in `description: Use this: when …`, it is read as plain text, with a warning.
///
/// A skill without a description, or with a front matter that cannot be parsed, is left out. The
/// error contains the file and the line. The model receives it in a [note](ToolList::notes), and
/// [`list`](Self::list) returns it.
///
/// # Threads
///
/// All files are read on a thread of its own, which is started by the first listing, and which the
/// clones of a value share. Dropping the last clone waits until the thread has ended, for at most
/// five seconds. Each `SKILL.md` is parsed again only after it has changed.
#[derive(Clone, Debug)]
pub struct Skills {
    library: StoreThread<SkillLibrary>,
    tools: Arc<[Tool]>,
}

impl Skills {
    /// Creates a source of the skills in a folder. Nothing is read before the first listing.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Self {
        let library = StoreThread::new("turnstream-skills", SkillLibrary::new(folder.into()));
        let tools = skill_tools(&library).into();
        Self { library, tools }
    }

    /// Adds another folder of skills. If two folders contain skills with the same name, the skill
    /// in the folder that was added first is used. Has no effect after the first listing.
    pub fn with_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.library.configure(|library| library.roots.push(folder.into()));
        self
    }

    /// Reads all skills. The result contains an item for each folder with a `SKILL.md`: the skill,
    /// or an error with the file and the line if the skill cannot be used.
    ///
    /// Dropping the future after its first poll does not stop the thread that reads the files, but
    /// discards the result.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](crate::ErrorKind::Store) error if one of the folders passed to
    /// [`from_dir`](Self::from_dir) and [`with_dir`](Self::with_dir) cannot be read.
    pub async fn list(&self) -> Result<Vec<Result<Skill, Error>>, Error> {
        let found = self.library.run(SkillLibrary::find_all).await?;
        let skills = found.into_iter().map(|found| found.skill.map(Arc::unwrap_or_clone));
        Ok(skills.collect())
    }
}

/// Lists the tools, which never change, and the names and descriptions of the current skills.
impl ToolSource for Skills {
    fn name(&self) -> &'static str {
        "skills"
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        let Self { library, tools } = self.clone();
        async move {
            let found = library.run(SkillLibrary::find_all).await?;
            let mut list = ToolList::new(tools.iter().cloned());
            for FoundSkill { name, skill } in found {
                match skill {
                    Ok(skill) => list
                        .catalog
                        .push(CatalogEntry { name, description: listed_description(&skill) }),
                    Err(error) => list.notes.push(format!("`{name}`: {}", error.message())),
                }
            }
            Ok(list)
        }
        .boxed()
    }
}
