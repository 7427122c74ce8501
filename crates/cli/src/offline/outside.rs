//! Chooses a call of a tool that the offline model does not know: a tool of an MCP server.
//!
//! A tool is called if the question has a word of its name or its description. Its arguments are
//! the numbers, the quoted texts and the names in the question.

use serde_json::{Map, Value};

use crate::offline::words::{STOP_WORDS, trim_punctuation};
use crate::tools::SERVER_SEPARATOR;

/// A tool as the request describes it.
#[derive(Debug)]
pub(crate) struct OutsideTool {
    name: String,
    description: String,
    /// The name and the schema of each argument, in order, and whether it is required.
    properties: Vec<(String, Value, bool)>,
}

/// The result of the choice for a question.
#[derive(Debug, PartialEq)]
pub(super) enum OutsideCall {
    Ready {
        tool: String,
        input: Value,
    },
    /// The question has no value for a required argument.
    Incomplete {
        tool: String,
        missing: String,
    },
}

/// Words that are common in descriptions and do not identify a tool.
const DESCRIPTION_STOP_WORDS: &[&str] = &[
    "call", "make", "made", "name", "number", "return", "server", "set", "start", "text", "tool",
    "two", "user", "value", "without",
];

/// How many description words a word of the tool's name counts for.
const NAME_WEIGHT: usize = 4;

impl OutsideTool {
    /// `None` if the tool does not belong to an MCP server.
    pub(super) fn parse(tool: &Value) -> Option<Self> {
        let name = tool["name"].as_str().filter(|name| name.contains(SERVER_SEPARATOR))?;
        let schema = &tool["input_schema"];
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let properties = properties.map(|(name, schema)| {
            (name.clone(), schema.clone(), required.iter().any(|it| it == name.as_str()))
        });
        let description = tool["description"].as_str().unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            description: description.to_owned(),
            properties: properties.collect(),
        })
    }

    /// How well the tool matches the words of the question.
    fn score(&self, terms: &[String]) -> usize {
        let (_, name) = self.name.split_once(SERVER_SEPARATOR).unwrap_or_default();
        let has = |words: &[String], word: &str| words.iter().any(|it| is_same_word(it, word));
        let (name, about) = (words_of(name), words_of(&self.description));
        let is_telling =
            |word: &str| !DESCRIPTION_STOP_WORDS.iter().any(|stop| is_same_word(stop, word));
        let scores = terms.iter().map(|word| match (has(&name, word), has(&about, word)) {
            (true, _) => NAME_WEIGHT,
            (false, true) if is_telling(word) => 1,
            (false, _) => 0,
        });
        scores.sum()
    }

    fn call(&self, question: &str) -> OutsideCall {
        let mut found = Values::parse(question);
        let mut input = Map::new();
        // Required arguments come first, so that an optional one cannot take their values.
        let optional = self.properties.iter().filter(|(.., is_required)| !is_required);
        let required = self.properties.iter().filter(|(.., is_required)| *is_required);
        for (name, schema, is_required) in required.chain(optional) {
            match found.take(schema) {
                Some(value) => {
                    input.insert(name.clone(), value);
                }
                None if *is_required => {
                    return OutsideCall::Incomplete {
                        tool: self.name.clone(),
                        missing: name.clone(),
                    };
                }
                None => {}
            }
        }
        OutsideCall::Ready { tool: self.name.clone(), input: Value::Object(input) }
    }
}

/// The call of the tool that matches the question best; `None` if no tool matches.
pub(super) fn plan_call(question: &str, tools: &[OutsideTool]) -> Option<OutsideCall> {
    let terms = words_of(question);
    // The first of several best matches; `max_by_key` returns the last, hence `rev`.
    let scored = tools.iter().rev().map(|tool| (tool.score(&terms), tool));
    let (_, tool) = scored.filter(|(score, _)| *score > 0).max_by_key(|(score, _)| *score)?;
    Some(tool.call(question))
}

/// The words in lower case, without stop words.
fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| word.chars().count() > 2 && !STOP_WORDS.contains(&&**word)).collect()
}

/// Whether two words are equal except for a plural ending.
fn is_same_word(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let is_plural = |ending| long.strip_suffix(ending) == Some(short);
    let is_plural_of_y = || {
        let stem = short.strip_suffix('y');
        stem.is_some() && long.strip_suffix("ies") == stem
    };
    short == long || is_plural("s") || is_plural("es") || is_plural_of_y()
}

/// The values in a question, in their order for each kind.
#[derive(Debug, Default)]
struct Values {
    numbers: Vec<serde_json::Number>,
    /// The quoted texts, and then the names.
    texts: Vec<String>,
}

impl Values {
    fn parse(question: &str) -> Self {
        let mut values = Self::default();
        let mut outside = String::new();
        let mut rest = question;
        while let Some((before, quoted, after)) = split_at_quotes(rest) {
            values.texts.push(quoted.to_owned());
            outside.extend([before, " , "]);
            rest = after;
        }
        outside.push_str(rest);
        let mut name: Vec<String> = Vec::new();
        let mut is_first = true;
        for raw in outside.split_whitespace() {
            let word = trim_punctuation(raw);
            if let Some(number) = parse_number(&word) {
                values.numbers.push(number);
            }
            let is_name = word.chars().next().is_some_and(char::is_uppercase);
            match is_name && !is_first && word != "I" {
                true => name.push(word),
                false => values.end_name(&mut name),
            }
            // A name ends at punctuation, and a sentence begins with a capital letter.
            if raw.ends_with(|c: char| ".,;:?!".contains(c)) {
                values.end_name(&mut name);
            }
            is_first = raw.ends_with(['.', '?', '!']);
        }
        values.end_name(&mut name);
        values
    }

