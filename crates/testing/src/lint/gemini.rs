//! Checks requests to Gemini's `generateContent`, <https://ai.google.dev/api/generate-content>.

use serde_json::Value;

use super::schema;
use super::violations::{
    Violations, as_list, has_text, is_blank, nested_elements, repeated_values, set_fields, text,
};
use crate::signatures::Signatures;

/// The placeholders that Gemini accepts in place of a signature for calls that it did not produce,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const PLACEHOLDER_SIGNATURES: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Returns the errors that Gemini would report for a request's body.
///
/// Field names are accepted in both forms that the API allows, such as `functionCall` and
/// `function_call`.
pub(crate) fn gemini(body: &Value) -> Vec<String> {
    let mut bad = Violations::default();
    check_options(body, &mut bad);
    check_tools(body, &mut bad);
    let beside_cache = ["systemInstruction", "tools", "toolConfig"];
    let has_others = beside_cache.iter().any(|name| !either_case(body, name).is_null());
    bad.require(either_case(body, "cachedContent").is_null() || !has_others).or_push(
        "CachedContent can not be used with GenerateContent request setting system_instruction, \
         tools or tool_config.",
    );
    for (at, part) in as_list(&either_case(body, "systemInstruction")["parts"]).iter().enumerate() {
        bad.require(!is_blank(text(&part["text"])))
            .or_push(format_args!("systemInstruction.parts[{at}]: the text is empty"));
    }
    let contents = as_list(&body["contents"]);
    bad.require(!contents.is_empty()).or_push("contents is not specified");
    for (at, content) in contents.iter().enumerate() {
        self::check_content(content, at, &mut bad);
        check_turn_order(contents, at, &mut bad);
    }
    bad.into_list()
}

/// Returns the errors that a third-generation Gemini model would report for a request's body. In
/// addition to the errors from [`gemini`], a third-generation model reports an error if the first
/// call in a step after the last user message has no thought signature,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
pub(crate) fn gemini_3(body: &Value) -> Vec<String> {
    let mut bad = gemini(body);
    let contents = as_list(&body["contents"]);
    let is_asked = |content: &Value| {
        content_role(content) == "user"
            && as_list(&content["parts"])
                .iter()
                .any(|p| either_case(p, "functionResponse").is_null())
    };
    let turn = contents.iter().rposition(is_asked).unwrap_or(0);
    for (at, content) in contents.iter().enumerate().skip(turn) {
        let first =
            as_list(&content["parts"]).iter().find(|p| !either_case(p, "functionCall").is_null());
        if let Some(part) = first
            && text(either_case(part, "thoughtSignature")).is_empty()
        {
            bad.push(format!(
                "Function call is missing a thought_signature in functionCall parts. Additional \
                 data, function call `{}`, position {}.",
                text(&either_case(part, "functionCall")["name"]),
                at + 1
            ));
        }
    }
    bad
}

/// Checks that a content object is allowed to follow the previous content object.
fn check_turn_order(contents: &[Value], at: usize, bad: &mut Violations) {
    let content = &contents[at];
    let before = at.checked_sub(1).and_then(|at| contents.get(at));
    bad.require(before.is_none_or(|before| content_role(before) != content_role(content))).or_push(format_args!(
        "Please ensure that multiturn requests alternate between user and model. (contents[{at}])"
    ));
    let calls = function_parts(content, "functionCall");
    let follows_user = before.is_some_and(|before| content_role(before) == "user");
    bad.require(calls.is_empty() || follows_user).or_push(format_args!(
        "Please ensure that function call turn comes immediately after a user turn or after a \
         function response turn. (contents[{at}])"
    ));
    let responses = function_parts(content, "functionResponse");
    let called = before.map(|before| function_parts(before, "functionCall")).unwrap_or_default();
    if called.len() != responses.len() {
        return bad.push(format_args!(
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn. (contents[{at}])"
        ));
    }
    for (call, response) in called.iter().zip(&responses) {
        bad.require(call["name"] == response["name"]).or_push(format_args!(
            "contents[{at}]: the function response for `{}` is in the position of the call of `{}`",
            text(&response["name"]),
            text(&call["name"])
        ));
        let ids = (text(&call["id"]), text(&response["id"]));
        bad.require(ids.0 == ids.1 || ids.1.is_empty()).or_push(format_args!(
            "contents[{at}]: the function response has the id `{}`, its call `{}`",
            ids.1, ids.0
        ));
    }
    // Calls in the last content object can never be answered.
    bad.require(at + 1 < contents.len() || calls.is_empty())
        .or_push(format_args!("contents[{at}]: the request ends with unanswered function calls"));
    let ids = calls.iter().map(|call| text(&call["id"])).filter(|id| !id.is_empty());
    for id in repeated_values(ids) {
        bad.push(format_args!("contents[{at}]: duplicate function call id `{id}`"));
    }
}

