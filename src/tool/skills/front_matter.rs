//! Parses the front matter of a `SKILL.md` file.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

/// The maximum length of a skill's name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The maximum length of a skill's description, in characters.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// The maximum length of a skill's compatibility text, in characters.
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// The front matter of a `SKILL.md` file.
#[derive(Debug, PartialEq)]
pub(super) struct FrontMatter<'a> {
    pub(super) name: Option<String>,
    pub(super) description: String,
    pub(super) license: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) metadata: Map<String, Value>,
    pub(super) allowed_tools: Option<String>,
    pub(super) warnings: Vec<String>,
    /// The text after the front matter.
    pub(super) body: &'a str,
}

/// An error in a front matter, and the line of the file that contains the error.
#[derive(Debug, PartialEq)]
pub(super) struct FrontMatterError {
    pub(super) line: usize,
    pub(super) message: String,
}

impl FrontMatterError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// The fields of a front matter. Other fields are ignored.
#[derive(Deserialize)]
struct Fields {
    name: Option<Spanned<String>>,
    description: Option<Spanned<String>>,
    license: Option<Value>,
    compatibility: Option<Value>,
    metadata: Option<Value>,
    #[serde(rename = "allowed-tools", alias = "allowed_tools")]
    allowed_tools: Option<Value>,
}

impl<'a> FrontMatter<'a> {
    /// Parses the front matter of a file, given the text at the beginning of the file.
    pub(super) fn parse(text: &'a str) -> Result<Self, FrontMatterError> {
        let source = YamlSource::split(text)?;
        let (fields, mut warnings) = source.parse()?;
        let Fields { name, description, license, compatibility, metadata, allowed_tools } = fields;
        let Some(description) = description else {
            return Err(FrontMatterError::new(source.first_line, "`description` is missing"));
        };
        let line = usize::try_from(description.defined.line()).unwrap_or(source.first_line);
        let description = description.value.trim().to_owned();
        if description.is_empty() {
            return Err(FrontMatterError::new(line, "`description` is empty"));
        }
        let name = name.map(|name| name.value.trim().to_owned()).filter(|name| !name.is_empty());
        let mut check_len = |field: &str, text: &str, max: usize| {
            let len = text.chars().count();
            if len > max {
                warnings.push(format!("`{field}` has {len} characters, {max} are allowed"));
            }
        };
        check_len("description", &description, MAX_DESCRIPTION_CHARS);
        check_len("name", name.as_deref().unwrap_or_default(), MAX_NAME_CHARS);
        let compatibility = compatibility.and_then(to_text);
        let compatibility_text = compatibility.as_deref().unwrap_or_default();
        check_len("compatibility", compatibility_text, MAX_COMPATIBILITY_CHARS);
        let metadata = match metadata {
            Some(Value::Object(metadata)) => metadata,
            None | Some(Value::Null) => Map::new(),
            Some(other) => {
                warnings.push("`metadata` is not a map".to_owned());
                Map::from_iter([("metadata".to_owned(), other)])
            }
        };
        Ok(Self {
            name,
            description,
            license: license.and_then(to_text),
            compatibility,
            metadata,
            allowed_tools: allowed_tools.and_then(to_text),
            warnings,
            body: source.body,
        })
    }
}

/// Returns a value as text. The elements of a list are separated by spaces.
fn to_text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Array(list) => {
            Some(list.into_iter().filter_map(to_text).collect::<Vec<_>>().join(" "))
        }
        other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Some(other.to_string()),
    }
}

/// The YAML text of a front matter, and the text after it.
struct YamlSource<'a> {
    lines: Vec<&'a str>,
    /// The number of the first line in `lines`, counted from 1.
    first_line: usize,
    body: &'a str,
}

