use super::*;

const LINE_COUNT_QUESTION: &str =
    "How many lines of Rust are in src, and which file is the longest?";

fn request_body(messages: &Value) -> Value {
    let names =
        ["list_directory", "read_file", "search_text", "count_lines", "calculate", "write_file"];
    let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    json!({ "model": "offline", "tools": tools, "messages": messages, "stream": true })
}

fn first_turn(question: &str) -> ScriptedTurn {
    scripted_turn(&request_body(&json!([{ "role": "user", "content": question }])))
}

/// Returns the offline model's answer after `name`, called with `input`, has returned `result`.
fn answer_to_result(name: &str, input: &Value, result: &Value) -> String {
    let mut result = result.clone();
    result["type"] = "tool_result".into();
    result["tool_use_id"] = "c".into();
    let call = json!({ "type": "tool_use", "id": "c", "name": name, "input": input });
    let messages = json!([
        { "role": "user", "content": [{ "type": "text", "text": "?" }] },
        { "role": "assistant", "content": [{ "type": "text", "text": "I'll look." }, call] },
        { "role": "user", "content": [result] },
    ]);
    let speech = scripted_turn(&request_body(&messages));
    assert_eq!(speech.calls, []);
    assert!(speech.text.contains("my words are scripted, the tool results are real"));
    speech.text
}

fn first_calls(question: &str) -> Vec<(String, Value)> {
    first_turn(question).calls
}

#[test]
fn the_question_about_lines_lists_and_counts_in_one_turn() {
    let speech = first_turn(LINE_COUNT_QUESTION);
    assert!(!speech.reasoning.is_empty() && !speech.text.is_empty());
    let list = ("list_directory".to_owned(), json!({ "path": "src" }));
    let count = ("count_lines".to_owned(), json!({ "path": "src", "extension": "rs" }));
    assert_eq!(speech.calls, [list, count]);
}

#[test]
fn directory_and_extension_are_taken_from_the_question() {
    for (question, path, extension) in [
        ("Count the lines of Python in the `lib/tools` directory.", "lib/tools", Some("py")),
        ("how many lines are in src/main.rs?", "src/main.rs", None),
        ("How many lines are there in total?", ".", None),
        ("How many lines of code are in this repository", ".", None),
        ("Which of the .toml files is the longest?", ".", Some("toml")),
        ("what is the number of lines in the directory tests", "tests", None),
        ("How many lines written in Rust are under ./a b/?", "./a", Some("rs")),
        ("how many lines in src.", "src", None),
        ("How many lines does src have?", "src", None),
    ] {
        let counted = first_calls(question).pop().unwrap();
        let mut input = json!({ "path": path });
        if let Some(extension) = extension {
            input["extension"] = extension.into();
        }
        assert_eq!(counted, ("count_lines".to_owned(), input), "{question}");
    }
}