fn check_content(content: &Value, at: usize, bad: &mut Violations) {
    bad.require(matches!(content_role(content), "user" | "model"))
        .or_push(format_args!("Please use a valid role: user, model. (contents[{at}])"));
    let parts = as_list(&content["parts"]);
    bad.require(!parts.is_empty()).or_push(format_args!(
        "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
    ));
    for (index, part) in parts.iter().enumerate() {
        self::check_part(
            part,
            content_role(content),
            &format!("contents[{at}].parts[{index}]"),
            bad,
        );
    }
}

fn check_part(part: &Value, role: &str, place: &str, bad: &mut Violations) {
    const DATA_FIELDS: &[&[&str]] = &[
        &["text", "inlineData", "fileData", "functionCall", "functionResponse"],
        &["executableCode", "codeExecutionResult", "toolCall", "toolResponse"],
    ];
    let is_set = |name: &&str| !either_case(part, name).is_null();
    let data: Vec<&str> = DATA_FIELDS.concat().into_iter().filter(is_set).collect();
    match data.as_slice() {
        [_] => {}
        [] => bad.push(format_args!(
            "{place}.data: required oneof field 'data' must have one initialized field"
        )),
        several => bad.push(format_args!(
            "{place}: oneof field 'data' is already set: {}",
            several.join(", ")
        )),
    }
    // A part that has a signature may contain empty text, but other parts must not be empty.
    let signed = has_text(either_case(part, "thoughtSignature"));
    bad.require(data != ["text"] || signed || !is_blank(text(&part["text"]))).or_push(
        format_args!("{place}: Unable to submit request because it has an empty text parameter."),
    );
    let call = either_case(part, "functionCall");
    if !call.is_null() {
        bad.require(role == "model")
            .or_push(format_args!("{place}: a function call is the model's"));
        check_name(text(&call["name"]), place, bad);
        bad.require(call["args"].is_null() || call["args"].is_object()).or_push(format_args!(
            "Invalid value at '{place}.function_call.args': expected an object"
        ));
    }
    let response = either_case(part, "functionResponse");
    if !response.is_null() {
        bad.require(role == "user")
            .or_push(format_args!("{place}: a function response is the user's"));
        bad.require(has_text(&response["name"]))
            .or_push(format_args!("{place}.function_response.name: Name cannot be empty."));
        bad.require(response["response"].is_object()).or_push(format_args!(
            "Invalid value at '{place}.function_response.response': expected an object"
        ));
    }
}

fn check_tools(body: &Value, bad: &mut Violations) {
    let declared: Vec<&Value> = as_list(&body["tools"])
        .iter()
        .flat_map(|tool| as_list(either_case(tool, "functionDeclarations")))
        .collect();
    for (at, function) in declared.iter().enumerate() {
        let place = format!("tools[0].function_declarations[{at}]");
        check_name(text(&function["name"]), &place, bad);
        let parameters = &function["parameters"];
        if !parameters.is_null() {
            schema::check_gemini_schema(parameters, &format!("{place}.parameters"), bad);
        }
        let json_schema = either_case(function, "parametersJsonSchema");
        if !json_schema.is_null() {
            let place = format!("{place}.parameters_json_schema");
            schema::check_gemini_json_schema(json_schema, &place, bad);
            bad.require(json_schema["type"] == "object")
                .or_push(format_args!("{place}: the schema should be of type OBJECT"));
        }
        bad.require(
            parameters.is_null() || either_case(function, "parametersJsonSchema").is_null(),
        )
        .or_push(format_args!(
            "{place}: only one of parameters and parameters_json_schema may be set"
        ));
    }
    let names: Vec<&str> = declared.iter().map(|function| text(&function["name"])).collect();
    for name in repeated_values(names.iter().copied()) {
        bad.push(format_args!("Duplicate function declaration found: {name}"));
    }
    let config = either_case(either_case(body, "toolConfig"), "functionCallingConfig");
    let mode = text(&config["mode"]);
    bad.require(matches!(mode, "" | "AUTO" | "ANY" | "NONE" | "VALIDATED")).or_push(format_args!(
        "Invalid value at 'tool_config.function_calling_config.mode': \"{mode}\""
    ));
    bad.require(mode != "ANY" || !names.is_empty())
        .or_push("Function calling config is set without function_declarations.");
    let allowed = as_list(either_case(config, "allowedFunctionNames"));
    bad.require(allowed.is_empty() || matches!(mode, "ANY" | "VALIDATED"))
        .or_push("allowed_function_names should only be set when mode is ANY");
    for name in allowed.iter().map(text).filter(|name| !names.contains(name)) {
        bad.push(format_args!(
            "allowed_function_names: `{name}` is not among the declared functions"
        ));
    }
}

