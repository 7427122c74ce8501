//! Reads a JSON text in pieces, and keeps the tree of what was read.
//!
//! Of the crates that parse incomplete JSON (`jsonmodem`, `jiter`, `actson` and
//! `partial-json-fixer` were compared), none takes linear time over all pieces, keeps the tree and
//! refuses nothing that `serde_json` accepts.

use std::mem;

use serde_json::{Map, Number, Value};

use crate::item::MAX_JSON_VALUES;

/// The maximum depth of nested objects and lists, which is that of `serde_json`.
const MAX_DEPTH: usize = 127;

/// The part of a JSON text that has arrived.
///
/// Each byte is read once, and each value is moved once, from the reader's stack to its parent. The
/// text may be split anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonParser {
    /// The objects and lists that have not ended, the outermost first.
    open: Vec<Container>,
    state: State,
    /// The number of values that have begun.
    value_count: usize,
    /// A number that grows whenever something is added that can be shown: the beginning of an
    /// object, a list or a string, a character of a string, or any other value, once it has ended.
    additions: usize,
}

/// An object or a list that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) members: Members,
    /// The number of additions before the container began.
    pub(super) additions_before: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Members {
    List(Vec<Value>),
    Object {
        fields: Map<String, Value>,
        /// The name of the field whose value is being read or expected. As in `serde_json`, the
        /// field replaces an earlier one of the same name.
        name: Option<String>,
    },
}

/// The part of the text to which the next character belongs.
#[derive(Clone, Debug, Default)]
enum State {
    /// A value is expected.
    #[default]
    Value,
    /// A list has begun: its first element or its end is expected.
    FirstElement,
    /// An object has begun: the name of its first field or its end is expected.
    FirstName,
    /// The name of a field is expected.
    Name,
    /// The colon after a name is expected.
    Colon,
    /// A value has ended: a comma or the end of the object or list is expected.
    AfterValue,
    InName(StringReader),
    InString(StringReader),
    InNumber(String),
    /// A literal, and how many of its bytes were read.
    InLiteral(Literal, usize),
    /// The outermost value has ended.
    Ended(Box<Value>),
    /// The text is not JSON.
    Invalid,
}

#[derive(Clone, Copy, Debug)]
enum Literal {
    Null,
    True,
    False,
}

impl Literal {
    fn text(self) -> &'static [u8] {
        match self {
            Self::Null => b"null",
            Self::True => b"true",
            Self::False => b"false",
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::True => Value::Bool(true),
            Self::False => Value::Bool(false),
        }
    }
}

/// A string that has not ended.
#[derive(Clone, Debug, Default)]
struct StringReader {
    /// The characters so far.
    text: String,
    escape: Escape,
}

/// The part of an escape that has been read.
#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    Backslash,
    /// The digits of a code unit, after the first half of a surrogate pair if there is one.
    Digits {
        high: Option<u16>,
        unit: u16,
        count: u8,
    },
    /// The first half of a surrogate pair, whose second half must follow.
    High(u16),
    HighBackslash(u16),
}

/// The text is not JSON.
struct Malformed;

impl JsonParser {
    /// Reads the next piece of the text. Text after the end of the outermost value, or after an
    /// error, is ignored.
    pub(super) fn push(&mut self, piece: &str) {
        let mut rest = piece;
        while !rest.is_empty() {
            // The characters of a string are read in place.
            if let State::InName(string) | State::InString(string) = &mut self.state {
                match string.read(&mut rest) {
                    Ok(true) => self.state = self.end_string(),
                    Ok(false) => return,
                    Err(Malformed) => self.state = State::Invalid,
                }
                continue;
            }
            match mem::replace(&mut self.state, State::Invalid) {
                state @ (State::Ended(_) | State::Invalid) => {
                    self.state = state;
                    return;
                }
                state => match self.advance(state, &mut rest) {
                    Ok(next) => self.state = next,
                    Err(Malformed) => return,
                },
            }
        }
    }

    /// Returns the objects and lists that have not ended, the outermost first.
    pub(super) fn open_containers(&self) -> &[Container] {
        &self.open
    }

    /// Returns the text of the string that is being read, unless it is the name of a field.
    pub(super) fn open_string(&self) -> Option<&str> {
        match &self.state {
            State::InString(string) => Some(&string.text),
            _ => None,
        }
    }

