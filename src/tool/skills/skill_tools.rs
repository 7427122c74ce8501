//! The tools with which a model finds, loads and reads skills.

use futures::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::store_thread::StoreThread;
use crate::tool::skills::skill_library::SkillLibrary;
use crate::tool::{PreparedCall, Tool, ToolOutput, ToolSpec, ToolUpdate};

/// The maximum length of a query, in bytes.
const MAX_QUERY_BYTES: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadArgs {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    skill: String,
    path: String,
    #[serde(default)]
    offset: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindArgs {
    query: String,
}

/// Creates the tools, which never change.
pub(super) fn skill_tools(library: &StoreThread<SkillLibrary>) -> Vec<Tool> {
    vec![load_tool(library), read_tool(library), find_tool(library)]
}

fn load_tool(library: &StoreThread<SkillLibrary>) -> Tool {
    let spec = ToolSpec::new(
        "load_skill",
        "Loads a skill: instructions for a certain kind of task, and the list of files that belong to it. Messages in \
         the conversation list the available skills. Before you start a task that matches a skill's description, load \
         the skill and follow its instructions.",
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The skill's name" },
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
    );
    tool(spec, library, |skills, args: LoadArgs| skills.load(&args.name))
}

fn read_tool(library: &StoreThread<SkillLibrary>) -> Tool {
    let spec = ToolSpec::new(
        "read_skill_file",
        "Reads a text file that belongs to a skill. Use it for files that a skill's instructions mention.",
        json!({
            "type": "object",
            "properties": {
                "skill": { "type": "string", "description": "The skill's name" },
                "path": {
                    "type": "string",
                    "description": "The file's path, relative to the skill's folder",
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "The byte at which to start, for the rest of a long file",
                },
            },
            "required": ["skill", "path"],
            "additionalProperties": false,
        }),
    );
    tool(spec, library, |skills, args: ReadArgs| {
        skills.read(&args.skill, &args.path, args.offset.unwrap_or(0))
    })
}

fn find_tool(library: &StoreThread<SkillLibrary>) -> Tool {
    let spec = ToolSpec::new(
        "find_skills",
        "Finds skills by what they are for. Use it if the conversation does not list all skills. The result has the \
         names and descriptions of the best matches; load one of them with `load_skill`.",
        json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "The task, in a few words, for example `fill a PDF form`",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        }),
    );
    tool(spec, library, |skills, FindArgs { query }: FindArgs| {
        if query.trim().is_empty() || query.len() > MAX_QUERY_BYTES {
            return Err(format!("`query` must have between 1 and {MAX_QUERY_BYTES} bytes"));
        }
        skills.search(&query)
    })
}

/// Creates a tool whose calls run on the library's thread. The tool only reads data, so it supports
/// dry runs and can run again after a crash.
fn tool<A: DeserializeOwned + Send + 'static>(
    spec: ToolSpec,
    library: &StoreThread<SkillLibrary>,
    run: fn(&mut SkillLibrary, A) -> Result<String, String>,
) -> Tool {
    let library = library.clone();
    let tool = Tool::from_prepare_fn(spec, move |_, arguments| {
        let args: A = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        let library = library.clone();
        Ok(PreparedCall::new(move |_| {
            let output = async move {
                let result = library.run(move |skills| Ok(run(skills, args))).await;
                let result = result.map_err(|error| error.message().to_owned()).flatten();
                ToolUpdate::Output(match result {
                    Ok(text) => ToolOutput::ok(text),
                    Err(message) => ToolOutput::error(format!("Error: {message}")),
                })
            };
            stream::once(output).boxed()
        }))
    });
    tool.with_dry_run_support().idempotent()
}
