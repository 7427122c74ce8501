//! Steps for people.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::story::trace::TraceEvent;

/// A key with more bytes is written as one that says that it is a key, for of others "the `:` indicator
/// must appear at most 1024 Unicode characters beyond the start of the key", escapes included.
/// <https://yaml.org/spec/1.2.2/#742-flow-mappings>
const LONGEST_KEY: usize = 128;

/// A step for people, in block YAML.
///
/// Words of a fixed set, names of tools and paths stand plain, other texts in double quotes, so that
/// nothing in them is taken for YAML. What is there to repeat the step (arguments, ids, the model)
/// and the last words are left out, unless the [whole](Self::whole) is wanted.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is shown where it is written"]
pub struct Yaml<'a> {
    event: &'a TraceEvent,
    whole: bool,
}

impl<'a> Yaml<'a> {
    pub(super) fn new(event: &'a TraceEvent) -> Self {
        Self { event, whole: false }
    }

    /// The same with all that there is.
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }
}

impl fmt::Display for Yaml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self.event).map_err(|_| fmt::Error)?;
        let Ok(mut node) = serde_json::from_str::<Node>(&json) else {
            // Nested too deep to be read: in one line, which is YAML as well.
            return writeln!(f, "{json}");
        };
        if let (Node::Map(fields), false) = (&mut node, self.whole) {
            fields.retain(|(name, _)| !matches!(name.as_str(), "turn" | "model"));
            for (name, node) in fields {
                if let ("action", Node::Map(fields)) = (name.as_str(), node) {
                    let is_stop = fields.iter().any(|(name, _)| name == "stop_reason");
                    fields.retain(|(name, _)| match name.as_str() {
                        "call_id" | "args" => false,
                        "text" => !is_stop,
                        _ => true,
                    });
                }
            }
        }
        node.write(f, 0, Style::Quoted)
    }
}

/// A JSON value whose fields keep their order.
enum Node {
    /// `null`, a boolean, a number: the same in YAML.
    Plain(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// How texts are written.
#[derive(Clone, Copy)]
enum Style {
    /// As they are, where that is a text in YAML.
    Bare,
    Quoted,
}

impl Style {
    fn of(field: &str) -> Self {
        match field {
            "type" | "tool" | "changed_files" | "created_ids" | "tool_exit" | "risk"
            | "turn_stopped" | "within" | "call_id" | "model" => Self::Bare,
            _ => Self::Quoted,
        }
    }
}

impl Node {
    /// Writes it with its fields or entries indented by `depth`, each line ended.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize, style: Style) -> fmt::Result {
        match self {
            Self::Map(fields) => {
                for (at, (name, node)) in fields.iter().enumerate() {
                    // The first field stands behind what is there already.
                    let indent = if at == 0 { 0 } else { depth };
                    let key = Scalar(name, Style::Bare);
                    match name.len() > LONGEST_KEY {
                        true => write!(f, "{:indent$}? {key}\n{:depth$}:", "", "")?,
                        false => write!(f, "{:indent$}{key}:", "")?,
                    }
                    node.write_behind(f, depth, Style::of(name))?;
                }
                Ok(())
            }
            Self::List(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    let indent = if at == 0 { 0 } else { depth };
                    write!(f, "{:indent$}- ", "")?;
                    match node.is_block() {
                        true => node.write(f, depth + 2, style)?,
                        false => writeln!(f, "{}", Inline(node, style))?,
                    }
                }
                Ok(())
            }
            Self::Plain(_) | Self::Text(_) => writeln!(f, "{}", Inline(self, style)),
        }
    }

    /// Writes it behind the name of a field that is indented by `depth`.
    fn write_behind(&self, f: &mut fmt::Formatter<'_>, depth: usize, style: Style) -> fmt::Result {
        match self.is_block() {
            true => {
                let depth = depth + 2;
                write!(f, "\n{:depth$}", "")?;
                self.write(f, depth, style)
            }
            false => writeln!(f, " {}", Inline(self, style)),
        }
    }

    fn is_block(&self) -> bool {
        match self {
            Self::Map(fields) => !fields.is_empty(),
            Self::List(nodes) => !nodes.is_empty(),
            Self::Plain(_) | Self::Text(_) => false,
        }
    }
}

/// What stands in one line.
struct Inline<'a>(&'a Node, Style);

impl fmt::Display for Inline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Node::Plain(text) => f.write_str(text),
            Node::Text(text) => Scalar(text, self.1).fmt(f),
            Node::List(_) => f.write_str("[]"),
            Node::Map(_) => f.write_str("{}"),
        }
    }
}

/// A text.
struct Scalar<'a>(&'a str, Style);

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Style::Bare if is_bare(self.0) => f.write_str(self.0),
            Style::Bare | Style::Quoted => quoted(f, self.0),
        }
    }
}

/// Whether a text is the same text in YAML without quotes. Some that would be are not: it is easier
/// to see that none is a number, a date, a word for a truth value or an indicator.
fn is_bare(text: &str) -> bool {
    const WORDS: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    begins && text.chars().all(is_plain) && !WORDS.iter().any(|it| text.eq_ignore_ascii_case(it))
}

/// In double quotes, in which YAML has the escapes of JSON.
///
/// "c-printable ::= x09 | x0A | x0D | [x20-x7E] | x85 | [xA0-xD7FF] | [xE000-xFFFD] |
/// [x010000-x10FFFF]", and "a byte order mark must not appear inside a document"; line breaks would
/// be folded. <https://yaml.org/spec/1.2.2/#51-character-set>
fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
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

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Plain("null".to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Plain(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Plain(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Plain(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Plain(serde_json::Value::from(value).to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = seq.next_element()? {
                    nodes.push(node);
                }
                Ok(Node::List(nodes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Node::Map(fields))
            }
        }

        deserializer.deserialize_any(Any)
    }
}
