//! Finds the skills in folders, and reads them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::error::{Error, ErrorKind};
use crate::item::truncate_middle;
use crate::request::ToolSpec;
use crate::tool::search::RankedTools;
use crate::tool::skills::front_matter::{FrontMatter, FrontMatterError, MAX_DESCRIPTION_CHARS};
use crate::tool::skills::skill::Skill;
use crate::tool::skills::skill_folder::{
    FileList, TextPart, file_metadata, is_inside, list_files, read_text,
};

/// The name of the file that makes a folder a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";

/// The maximum number of skills that a search returns.
const MAX_FOUND: usize = 10;

/// The maximum number of similar skills named in the error for an unknown skill.
const MAX_SUGGESTIONS: usize = 3;

/// The maximum length of each part of the text above a skill's instructions, in bytes.
const MAX_HEADER_BYTES: usize = 4 * 1024;

/// How long before a file is read it must have been modified for its time to identify its content.
/// The clock of a file system may be coarse, so a later change can have the same time.
const MIN_AGE: Duration = Duration::from_secs(2);

/// The skills in a list of folders. Each `SKILL.md` is parsed again only if it has changed.
pub(super) struct SkillLibrary {
    /// The folders that contain the skills' folders.
    pub(super) roots: Vec<PathBuf>,
    parsed: HashMap<PathBuf, ParsedSkill>,
}

/// A skill that was parsed from a `SKILL.md`, or the reason why it cannot be used.
#[derive(Clone)]
struct ParsedSkill {
    version: FileVersion,
    skill: Result<Arc<Skill>, Error>,
}

/// The version of a file.
#[derive(Clone, Copy, PartialEq)]
enum FileVersion {
    /// The file has the same content as long as it has this time and length.
    Known { modified: SystemTime, len: u64 },
    /// The file was changed recently, or its time is unknown, so it must be read again.
    Unknown,
}

/// A folder that contains a `SKILL.md`.
pub(super) struct FoundSkill {
    /// The name of the folder.
    pub(super) name: String,
    /// The skill, or the reason why it cannot be used.
    pub(super) skill: Result<Arc<Skill>, Error>,
}

impl SkillLibrary {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { roots: vec![root], parsed: HashMap::new() }
    }

    /// Finds the skills in all folders, ordered by folder and name.
    pub(super) fn find_all(&mut self) -> Result<Vec<FoundSkill>, Error> {
        let mut names = HashSet::new();
        let mut found = Vec::new();
        let mut parsed = HashMap::new();
        for root in &self.roots {
            for (name, folder) in skill_folders(root)? {
                let known = self.parsed.get(&folder);
                let skill = parse_if_changed(root, &folder, &name, known);
                let mut result = skill.skill.clone();
                parsed.insert(folder.clone(), skill);
                if !names.insert(name.clone()) {
                    let message = format!(
                        "{}: an earlier folder contains a skill with this name",
                        folder.display()
                    );
                    result = Err(skill_error(message));
                }
                found.push(FoundSkill { name, skill: result });
            }
        }
        self.parsed = parsed;
        Ok(found)
    }

    /// Returns a skill's instructions, and the parts of its front matter that help to use it.
    pub(super) fn load(&mut self, name: &str) -> Result<String, String> {
        let skill = self.get(name)?;
        let TextPart { text, rest } = read_text(&skill.folder, SKILL_FILE, 0)?;
        let front_matter = FrontMatter::parse(&text)
            .map_err(|error| parse_message(&skill.folder.join(SKILL_FILE), &error))?;
        let mut loaded = header(&skill, &front_matter);
        loaded.push_str(front_matter.body.trim());
        if let Some(rest) = rest {
            loaded.push_str(&rest_notice(SKILL_FILE, rest));
        }
        Ok(loaded)
    }

    /// Returns the text of a file in a skill's folder, from an offset in bytes.
    pub(super) fn read(&mut self, name: &str, path: &str, offset: u64) -> Result<String, String> {
        let skill = self.get(name)?;
        let TextPart { mut text, rest } = read_text(&skill.folder, path, offset)?;
        if let Some(rest) = rest {
            text.push_str(&rest_notice(path, rest));
        }
        Ok(text)
    }

    /// Returns the names and descriptions of the skills that best match a query.
    pub(super) fn search(&mut self, query: &str) -> Result<String, String> {
        let skills = self.usable()?;
        let lines: Vec<String> = best_matches(&skills, query, MAX_FOUND)
            .map(|skill| format!("- {}: {}", skill.name, listed_description(skill)))
            .collect();
        Ok(match lines.is_empty() {
            true => "No skill matches. Search with other words, such as the kind of file or the \
                     name of a program."
                .to_owned(),
            false => lines.join("\n"),
        })
    }

    fn get(&mut self, name: &str) -> Result<Arc<Skill>, String> {
        let found = self.find_all().map_err(|error| error.message().to_owned())?;
        if let Some(found) = found.iter().find(|found| found.name == name) {
            return found.skill.clone().map_err(|error| error.message().to_owned());
        }
        let skills: Vec<Arc<Skill>> = found.into_iter().filter_map(|it| it.skill.ok()).collect();
        let mut others = skills.iter().filter(|it| it.other_name.as_deref() == Some(name));
        if let (Some(skill), None) = (others.next(), others.next()) {
            return Ok(Arc::clone(skill));
        }
        let similar = best_matches(&skills, name, MAX_SUGGESTIONS);
        let similar: Vec<String> = similar.map(|skill| format!("`{}`", skill.name)).collect();
        let name = truncate_middle(name.to_owned(), 200);
        Err(match similar.is_empty() {
            true => format!("there is no skill `{name}`"),
            false => format!("there is no skill `{name}`; similar ones are {}", similar.join(", ")),
        })
    }

    fn usable(&mut self) -> Result<Vec<Arc<Skill>>, String> {
        let found = self.find_all().map_err(|error| error.message().to_owned())?;
        Ok(found.into_iter().filter_map(|found| found.skill.ok()).collect())
    }
}

