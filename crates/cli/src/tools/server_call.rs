//! A call of an MCP server's tool, as it is shown to the user who approves it.

use serde_json::{Map, Value};
use turnstream::item::ToolCall;

use crate::text::{escape_invisible, one_line};

/// Separates the name of an MCP server from the name of its tool. No other tool's name contains it.
pub(crate) const SERVER_SEPARATOR: &str = "__";

/// Longer arguments are shortened to their beginning and their end.
const MAX_ARGUMENT_CHARS: usize = 400;

/// Further arguments are only counted.
const MAX_ARGUMENTS: usize = 30;

/// Describes the server, the tool, and each argument in a line of its own, so that a long argument
/// does not hide the others. `None` if the tool belongs to no server.
pub(super) fn describe_server_call(call: &ToolCall) -> Option<Vec<String>> {
    let (server, tool) = call.name.split_once(SERVER_SEPARATOR)?;
    let (server, tool) = (one_line(server, 64), one_line(tool, 64));
    let named = format!("`{tool}` of the MCP server `{server}`");
    let given = call.arguments_or_empty_object();
    let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(given) else {
        let raw = escape_invisible(given, MAX_ARGUMENT_CHARS);
        return Some(vec![
            format!("{named}, with arguments that cannot be read:"),
            format!("| {raw}"),
        ]);
    };
    let mut shown = vec![match arguments.len() {
        0 => format!("{named}, without arguments"),
        _ => format!("{named}, with these arguments:"),
    }];
    for (name, value) in arguments.iter().take(MAX_ARGUMENTS) {
        let name = escape_invisible(name, 64);
        shown.push(format!(
            "| {name}: {}",
            escape_invisible(&value.to_string(), MAX_ARGUMENT_CHARS)
        ));
    }
    if let Some(more @ 1..) = arguments.len().checked_sub(MAX_ARGUMENTS) {
        shown.push(format!("({more} more arguments are not shown)"));
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn describe(name: &str, arguments: &str) -> Option<Vec<String>> {
        let (call_id, name) = ("c".to_owned(), name.to_owned());
        describe_server_call(&ToolCall { call_id, name, arguments: arguments.to_owned() })
    }

    #[test]
    fn server_tool_and_each_argument_are_shown() {
        let shown = describe("demo__a__b", r#"{"text":"x\ny","n":2,"deep":{"a":[1]}}"#).unwrap();
        let expected = [
            "`a__b` of the MCP server `demo`, with these arguments:",
            r#"| text: "x\ny""#,
            "| n: 2",
            r#"| deep: {"a":[1]}"#,
        ];
        assert_eq!(shown, expected);
        let shown = describe("demo__a", "").unwrap();
        assert_eq!(shown, ["`a` of the MCP server `demo`, without arguments"]);
        assert_eq!(describe("write", "{}"), None);
    }

    #[test]
    fn no_argument_hides_another_or_acts_on_the_terminal() {
        let mut many = Map::from_iter([("long".to_owned(), json!("\u{202e}".repeat(9_000)))]);
        many.extend((0..40).map(|number| (format!("n{number}\n"), json!(number))));
        let shown = describe("demo__a", &Value::Object(many).to_string()).unwrap();
        assert!(
            shown[1].starts_with("| long: \"\\u{202e}") && shown[1].contains("more characters")
        );
        assert_eq!(shown[2], r"| n0\n: 0");
        assert_eq!(shown.last().unwrap(), "(11 more arguments are not shown)");
        assert!(shown.iter().all(|line| !line.contains(['\u{202e}', '\n'])), "{shown:?}");
        let shown = describe("demo__a", "[1,\u{1b}").unwrap();
        assert_eq!(shown[0], "`a` of the MCP server `demo`, with arguments that cannot be read:");
        assert!(!shown[1].contains('\u{1b}'), "{shown:?}");
    }
}
