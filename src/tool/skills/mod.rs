//! Skills: folders with instructions that a model loads when it needs them.

mod front_matter;
mod skill;
mod skill_folder;
mod skill_library;
mod skill_tools;
mod skills;

pub use skill::Skill;
pub use skills::Skills;