    /// Returns a number that grows whenever something is added to the tree. `without_string` leaves
    /// out the string that is being read.
    pub(super) fn additions(&self, without_string: bool) -> usize {
        match &self.state {
            // The beginning of the string is an addition, too.
            State::InString(_) if without_string => self.additions - 1,
            State::InString(string) => self.additions + string.text.len(),
            _ => self.additions,
        }
    }

    /// Returns whether the outermost value has begun, and neither ended nor turned out to be
    /// invalid.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended(_) | State::Invalid)
    }

    /// Returns the outermost value, once it has ended.
    pub(super) fn ended_value(&self) -> Option<&Value> {
        match &self.state {
            State::Ended(value) => Some(value),
            _ => None,
        }
    }

    /// Reads at least one byte of `rest` outside of strings, or changes the state.
    fn advance(&mut self, state: State, rest: &mut &str) -> Result<State, Malformed> {
        match state {
            State::InNumber(mut digits) => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let len = rest.bytes().take_while(|byte| is_part(byte)).count();
                digits.push_str(&rest[..len]);
                *rest = &rest[len..];
                if rest.is_empty() {
                    return Ok(State::InNumber(digits));
                }
                let number: Number = serde_json::from_str(&digits).map_err(|_| Malformed)?;
                self.additions += 1;
                Ok(self.end_value(Value::Number(number)))
            }
            State::InLiteral(literal, read) => {
                let wanted = &literal.text()[read..];
                let len = wanted.len().min(rest.len());
                if wanted[..len] != rest.as_bytes()[..len] {
                    return Err(Malformed);
                }
                *rest = &rest[len..];
                match len == wanted.len() {
                    true => {
                        self.additions += 1;
                        Ok(self.end_value(literal.value()))
                    }
                    false => Ok(State::InLiteral(literal, read + len)),
                }
            }
            state => {
                *rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
                let Some(first) = rest.bytes().next() else { return Ok(state) };
                let next = self.structure(state, first)?;
                // Invariant: all characters that `structure` accepts are one byte long.
                *rest = &rest[1..];
                Ok(next)
            }
        }
    }

    /// Returns the state after a character outside of strings, numbers and literals.
    fn structure(&mut self, state: State, byte: u8) -> Result<State, Malformed> {
        match (state, byte) {
            (State::FirstElement | State::AfterValue, b']') => {
                let is_list = |it: &mut Container| matches!(it.members, Members::List(_));
                self.end_container(is_list)
            }
            (State::FirstName | State::AfterValue, b'}') => {
                let is_object = |it: &mut Container| matches!(it.members, Members::Object { .. });
                self.end_container(is_object)
            }
            (State::AfterValue, b',') => match self.last_members() {
                Some(Members::List(_)) => Ok(State::Value),
                Some(Members::Object { .. }) => Ok(State::Name),
                None => Err(Malformed),
            },
            (State::FirstName | State::Name, b'"') => Ok(State::InName(StringReader::default())),
            (State::Colon, b':') => Ok(State::Value),
            (State::Value | State::FirstElement, byte) => self.begin_value(byte),
            _ => Err(Malformed),
        }
    }

    /// Returns the state after the end of the string that was read.
    fn end_string(&mut self) -> State {
        match mem::take(&mut self.state) {
            State::InName(string) => {
                if let Some(Members::Object { name, .. }) = self.last_members() {
                    *name = Some(string.text);
                }
                State::Colon
            }
            State::InString(string) => {
                self.additions += string.text.len();
                self.end_value(Value::String(string.text))
            }
            state => state,
        }
    }

    fn begin_value(&mut self, byte: u8) -> Result<State, Malformed> {
        self.value_count += 1;
        if self.value_count > MAX_JSON_VALUES {
            return Err(Malformed);
        }
        let (members, next) = match byte {
            b'{' => {
                let (fields, name) = (Map::new(), None);
                (Members::Object { fields, name }, State::FirstName)
            }
            b'[' => (Members::List(Vec::new()), State::FirstElement),
            b'"' => {
                self.additions += 1;
                return Ok(State::InString(StringReader::default()));
            }
            b'-' | b'0'..=b'9' => return Ok(State::InNumber(char::from(byte).into())),
            b'n' => return Ok(State::InLiteral(Literal::Null, 1)),
            b't' => return Ok(State::InLiteral(Literal::True, 1)),
            b'f' => return Ok(State::InLiteral(Literal::False, 1)),
            _ => return Err(Malformed),
        };
        if self.open.len() == MAX_DEPTH {
            return Err(Malformed);
        }
        self.open.push(Container { members, additions_before: self.additions });
        self.additions += 1;
        Ok(next)
    }

    /// Ends the innermost object or list, if it is the expected one of the two.
    fn end_container(
        &mut self,
        is_expected: impl FnOnce(&mut Container) -> bool,
    ) -> Result<State, Malformed> {
        let container = self.open.pop_if(is_expected).ok_or(Malformed)?;
        Ok(self.end_value(match container.members {
            Members::List(elements) => Value::Array(elements),
            Members::Object { fields, .. } => Value::Object(fields),
        }))
    }

    fn last_members(&mut self) -> Option<&mut Members> {
        self.open.last_mut().map(|container| &mut container.members)
    }

    /// Moves a value that has ended to its parent.
    fn end_value(&mut self, value: Value) -> State {
        let Some(parent) = self.open.last_mut() else { return State::Ended(value.into()) };
        match &mut parent.members {
            Members::List(elements) => elements.push(value),
            Members::Object { fields, name } => {
                fields.insert(name.take().unwrap_or_default(), value);
            }
        }
        State::AfterValue
    }
}