#[test]
fn any_other_question_runs_a_search() {
    let words = |question| -> Vec<String> {
        let calls = first_calls(question).into_iter();
        calls
            .map(|(name, input)| {
                assert_eq!(name, "search_text");
                input["query"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    assert_eq!(words("Where is the Journal implemented?"), ["Journal", "implemented"]);
    assert_eq!(words("Who calls `loop_stream`, and why?"), ["loop_stream"]);
    assert_eq!(words("an unclosed `quote here"), ["unclosed", "quote"]);
    assert_eq!(words("Which line has loop_stream?"), ["line", "loop_stream"]);
    assert_eq!(words("alpha alpha Alpha beta gamma_x delta1 epsilon").len(), 4);
}

#[test]
fn sums_are_calculated() {
    for (question, sum) in [
        ("What is (2+3)*4?", "(2+3)*4"),
        ("calculate 1 / 0", "1 / 0"),
        ("how much is 2 plus 3 times 4", "2 + 3 * 4"),
        ("10 divided by 4 =", "10 / 4"),
    ] {
        let expected = ("calculate".to_owned(), json!({ "expression": sum }));
        assert_eq!(first_calls(question), [expected], "{question}");
    }
    assert!(first_calls("What is in a/b").iter().all(|(name, _)| name == "search_text"));
}

#[test]
fn a_request_to_write_calls_the_tool_that_writes() {
    for (question, text, path) in [
        (r#"Write "two words" to notes.txt"#, "two words", "notes.txt"),
        ("write `a \"b\"` into the file `src/a b.txt`.", "a \"b\"", "src/a b.txt"),
        (" WRITE \"\" in ./x ", "", "./x"),
        ("write hello to notes.txt", "hello", "notes.txt"),
        ("Please write hello, world into notes.txt.", "hello, world", "notes.txt"),
        ("Could you write hello in a file called notes?", "hello", "notes"),
        ("create a file x with y", "y", "x"),
        ("Create a new file named src/x.md with the text a b c", "a b c", "src/x.md"),
        ("create an empty file x.txt", "", "x.txt"),
        ("create notes.txt", "", "notes.txt"),
        ("create notes.txt containing 'one thing'", "one thing", "notes.txt"),
        ("make a file notes.txt that says hello you", "hello you", "notes.txt"),
        ("save hello as notes.txt", "hello", "notes.txt"),
        ("save the word hello to the file notes", "the word hello", "notes"),
        ("I want you to save “hello” in notes.txt", "hello", "notes.txt"),
        ("write to notes.txt: hello to you", "hello to you", "notes.txt"),
        ("write a file notes.txt with hello in it", "hello", "notes.txt"),
        ("put 42 into answer.json", "42", "answer.json"),
        ("write a to-do list to todo.md", "a to-do list", "todo.md"),
        ("write hello to notes", "hello", "notes"),
    ] {
        let expected = ("write_file".to_owned(), json!({ "path": path, "text": text }));
        assert_eq!(first_calls(question), [expected], "{question}");
    }
    for (question, text, path) in [
        ("append hello to notes.txt", "hello", "notes.txt"),
        ("Add \"one more\" to the end of the file notes.txt", "one more", "notes.txt"),
        ("write hello at the end of notes.txt", "hello", "notes.txt"),
    ] {
        let input = json!({ "path": path, "text": text, "append": true });
        assert_eq!(first_calls(question), [("write_file".to_owned(), input)], "{question}");
    }
    for question in [
        "who can write to `x`?",
        "write a poem",
        "write \"x",
        "write \"x\" to",
        "write \"x\" y",
        "write tests for src/main.rs",
        "create a summary of README.md",
        "add up the numbers",
        "make it faster",
        "Where is notes.txt written to?",
    ] {
        assert!(first_calls(question).iter().all(|(name, _)| name == "search_text"), "{question}");
    }
}

#[test]
fn a_server_tool_is_called_for_questions_no_local_tool_answers() {
    let turn = |question: &str| {
        let mut body = request_body(&json!([{ "role": "user", "content": question }]));
        let city = json!({ "type": "string" });
        body["tools"].as_array_mut().unwrap().push(json!({
            "name": "demo__weather",
            "description": "Writes and counts lines about the weather",
            "input_schema": { "type": "object", "properties": { "city": city }, "required": ["city"] },
        }));
        scripted_turn(&body)
    };
    let call = ("demo__weather".to_owned(), json!({ "city": "Oslo" }));
    assert_eq!(turn("What is the weather in Oslo?").calls, [call]);
    for question in
        [LINE_COUNT_QUESTION, "What is 2 + 3?", "write weather to notes.txt", "loop_stream"]
    {
        assert_eq!(turn(question), first_turn(question), "{question}");
    }
    let incomplete = turn("What is the weather?");
    assert_eq!(incomplete.calls, []);
    assert!(incomplete.text.contains("no value for its `city`"), "{}", incomplete.text);
    assert!(incomplete.text.contains("my words are scripted"), "{}", incomplete.text);
}

#[test]
fn the_answer_quotes_the_result_of_a_server_tool() {
    let result = json!({ "content": "Oslo:\n snow" });
    let answer = answer_to_result("demo__weather", &json!({ "city": "Oslo" }), &result);
    assert!(answer.starts_with("`demo__weather` says: Oslo: snow\n"), "{answer}");
    let answer = answer_to_result("demo__weather", &json!({}), &json!({ "content": [] }));
    assert!(answer.starts_with("`demo__weather` returned no text."), "{answer}");
}

#[test]
fn without_a_keyword_no_tool_is_called() {
    for question in ["", "Hi", "?!", "what is it"] {
        let speech = first_turn(question);
        assert_eq!(speech.calls, []);
        assert!(speech.text.contains("scripted"), "{question}");
    }
}

#[test]
fn without_tools_the_answer_states_that_files_are_not_readable() {
    let mut body = request_body(&json!([{ "role": "user", "content": LINE_COUNT_QUESTION }]));
    for tools in [json!([]), Value::Null] {
        body["tools"] = tools;
        let speech = scripted_turn(&body);
        assert_eq!(speech.calls, []);
        assert!(speech.text.contains("Without tools I cannot look"), "{}", speech.text);
    }
    body["tools"] = json!([{ "name": "list_directory" }]);
    assert!(scripted_turn(&body).text.contains("`count_lines`, which I do not have"));
}

#[test]
fn the_answer_contains_only_figures_of_the_result() {
    let report = r#"{"path":"src","extension":"rs","total":12345,"files":67,"longest_file":"src/a b.rs","longest_lines":890,"skipped":0}"#;
    for content in [json!(report), json!([{ "type": "text", "text": report }])] {
        let answer = answer_to_result(
            "count_lines",
            &json!({ "path": "src" }),
            &json!({ "content": content }),
        );
        for part in ["12345 lines of Rust in `src`", "67 files", "`src/a b.rs` with 890 lines"] {
            assert!(answer.contains(part), "{answer}");
        }
    }
    let empty =
        r#"{"path":".","total":0,"files":0,"longest_file":null,"longest_lines":null,"note":"n"}"#;
    let answer = answer_to_result("count_lines", &json!({}), &json!({ "content": empty }));
    assert!(
        answer.starts_with("0 lines in `.`, in 0 files. So there is no longest file. (n)"),
        "{answer}"
    );
}

#[test]
fn search_hits_are_reported_with_file_and_line() {
    let report = r#"{"query":"q","lines":1,"files":1,"searched":9,"hits":[{"file":"a.rs","line":7,"text":"let q;"}]}"#;
    let answer =
        answer_to_result("search_text", &json!({ "query": "q" }), &json!({ "content": report }));
    assert!(answer.starts_with("`q` is in 1 line of 1 file:\n- a.rs:7: let q;"), "{answer}");
    let report = r#"{"query":"q","lines":0,"files":0,"searched":9,"hits":[]}"#;
    let answer =
        answer_to_result("search_text", &json!({ "query": "q" }), &json!({ "content": report }));
    assert!(answer.starts_with("`q` was not found in 9 files."), "{answer}");
    let answer =
        answer_to_result("calculate", &json!({ "expression": "1+1" }), &json!({ "content": "2" }));
    assert!(answer.starts_with("1+1 is 2."), "{answer}");
}

#[test]
fn a_failed_tool_is_reported_as_failed() {
    let failed = json!({ "content": "Error: there is no `sorc`", "is_error": true });
    let answer = answer_to_result("count_lines", &json!({ "path": "sorc" }), &failed);
    assert!(answer.contains("`count_lines` failed: Error: there is no `sorc`"), "{answer}");
    let answer = answer_to_result("count_lines", &json!({}), &json!({ "content": "not JSON" }));
    assert!(answer.contains("I cannot read what `count_lines` returned: not JSON"), "{answer}");
}

#[test]
fn in_a_chat_only_items_after_the_last_question_count() {
    let call = json!({ "type": "tool_use", "id": "c", "name": "calculate", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "c", "content": "4" });
    let messages = json!([
        { "role": "user", "content": "2 + 2" },
        { "role": "assistant", "content": [call] },
        { "role": "user", "content": [result, { "type": "text", "text": "3 + 3" }] },
    ]);
    let speech = scripted_turn(&request_body(&messages));
    assert_eq!(speech.calls, [("calculate".to_owned(), json!({ "expression": "3 + 3" }))]);
}

#[test]
fn any_request_body_gets_a_reply() {
    for body in [
        json!(null),
        json!({}),
        json!({ "messages": 3, "tools": "x" }),
        json!({ "messages": [1, { "role": "user" }, { "role": "user", "content": [null, {}] }] }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_result" }] }] }),
    ] {
        let _ = reply(&body, std::time::Duration::ZERO);
    }
}