/// Returns the description as the model's list of skills contains it.
pub(super) fn listed_description(skill: &Skill) -> String {
    let line = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Returns the folders inside of a folder that contain a `SKILL.md`, in order, with their names.
fn skill_folders(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let cannot = |error| {
        let message = format!("the folder {} cannot be read: {error}", root.display());
        skill_error(message).with_source(error)
    };
    if file_metadata(&root.join(SKILL_FILE)).map_err(cannot)?.is_some() {
        let message = format!(
            "{} is the folder of a single skill: use the folder that contains it",
            root.display()
        );
        return Err(skill_error(message));
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(root).map_err(cannot)? {
        let entry: DirEntry = entry.map_err(cannot)?;
        let folder = entry.path();
        // Other files, and folders that are something else, are not skills.
        if let Ok(Some(_)) | Err(_) = file_metadata(&folder.join(SKILL_FILE)) {
            folders.push((entry.file_name().to_string_lossy().into_owned(), folder));
        }
    }
    folders.sort_unstable();
    Ok(folders)
}

/// Parses the `SKILL.md` in a folder, unless it has not changed since it was last parsed.
fn parse_if_changed(
    root: &Path,
    folder: &Path,
    name: &str,
    known: Option<&ParsedSkill>,
) -> ParsedSkill {
    let version = match file_metadata(&folder.join(SKILL_FILE)) {
        Ok(Some(metadata)) => FileVersion::new(metadata.modified().ok(), metadata.len()),
        Ok(None) | Err(_) => FileVersion::Unknown,
    };
    match known {
        Some(known) if version != FileVersion::Unknown && known.version == version => known.clone(),
        Some(_) | None => ParsedSkill { version, skill: parse_skill(root, folder, name) },
    }
}

fn parse_skill(root: &Path, folder: &Path, name: &str) -> Result<Arc<Skill>, Error> {
    let file = folder.join(SKILL_FILE);
    let is_linked_inside = is_inside(root, folder).map_err(|error| {
        let message = format!("{} cannot be read: {error}", file.display());
        skill_error(message).with_source(error)
    })?;
    if !is_linked_inside {
        let message =
            format!("{} is a link to a folder outside of {}", folder.display(), root.display());
        return Err(skill_error(message));
    }
    if name.contains(|c: char| c.is_control() || c == '`' || c == char::REPLACEMENT_CHARACTER) {
        let message = format!("{}: the name has an invalid character", folder.display());
        return Err(skill_error(message));
    }
    let text = read_text(folder, SKILL_FILE, 0)
        .map_err(|message| skill_error(format!("{}: {message}", folder.display())))?;
    let front_matter = FrontMatter::parse(&text.text)
        .map_err(|error| skill_error(parse_message(&file, &error)))?;
    Ok(Arc::new(skill_from(front_matter, name, folder)))
}

fn skill_from(front_matter: FrontMatter<'_>, name: &str, folder: &Path) -> Skill {
    let FrontMatter {
        name: own_name,
        description,
        license,
        compatibility,
        metadata,
        allowed_tools,
        mut warnings,
        body: _,
    } = front_matter;
    match &own_name {
        None => warnings.push("`name` is missing; the folder's name is used".to_owned()),
        Some(own_name) if own_name != name => warnings
            .push(format!("`name` is `{own_name}`, not the folder's name `{name}`, which is used")),
        Some(_) => {}
    }
    let is_name_char = |c: char| c.is_lowercase() || c.is_numeric() || c == '-';
    if !name.chars().all(is_name_char) || name.starts_with('-') || name.ends_with('-') {
        warnings.push(format!(
            "the name `{name}` must consist of lowercase letters, digits and inner hyphens"
        ));
    }
    Skill {
        name: name.to_owned(),
        description,
        license,
        compatibility,
        metadata,
        allowed_tools,
        folder: folder.to_owned(),
        warnings,
        other_name: own_name.filter(|own_name| own_name != name),
    }
}

impl FileVersion {
    fn new(modified: Option<SystemTime>, len: u64) -> Self {
        let now = SystemTime::now();
        match modified {
            Some(modified) if now.duration_since(modified).is_ok_and(|age| age >= MIN_AGE) => {
                Self::Known { modified, len }
            }
            Some(_) | None => Self::Unknown,
        }
    }
}

/// Returns the text above a skill's instructions.
fn header(skill: &Skill, front_matter: &FrontMatter<'_>) -> String {
    let mut header = format!("skill: {}\nfolder: {}\n", skill.name, skill.folder.display());
    let mut push = |what: &str, text: &str| {
        let text = truncate_middle(text.to_owned(), MAX_HEADER_BYTES).replace('\n', " ");
        header.extend([what, ": ", &text, "\n"]);
    };
    if let Some(license) = &front_matter.license {
        push("license", license);
    }
    if let Some(compatibility) = &front_matter.compatibility {
        push("compatibility", compatibility);
    }
    if !front_matter.metadata.is_empty() {
        push("metadata", &json!(front_matter.metadata).to_string());
    }
    if let Some(tools) = &front_matter.allowed_tools {
        push("allowed-tools (for information, not a permission)", tools);
    }
    let FileList { paths, has_more } = list_files(&skill.folder);
    match (paths.is_empty(), has_more) {
        (false, true) => push("files", &format!("{}, and more", paths.join(", "))),
        (false, false) => push("files", &paths.join(", ")),
        (true, true) => push("files", "too many to list"),
        (true, false) => {}
    }
    header + "\n"
}

fn rest_notice(path: &str, rest: u64) -> String {
    format!(
        "\n\n[The file continues. Read the rest with `read_skill_file`, path `{path}`, offset {rest}.]"
    )
}

fn parse_message(file: &Path, error: &FrontMatterError) -> String {
    format!("{}:{error}", file.display())
}

fn skill_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Store, message)
}

/// Returns the skills that best match a query, with the best match first.
fn best_matches<'a>(
    skills: &'a [Arc<Skill>],
    query: &str,
    limit: usize,
) -> impl Iterator<Item = &'a Arc<Skill>> {
    let spec = |skill: &Arc<Skill>| {
        ToolSpec::new(&*skill.name, &*skill.description, json!({ "type": "object" }))
    };
    let specs: Vec<ToolSpec> = skills.iter().map(spec).collect();
    RankedTools::new(&specs).best_matches(query, limit).into_iter().filter_map(|at| skills.get(at))
}