impl<'a> YamlSource<'a> {
    fn split(text: &'a str) -> Result<Self, FrontMatterError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rest = text;
        let mut next_line = || {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            let is_end = rest.is_empty();
            rest = after;
            (!is_end).then(|| line.trim_end())
        };
        let mut first_line = 1;
        loop {
            first_line += 1;
            match next_line() {
                Some("") => {}
                Some("---") => break,
                Some(_) | None => {
                    let message = "there is no front matter: the first line is not `---`";
                    return Err(FrontMatterError::new(first_line - 1, message));
                }
            }
        }
        let mut lines = Vec::new();
        loop {
            match next_line() {
                Some("---" | "...") => return Ok(Self { lines, first_line, body: rest }),
                Some(line) => lines.push(line),
                None => {
                    let message = "the front matter is not closed by a line with `---`";
                    return Err(FrontMatterError::new(first_line - 1, message));
                }
            }
        }
    }

    /// Parses the fields. If the text is not valid YAML, values that are the cause, such as a text
    /// with a colon and a space, are read as plain text; a warning is returned for each of them.
    fn parse(&self) -> Result<(Fields, Vec<String>), FrontMatterError> {
        let error = match parse_yaml(&self.as_in_file(&self.lines.join("\n"))) {
            Ok(fields) => return Ok((fields, Vec::new())),
            Err(error) => error,
        };
        let (text, warnings) = self.with_quoted_values();
        if let (false, Ok(fields)) = (warnings.is_empty(), parse_yaml(&self.as_in_file(&text))) {
            return Ok((fields, warnings));
        }
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
        let message = error.without_snippet().to_string();
        // The line is reported separately.
        let message = message.split(" at line ").next().unwrap_or_default();
        Err(FrontMatterError::new(line.unwrap_or(self.first_line), message))
    }

    /// Returns the YAML text after as many empty lines as it has lines above it in the file, so
    /// that the parser counts lines from the beginning of the file.
    fn as_in_file(&self, yaml: &str) -> String {
        "\n".repeat(self.first_line - 1) + yaml
    }

    /// Returns the text in which each value that is not valid YAML is quoted, and a warning for
    /// each of these values.
    fn with_quoted_values(&self) -> (String, Vec<String>) {
        let mut text = String::new();
        let mut warnings = Vec::new();
        let mut at = 0;
        while at < self.lines.len() {
            let continued = self.lines[at + 1..].iter().take_while(|line| key_of(line).is_none());
            let end = at + 1 + continued.count();
            let entry = &self.lines[at..end];
            match quoted_entry(entry) {
                Some((key, quoted)) => {
                    warnings.push(format!(
                        "line {}: the value of `{key}` is not valid YAML, and is read as plain text",
                        self.first_line + at
                    ));
                    text.push_str(&quoted);
                    text.push_str(&"\n".repeat(entry.len()));
                }
                None => entry.iter().for_each(|line| {
                    text.push_str(line);
                    text.push('\n');
                }),
            }
            at = end;
        }
        (text, warnings)
    }
}

fn parse_yaml<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
}

/// Returns the key at the beginning of a line, and the value after it.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let is_key_char = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let is_key = !key.is_empty() && !key.starts_with('-') && key.chars().all(is_key_char);
    let is_separated = value.is_empty() || value.starts_with([' ', '\t']);
    (is_key && is_separated).then_some((key, value.trim()))
}

/// Returns an entry's key, and the entry with its value in quotes, if the entry is a text on its
/// own that is not valid YAML.
fn quoted_entry<'a>(lines: &[&'a str]) -> Option<(&'a str, String)> {
    let (key, value) = key_of(lines.first()?)?;
    // Quoted texts, block texts and maps with an error are not plain texts.
    if value.is_empty() || value.starts_with(['"', '\'', '|', '>', '{']) {
        return None;
    }
    if parse_yaml::<IgnoredAny>(&lines.join("\n")).is_ok() {
        return None;
    }
    let parts = std::iter::once(value).chain(lines[1..].iter().map(|line| line.trim()));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    Some((key, format!("{key}: '{}'", parts.join(" ").replace('\'', "''"))))
}

impl fmt::Display for FrontMatterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}
