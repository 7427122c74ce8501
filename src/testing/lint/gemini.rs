//! Gemini's `generateContent`, <https://ai.google.dev/api/generate-content>.

use serde_json::Value;

use super::schema;
use super::violations::{Complaints, given, has_text, inner, is_blank, list, repeated, text};
use crate::provider::gemini::server::is_signed_call;
use crate::testing::signatures::Signatures;

/// What Gemini takes in place of a signature, for calls that it did not write,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const SKIPPED: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// What Gemini objects to in the body of a request.
///
/// Names of fields are read in both forms that the API takes, `functionCall` and `function_call`.
pub(in crate::testing) fn gemini(body: &Value) -> Vec<String> {
    let mut bad = Complaints::default();
    options(body, &mut bad);
    tools(body, &mut bad);
    for (at, part) in list(&either(body, "systemInstruction")["parts"]).iter().enumerate() {
        bad.unless(!is_blank(text(&part["text"])))
            .add(format_args!("systemInstruction.parts[{at}]: the text is empty"));
    }
    let contents = list(&body["contents"]);
    bad.unless(!contents.is_empty()).add("contents is not specified");
    for (at, content) in contents.iter().enumerate() {
        self::content(content, at, &mut bad);
        turns(contents, at, &mut bad);
    }
    bad.into_list()
}

/// What a model of the third generation objects to: what [`gemini`] says, and a first call of a
/// step without its thought signature, as far back as the last words of the user,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
pub(in crate::testing) fn gemini_3(body: &Value) -> Vec<String> {
    let mut bad = gemini(body);
    let contents = list(&body["contents"]);
    let is_asked = |content: &Value| {
        role(content) == "user"
            && list(&content["parts"]).iter().any(|p| either(p, "functionResponse").is_null())
    };
    let turn = contents.iter().rposition(is_asked).unwrap_or(0);
    for (at, content) in contents.iter().enumerate().skip(turn) {
        let first = list(&content["parts"]).iter().find(|p| !either(p, "functionCall").is_null());
        if let Some(part) = first
            && text(either(part, "thoughtSignature")).is_empty()
        {
            bad.push(format!(
                "Function call is missing a thought_signature in functionCall parts. Additional \
                 data, function call `{}`, position {}.",
                text(&either(part, "functionCall")["name"]),
                at + 1
            ));
        }
    }
    bad
}

/// The last content and the one before decide what may come.
fn turns(contents: &[Value], at: usize, bad: &mut Complaints) {
    let content = &contents[at];
    let before = at.checked_sub(1).and_then(|at| contents.get(at));
    bad.unless(before.is_none_or(|before| role(before) != role(content))).add(format_args!(
        "Please ensure that multiturn requests alternate between user and model. (contents[{at}])"
    ));
    let calls = named(content, "functionCall");
    let asked = before.is_some_and(|before| role(before) == "user");
    bad.unless(calls.is_empty() || asked).add(format_args!(
        "Please ensure that function call turn comes immediately after a user turn or after a \
         function response turn. (contents[{at}])"
    ));
    let responses = named(content, "functionResponse");
    let called = before.map(|before| named(before, "functionCall")).unwrap_or_default();
    if called.len() != responses.len() {
        return bad.add(format_args!(
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn. (contents[{at}])"
        ));
    }
    for (call, response) in called.iter().zip(&responses) {
        bad.unless(call["name"] == response["name"]).add(format_args!(
            "contents[{at}]: the function response for `{}` stands where `{}` was called",
            text(&response["name"]),
            text(&call["name"])
        ));
        let ids = (text(&call["id"]), text(&response["id"]));
        bad.unless(ids.0 == ids.1 || ids.1.is_empty()).add(format_args!(
            "contents[{at}]: the function response has the id `{}`, its call `{}`",
            ids.1, ids.0
        ));
    }
    // Calls that nothing follows are never answered.
    bad.unless(at + 1 < contents.len() || calls.is_empty()).add(format_args!(
        "contents[{at}]: the request ends with function calls that nothing answers"
    ));
    let ids = calls.iter().map(|call| text(&call["id"])).filter(|id| !id.is_empty());
    for id in repeated(ids) {
        bad.add(format_args!("contents[{at}]: duplicate function call id `{id}`"));
    }
}

fn content(content: &Value, at: usize, bad: &mut Complaints) {
    bad.unless(matches!(role(content), "user" | "model"))
        .add(format_args!("Please use a valid role: user, model. (contents[{at}])"));
    let parts = list(&content["parts"]);
    bad.unless(!parts.is_empty()).add(format_args!(
        "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
    ));
    for (index, part) in parts.iter().enumerate() {
        self::part(part, role(content), &format!("contents[{at}].parts[{index}]"), bad);
    }
}

fn part(part: &Value, role: &str, place: &str, bad: &mut Complaints) {
    const DATA: &[&[&str]] = &[
        &["text", "inlineData", "fileData", "functionCall", "functionResponse"],
        &["executableCode", "codeExecutionResult", "toolCall", "toolResponse"],
    ];
    let is_set = |name: &&str| !either(part, name).is_null();
    let data: Vec<&str> = DATA.concat().into_iter().filter(is_set).collect();
    match data.as_slice() {
        [_] => {}
        [] => bad.add(format_args!(
            "{place}.data: required oneof field 'data' must have one initialized field"
        )),
        several => bad.add(format_args!(
            "{place}: oneof field 'data' is already set: {}",
            several.join(", ")
        )),
    }
    // An empty text may carry a signature, and nothing else may be empty.
    let signed = has_text(either(part, "thoughtSignature"));
    bad.unless(data != ["text"] || signed || !is_blank(text(&part["text"]))).add(format_args!(
        "{place}: Unable to submit request because it has an empty text parameter."
    ));
    let call = either(part, "functionCall");
    if !call.is_null() {
        bad.unless(role == "model").add(format_args!("{place}: a function call is the model's"));
        check_name(text(&call["name"]), place, bad);
        bad.unless(call["args"].is_null() || call["args"].is_object())
            .add(format_args!("Invalid value at '{place}.function_call.args': expected an object"));
    }
    let response = either(part, "functionResponse");
    if !response.is_null() {
        bad.unless(role == "user").add(format_args!("{place}: a function response is the user's"));
        bad.unless(has_text(&response["name"]))
            .add(format_args!("{place}.function_response.name: Name cannot be empty."));
        bad.unless(response["response"].is_object()).add(format_args!(
            "Invalid value at '{place}.function_response.response': expected an object"
        ));
    }
}