    fn end_name(&mut self, words: &mut Vec<String>) {
        if !words.is_empty() {
            self.texts.push(std::mem::take(words).join(" "));
        }
    }

    /// Takes the next value that fits the schema.
    fn take(&mut self, schema: &Value) -> Option<Value> {
        let has_type = |name: &str| match &schema["type"] {
            Value::Array(types) => types.iter().any(|it| it == name),
            one => one == name,
        };
        let number = if has_type("number") {
            self.numbers.first().map(|_| 0)
        } else if has_type("integer") {
            self.numbers.iter().position(|number| !number.is_f64())
        } else {
            None
        };
        if let Some(at) = number {
            return Some(Value::Number(self.numbers.remove(at)));
        }
        let is_text = has_type("string") && !self.texts.is_empty();
        is_text.then(|| Value::String(self.texts.remove(0)))
    }
}

/// Splits at the first quoted text: the text before it, the quoted text, and the text after it.
fn split_at_quotes(text: &str) -> Option<(&str, &str, &str)> {
    const QUOTE_PAIRS: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»')];
    let found = QUOTE_PAIRS.iter().filter_map(|(open, close)| {
        let (before, inside) = text.split_once(*open)?;
        let (quoted, after) = inside.split_once(*close)?;
        Some((before, quoted, after))
    });
    found.min_by_key(|(before, ..)| before.len())
}

fn parse_number(word: &str) -> Option<serde_json::Number> {
    // The parser of the standard library accepts words such as `nan` as numbers.
    if !word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    match word.parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => word.parse().ok().and_then(serde_json::Number::from_f64),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<OutsideTool> {
        let number = json!({ "type": "number" });
        let tool = |name: &str, description: &str, properties: Value, required: Value| {
            let schema = json!({ "properties": properties, "required": required });
            json!({ "name": name, "description": description, "input_schema": schema })
        };
        let tools = [
            tool("read_file", "Reads a file", json!({}), json!([])),
            tool(
                "s__add",
                "Sums up numbers",
                json!({ "b": number, "a": number }),
                json!(["a", "b"]),
            ),
            tool(
                "s__weather",
                "Returns the forecast of a city",
                json!({ "days": { "type": "integer" }, "city": { "type": "string" } }),
                json!(["city"]),
            ),
            tool(
                "s__count_slowly",
                "Counts",
                json!({ "to": { "type": "integer" }, "ms": { "type": ["null", "integer"] } }),
                json!(["to"]),
            ),
            tool("s__is_open", "", json!({ "b": { "type": "boolean" } }), json!(["b"])),
            tool("s__time", "", Value::Null, Value::Null),
        ];
        tools.iter().filter_map(OutsideTool::parse).collect()
    }

    fn planned(question: &str) -> Option<(String, Value)> {
        match plan_call(question, &tools())? {
            OutsideCall::Ready { tool, input } => Some((tool, input)),
            OutsideCall::Incomplete { tool, missing } => Some((tool, json!(missing))),
        }
    }

    #[test]
    fn the_tool_with_words_of_the_question_is_selected() {
        for (question, tool) in [
            ("What is the WEATHER in Oslo?", "s__weather"),
            ("Tell me about the forecasts for Oslo", "s__weather"),
            ("Which cities are there in \"Norway\"", "s__weather"),
            ("add 2 and 3", "s__add"),
            // A tool's name has a higher weight than another tool's description.
            ("count the cities up to 3", "s__count_slowly"),
            ("the time", "s__time"),
        ] {
            assert_eq!(planned(question).unwrap().0, tool, "{question}");
        }
        for question in ["", "Hi", "read the file", "return numbers", "What is the sorrow?", "s"] {
            assert_eq!(planned(question), None, "{question}");
        }
    }

    #[test]
    fn arguments_are_the_values_in_the_question() {
        for (question, input) in [
            ("add 2 and -3.5", json!({ "b": 2, "a": -3.5 })),
            ("Please add 7, 8 and 9.", json!({ "b": 7, "a": 8 })),
            ("Weather in Oslo, please", json!({ "city": "Oslo" })),
            ("How is the weather in New York? Tell me", json!({ "city": "New York" })),
            ("weather for 3 days in Oslo, Bergen", json!({ "city": "Oslo", "days": 3 })),
            ("weather in Oslo or \"the hut\" or `x`", json!({ "city": "the hut" })),
            ("I want the weather of 2.5 places: I mean Rome", json!({ "city": "Rome" })),
            ("count slowly to 5", json!({ "to": 5 })),
            ("count slowly to 5 by 10 ms", json!({ "to": 5, "ms": 10 })),
            ("What time is it?", json!({})),
        ] {
            assert_eq!(planned(question).unwrap().1, input, "{question}");
        }
    }

    #[test]
    fn a_required_argument_missing_from_the_question_is_named() {
        for (question, missing) in [
            ("add 2", "a"),
            ("add nan and infinity", "b"),
            ("Weather?", "city"),
            ("weather in oslo", "city"),
            ("count slowly to 2.5", "to"),
            ("is it open", "b"),
        ] {
            assert_eq!(planned(question).unwrap().1, json!(missing), "{question}");
        }
    }
}