fn check_options(body: &Value, bad: &mut Violations) {
    const KNOWN_FIELDS: &[&[&str]] = &[
        &["model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"],
        &["safetySettings", "cachedContent", "continuationToken", "labels", "serviceTier", "store"],
    ];
    let is_known =
        |field: &str| KNOWN_FIELDS.iter().any(|row| row.contains(&to_camel_case(field).as_str()));
    for (field, _) in set_fields(body).filter(|(field, _)| !is_known(field)) {
        schema::push_unknown_field(field, "", bad);
    }
    let config = either_case(body, "generationConfig");
    let temperature = config["temperature"].as_f64();
    bad.require(temperature.is_none_or(|t| (0.0..=2.0).contains(&t)))
        .or_push("temperature: must be in the range [0.0, 2.0]");
    bad.require(as_list(either_case(config, "stopSequences")).len() <= 5)
        .or_push("stop_sequences: at most 5 are allowed");
    let schema = either_case(config, "responseSchema");
    if !schema.is_null() {
        schema::check_gemini_schema(schema, "generation_config.response_schema", bad);
    }
    let json_schema = either_case(config, "responseJsonSchema");
    if !json_schema.is_null() {
        schema::check_gemini_json_schema(
            json_schema,
            "generation_config.response_json_schema",
            bad,
        );
    }
    let plain = matches!(text(either_case(config, "responseMimeType")), "" | "text/plain");
    bad.require(!plain || (schema.is_null() && json_schema.is_null()))
        .or_push("response_schema is only supported with response_mime_type application/json");
    for field in ["max_tokens", "maxTokens", "stop", "response_format"] {
        if !config[field].is_null() {
            schema::push_unknown_field(field, " at 'generation_config'", bad);
        }
    }
}

/// Checks a name against the vendor's rule: "Must start with a letter or an underscore. Must be
/// alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a
/// maximum length of 64."
fn check_name(name: &str, place: &str, bad: &mut Violations) {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    bad.require(first && name.len() <= 64 && name.bytes().all(rest))
        .or_push(format_args!("{place}.name: Invalid function name: `{name}`"));
}

/// Returns the function calls or responses in a content object. `field` is the key of the call or
/// response in a part.
fn function_parts<'a>(content: &'a Value, field: &str) -> Vec<&'a Value> {
    let parts = as_list(&content["parts"]).iter();
    parts.map(|part| either_case(part, field)).filter(|named| !named.is_null()).collect()
}

/// Returns the role of a content object. The default role is `user`.
fn content_role(content: &Value) -> &str {
    match text(&content["role"]) {
        "" | "function" => "user",
        role => role,
    }
}

/// Returns an object's field, whose name may be in camel case or in snake case.
fn either_case<'a>(value: &'a Value, camel: &str) -> &'a Value {
    let mut snake = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    value.get(camel).or_else(|| value.get(&snake)).unwrap_or(&Value::Null)
}

fn to_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let head = letters.next().map(|c| c.to_ascii_uppercase());
        name + &head.into_iter().chain(letters).collect::<String>()
    })
}

/// Returns the errors that the vendor would report for the signatures in a request.
pub(crate) fn check_signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, part) in nested_elements(&body["contents"], "parts") {
        let signed_text = match either_case(part, "functionCall") {
            Value::Null => String::new(),
            call => signed_call_text(call),
        };
        if let Some(signature) = either_case(part, "thoughtSignature").as_str()
            && !known.is_issued_for(signature, &signed_text)
            && !PLACEHOLDER_SIGNATURES.contains(&signature)
        {
            bad.push(format!("Thought signature is not valid. (contents[{at}].parts[{index}])"));
        }
    }
    bad
}

/// Returns the content that a call's signature covers: the call's name and arguments.
fn signed_call_text(call: &Value) -> String {
    let args = call.get("args").cloned().unwrap_or_else(|| serde_json::json!({}));
    format!("{}{args}", call["name"].as_str().unwrap_or_default())
}