fn tools(body: &Value, bad: &mut Complaints) {
    let declared: Vec<&Value> = list(&body["tools"])
        .iter()
        .flat_map(|tool| list(either(tool, "functionDeclarations")))
        .collect();
    for (at, function) in declared.iter().enumerate() {
        let place = format!("tools[0].function_declarations[{at}]");
        check_name(text(&function["name"]), &place, bad);
        let parameters = &function["parameters"];
        if !parameters.is_null() {
            schema::gemini(parameters, &format!("{place}.parameters"), bad);
        }
        bad.unless(parameters.is_null() || either(function, "parametersJsonSchema").is_null()).add(
            format_args!("{place}: only one of parameters and parameters_json_schema may be set"),
        );
    }
    let names: Vec<&str> = declared.iter().map(|function| text(&function["name"])).collect();
    for name in repeated(names.iter().copied()) {
        bad.add(format_args!("Duplicate function declaration found: {name}"));
    }
    let config = either(either(body, "toolConfig"), "functionCallingConfig");
    let mode = text(&config["mode"]);
    bad.unless(matches!(mode, "" | "AUTO" | "ANY" | "NONE" | "VALIDATED")).add(format_args!(
        "Invalid value at 'tool_config.function_calling_config.mode': \"{mode}\""
    ));
    bad.unless(mode != "ANY" || !names.is_empty())
        .add("Function calling config is set without function_declarations.");
    let allowed = list(either(config, "allowedFunctionNames"));
    bad.unless(allowed.is_empty() || matches!(mode, "ANY" | "VALIDATED"))
        .add("allowed_function_names should only be set when mode is ANY");
    for name in allowed.iter().map(text).filter(|name| !names.contains(name)) {
        bad.add(format_args!(
            "allowed_function_names: `{name}` is not among the declared functions"
        ));
    }
}

fn options(body: &Value, bad: &mut Complaints) {
    const KNOWN: &[&[&str]] = &[
        &["model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"],
        &["safetySettings", "cachedContent", "labels", "serviceTier", "store"],
    ];
    let is_known = |field: &str| KNOWN.iter().any(|row| row.contains(&camel(field).as_str()));
    for (field, _) in given(body).filter(|(field, _)| !is_known(field)) {
        schema::unknown_name(field, "", bad);
    }
    let config = either(body, "generationConfig");
    let temperature = config["temperature"].as_f64();
    bad.unless(temperature.is_none_or(|t| (0.0..=2.0).contains(&t)))
        .add("temperature: must be in the range [0.0, 2.0]");
    bad.unless(list(either(config, "stopSequences")).len() <= 5)
        .add("stop_sequences: at most 5 are allowed");
    let schema = either(config, "responseSchema");
    if !schema.is_null() {
        schema::gemini(schema, "generation_config.response_schema", bad);
    }
    let json_schema = either(config, "responseJsonSchema");
    let plain = matches!(text(either(config, "responseMimeType")), "" | "text/plain");
    bad.unless(!plain || (schema.is_null() && json_schema.is_null()))
        .add("response_schema is only supported with response_mime_type application/json");
    for field in ["max_tokens", "maxTokens", "stop", "response_format"] {
        if !config[field].is_null() {
            schema::unknown_name(field, " at 'generation_config'", bad);
        }
    }
}

/// "Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores
/// (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
fn check_name(name: &str, place: &str, bad: &mut Complaints) {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    bad.unless(first && name.len() <= 64 && name.bytes().all(rest))
        .add(format_args!("{place}.name: Invalid function name: `{name}`"));
}

/// The calls or the responses of a content.
fn named<'a>(content: &'a Value, field: &str) -> Vec<&'a Value> {
    let parts = list(&content["parts"]).iter();
    parts.map(|part| either(part, field)).filter(|named| !named.is_null()).collect()
}

/// Who speaks; without a role it is the user.
fn role(content: &Value) -> &str {
    match text(&content["role"]) {
        "" | "function" => "user",
        role => role,
    }
}

/// A field in either form of its name.
fn either<'a>(value: &'a Value, camel: &str) -> &'a Value {
    let mut snake = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    value.get(camel).or_else(|| value.get(&snake)).unwrap_or(&Value::Null)
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let head = letters.next().map(|c| c.to_ascii_uppercase());
        name + &head.into_iter().chain(letters).collect::<String>()
    })
}

/// What the vendor objects to in the signatures that a request brings back.
pub(in crate::testing) fn signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, part) in inner(&body["contents"], "parts") {
        let said = match either(part, "functionCall") {
            Value::Null => String::new(),
            call => is_signed_call(call),
        };
        if let Some(signature) = either(part, "thoughtSignature").as_str()
            && !known.hold(signature, &said)
            && !SKIPPED.contains(&signature)
        {
            bad.push(format!("Thought signature is not valid. (contents[{at}].parts[{index}])"));
        }
    }
    bad
}