impl StringReader {
    /// Reads up to the end of the string, and returns whether the string has ended.
    fn read(&mut self, rest: &mut &str) -> Result<bool, Malformed> {
        while let Some(first) = rest.bytes().next() {
            if let Escape::None = self.escape {
                let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
                let len = rest.bytes().position(is_special).unwrap_or(rest.len());
                self.text.push_str(&rest[..len]);
                *rest = &rest[len..];
                let Some(special) = rest.bytes().next() else { return Ok(false) };
                *rest = &rest[1..];
                match special {
                    b'"' => return Ok(true),
                    b'\\' => self.escape = Escape::Backslash,
                    // Control characters must be escaped.
                    _ => return Err(Malformed),
                }
            } else {
                self.escape = self.read_escape(first)?;
                // Invariant: all characters that `read_escape` accepts are one byte long.
                *rest = &rest[1..];
            }
        }
        Ok(false)
    }

    /// Reads a byte of an escape. A character is added only once its escape, or both escapes of its
    /// surrogate pair, have ended.
    fn read_escape(&mut self, byte: u8) -> Result<Escape, Malformed> {
        match self.escape {
            Escape::Backslash => {
                self.text.push(match byte {
                    b'"' => '"',
                    b'\\' => '\\',
                    b'/' => '/',
                    b'b' => '\u{8}',
                    b'f' => '\u{c}',
                    b'n' => '\n',
                    b'r' => '\r',
                    b't' => '\t',
                    b'u' => return Ok(Escape::Digits { high: None, unit: 0, count: 0 }),
                    _ => return Err(Malformed),
                });
                Ok(Escape::None)
            }
            Escape::Digits { high, unit, count } => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                let digit = u16::try_from(digit).map_err(|_| Malformed)?;
                match (unit << 4 | digit, count + 1) {
                    (unit, 4) => self.end_unit(high, unit),
                    (unit, count) => Ok(Escape::Digits { high, unit, count }),
                }
            }
            Escape::High(high) if byte == b'\\' => Ok(Escape::HighBackslash(high)),
            Escape::HighBackslash(high) if byte == b'u' => {
                Ok(Escape::Digits { high: Some(high), unit: 0, count: 0 })
            }
            Escape::High(_) | Escape::HighBackslash(_) | Escape::None => Err(Malformed),
        }
    }

    fn end_unit(&mut self, high: Option<u16>, unit: u16) -> Result<Escape, Malformed> {
        if high.is_none() && (0xD800..0xDC00).contains(&unit) {
            return Ok(Escape::High(unit));
        }
        for decoded in char::decode_utf16(high.into_iter().chain([unit])) {
            self.text.push(decoded.map_err(|_| Malformed)?);
        }
        Ok(Escape::None)
    }
}
