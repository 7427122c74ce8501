//! Defines a skill, as its front matter describes it.

use std::path::PathBuf;

use serde_json::{Map, Value};

/// A skill in a [`Skills`](crate::tool::Skills) folder, as the front matter of its `SKILL.md`
/// describes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Skill {
    /// The skill's name, which is the name of its folder.
    pub name: String,
    /// A description of the skill, from which the model can tell when it needs the skill.
    pub description: String,
    /// The license, or the name of a file that contains the license.
    pub license: Option<String>,
    /// The environment that the skill needs, such as programs or a network.
    pub compatibility: Option<String>,
    /// Further properties of the skill.
    pub metadata: Map<String, Value>,
    /// The tools that the skill's author expects the skill to use, as text. The model sees the
    /// text, and nothing else happens with it: it neither permits nor restricts any calls.
    pub allowed_tools: Option<String>,
    /// The skill's folder.
    pub folder: PathBuf,
    /// Descriptions of the parts of the front matter that do not conform to the format. The skill
    /// is usable despite its warnings.
    pub warnings: Vec<String>,
    /// The name in the front matter, if it differs from the name of the folder.
    pub(super) other_name: Option<String>,
}
