//! Formats steps as human-readable YAML.

use std::fmt;

use serde_json::Value;

use crate::trace::TraceEvent;

/// The maximum length of an implicit key, in bytes. Longer keys are written as explicit keys (`?
/// key`). The YAML specification limits implicit keys, including their escapes: "the `:` indicator
/// must appear at most 1024 Unicode characters beyond the start of the key".
/// <https://yaml.org/spec/1.2.2/#742-flow-mappings>
const MAX_SIMPLE_KEY_BYTES: usize = 128;

/// Displays a step as human-readable YAML in block style.
///
/// Enumerated values, tool names and paths are written as plain scalars. Other strings are written
/// in double quotes, so that they are never parsed as YAML syntax. By default, the final text is
/// omitted, as are the values that are needed only to repeat the step (arguments, ids and the
/// model). To include the omitted fields, call [`with_all_fields`](Self::with_all_fields).
#[derive(Clone, Copy, Debug)]
#[must_use = "it is shown where it is written"]
pub struct Yaml<'a> {
    event: &'a TraceEvent,
    has_all_fields: bool,
}

impl Yaml<'_> {
    /// Includes all fields of the step in the output.
    pub fn with_all_fields(mut self) -> Self {
        self.has_all_fields = true;
        self
    }
}

impl TraceEvent {
    /// Returns a value that displays the event as human-readable YAML; see [`Yaml`].
    pub fn as_yaml(&self) -> Yaml<'_> {
        Yaml { event: self, has_all_fields: false }
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_yaml().fmt(f)
    }
}

impl fmt::Display for Yaml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self.event).map_err(|_| fmt::Error)?;
        let Ok(mut value) = serde_json::from_str::<Value>(&json) else {
            // The value is nested too deeply to be parsed, so it is written as JSON on a single
            // line, which is also valid YAML.
            return writeln!(f, "{json}");
        };
        if let (Value::Object(fields), false) = (&mut value, self.has_all_fields) {
            fields.retain(|name, _| !matches!(name.as_str(), "turn" | "model"));
            if let Some(Value::Object(fields)) = fields.get_mut("action") {
                let is_stop = fields.contains_key("stop_reason");
                fields.retain(|name, _| match name.as_str() {
                    "call_id" | "args" => false,
                    "text" => !is_stop,
                    _ => true,
                });
            }
        }
        write_block(&value, f, 0, ScalarStyle::DoubleQuoted)
    }
}

/// The style in which strings are written.
#[derive(Clone, Copy)]
enum ScalarStyle {
    /// Strings are written without quotes if YAML parses the unquoted text as a string.
    Plain,
    DoubleQuoted,
}

impl ScalarStyle {
    fn for_field(field: &str) -> Self {
        match field {
            "type" | "tool" | "changed_files" | "created_ids" | "tool_exit" | "risk"
            | "turn_stopped" | "within" | "call_id" | "model" => Self::Plain,
            _ => Self::DoubleQuoted,
        }
    }
}

/// Writes a value, indenting its fields or elements by `depth`. Every line ends with a line break.
fn write_block(
    value: &Value,
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    style: ScalarStyle,
) -> fmt::Result {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (name, value)) in fields.iter().enumerate() {
                // The first field continues on the current line.
                let indent = if at == 0 { 0 } else { depth };
                let key = Scalar(name, ScalarStyle::Plain);
                match name.len() > MAX_SIMPLE_KEY_BYTES {
                    true => write!(f, "{:indent$}? {key}\n{:depth$}:", "", "")?,
                    false => write!(f, "{:indent$}{key}:", "")?,
                }
                write_after_key(value, f, depth, ScalarStyle::for_field(name))?;
            }
            Ok(())
        }
        Value::Array(values) if !values.is_empty() => {
            for (at, value) in values.iter().enumerate() {
                let indent = if at == 0 { 0 } else { depth };
                write!(f, "{:indent$}- ", "")?;
                write_block(value, f, depth + 2, style)?;
            }
            Ok(())
        }
        _ => writeln!(f, "{}", InlineYaml(value, style)),
    }
}

/// Writes the value of a field whose name has already been written. The field is indented by
/// `depth`.
fn write_after_key(
    value: &Value,
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    style: ScalarStyle,
) -> fmt::Result {
    match value {
        Value::Object(fields) if !fields.is_empty() => write!(f, "\n{:1$}", "", depth + 2)?,
        Value::Array(values) if !values.is_empty() => write!(f, "\n{:1$}", "", depth + 2)?,
        _ => f.write_str(" ")?,
    }
    write_block(value, f, depth + 2, style)
}

/// A value that is written on a single line.
struct InlineYaml<'a>(&'a Value, ScalarStyle);

impl fmt::Display for InlineYaml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => Scalar(text, self.1).fmt(f),
            // All other values, namely `null`, booleans, numbers and empty collections, have the
            // same syntax in YAML as in JSON.
            value => write!(f, "{value}"),
        }
    }
}

/// A string that is written as a YAML scalar.
struct Scalar<'a>(&'a str, ScalarStyle);

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            ScalarStyle::Plain if is_plain_scalar(self.0) => f.write_str(self.0),
            ScalarStyle::Plain | ScalarStyle::DoubleQuoted => write_double_quoted(f, self.0),
        }
    }
}

/// Returns whether a string certainly needs no quotes in YAML. The rule is deliberately simple, so
/// that it obviously never accepts numbers, dates, booleans or indicators. As a result, it rejects
/// some strings that need no quotes.
fn is_plain_scalar(text: &str) -> bool {
    const RESERVED_WORDS: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    begins
        && text.chars().all(is_plain)
        && !RESERVED_WORDS.iter().any(|it| text.eq_ignore_ascii_case(it))
}

/// Writes a string in double quotes. YAML supports JSON's escapes in double-quoted strings.
///
/// YAML allows these characters: "c-printable ::= x09 | x0A | x0D | [x20-x7E] | x85 | [xA0-xD7FF] |
/// [xE000-xFFFD] | [x010000-x10FFFF]", and "a byte order mark must not appear inside a document". A
/// YAML parser folds unescaped line breaks. <https://yaml.org/spec/1.2.2/#51-character-set>
fn write_double_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}
