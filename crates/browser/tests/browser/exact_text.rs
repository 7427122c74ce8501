//! An approver sees every token and every character of a call.

use serde_json::{Value, json};

use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

/// A page with an empty session.
async fn open_page() -> (Model, Server, Page) {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    (model, server, page)
}

/// Shows the question whether a call may run.
async fn show_question(page: &Page, name: &str, arguments: &str) {
    let call = json!({ "call_id": "c1", "name": name, "arguments": arguments });
    let script = format!(
        "return import('/page/approval_card.js').then(({{ ApprovalCard }}) => \
             document.getElementById('approvals').replaceChildren(new ApprovalCard({call}, () => {{}}).node))"
    );
    page.run(&script).await;
}

/// The question's boxes with values, and the boxes with the text as it was written.
async fn shown_values(page: &Page) -> (Vec<String>, Vec<String>) {
    let values = page.texts(".approval .value:not(.raw)").await;
    (values, page.texts(".approval .value.raw").await)
}

/// Checks how the arguments of a call are listed, and that each value's tokens were not changed.
async fn check_list(page: &Page, arguments: &str, keys: &[&str], values: &[&str]) {
    show_question(page, "write_file", arguments).await;
    assert_eq!(page.texts(".approval dt").await, keys, "{arguments}");
    assert_eq!(shown_values(page).await.0, values, "{arguments}");
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn numbers_and_the_order_of_keys_are_shown_as_the_model_wrote_them() {
    let (_model, _server, page) = open_page().await;
    for number in [
        "9007199254740993",
        "123456789012345678901234567890",
        "1e400",
        "-1e400",
        "1e-400",
        "-0",
        "1.0",
        "1.10",
        "1E5",
        "0.1000000000000000055511151231257827",
    ] {
        check_list(&page, &format!("{{\"n\":{number}}}"), &["n"], &[number]).await;
        check_list(
            &page,
            &format!("{{\"n\":[ {number} ]}}"),
            &["n"],
            &[&format!("[\n  {number}\n]")],
        )
        .await;
        assert_eq!(shown_values(&page).await.1, [""; 0], "{number}");
    }
    check_list(
        &page,
        r#"{"b":1,"10":2,"2":3,"a":4,"__proto__":5,"constructor":6,"":7}"#,
        &["b", "10", "2", "a", "__proto__", "constructor", ""],
        &["1", "2", "3", "4", "5", "6", "7"],
    )
    .await;
    assert_eq!(shown_values(&page).await.1, [""; 0]);
    check_list(
        &page,
        r#"{"o":{"b":{},"1":[],"a":[true,{"__proto__":null}]}}"#,
        &["o"],
        &["{\n  \"b\": {},\n  \"1\": [],\n  \"a\": [\n    true,\n    {\n      \"__proto__\": null\n    }\n  ]\n}"],
    )
    .await;
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn each_value_of_a_repeated_key_is_shown_and_the_key_is_reported() {
    let (_model, _server, page) = open_page().await;
    for (arguments, keys, values, repeated) in [
        (r#"{"a":1,"b":2,"a":3}"#, ["a", "b", "a"].as_slice(), ["1", "2", "3"].as_slice(), "a"),
        (r#"{"a":1,"\u0061":3}"#, &["a", "a"], &["1", "3"], "a"),
        (r#"{"__proto__":1,"__proto__":2}"#, &["__proto__", "__proto__"], &["1", "2"], "__proto__"),
        (
            r#"{"o":[{"x y":1,"x y":2}]}"#,
            &["o"],
            &["[\n  {\n    \"x y\": 1,\n    \"x y\": 2\n  }\n]"],
            "x y",
        ),
    ] {
        check_list(&page, arguments, keys, values).await;
        assert_eq!(page.texts(".approval .note code").await, [repeated]);
        assert_eq!(shown_values(&page).await.1, [arguments]);
    }
    // The same key in different objects is not repeated.
    check_list(
        &page,
        r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#,
        &["a", "b"],
        &["{\n  \"a\": 1\n}", "[\n  {\n    \"a\": 1\n  },\n  {\n    \"a\": 2\n  }\n]"],
    )
    .await;
    assert_eq!(page.texts(".approval .note").await, [""; 0]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn escapes_are_shown_as_written_and_with_their_meaning() {
    let (_model, _server, page) = open_page().await;
    // The meanings that are displayed after the escapes of the text as written.
    let meanings = async || {
        let script = "return [...document.querySelectorAll('.approval .value.raw .escape')].map((it) => \
             getComputedStyle(it, '::after').content)";
        page.run(script).await
    };
    for (arguments, value, meaning) in [
        (r#"{"c":"\u0072\u006d -rf"}"#, "rm -rf", "rm"),
        (r#"{"c":"\u002Fetc"}"#, "/etc", "/"),
        (r#"{"c":"\ud83d\ude00"}"#, "😀", "😀"),
        (r#"{"c":"a\u202Eb"}"#, "aU+202Eb", "‹U+202E›"),
        (r#"{"c":"\u3164"}"#, "U+3164", "‹U+3164›"),
        (r#"{"c":"\\\u0061"}"#, "\\a", "a"),
    ] {
        check_list(&page, arguments, &["c"], &[value]).await;
        assert_eq!(shown_values(&page).await.1, [arguments]);
        assert_eq!(meanings().await, json!([format!("\"={meaning}\"")]), "{arguments}");
    }
    // Escapes that every writer of JSON needs are not repeated.
    for (arguments, value) in [
        (r#"{"c":"\\u0061 \"q\" \n"}"#, "\\u0061 \"q\" \n"),
        (r#"{"c":"\u0000"}"#, "U+0000"),
        (r#"{"c":"\ud800"}"#, "U+D800"),
        (r#"{"c":"\udc00\ud800"}"#, "U+DC00U+D800"),
    ] {
        check_list(&page, arguments, &["c"], &[value]).await;
        assert_eq!(shown_values(&page).await.1, [""; 0], "{arguments}");
    }
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn text_is_quoted_and_other_values_are_not() {
    let (_model, _server, page) = open_page().await;
    let arguments = r#"{"a":"1","b":1,"c":"null","d":null,"e":"","f":"{}","g":{}}"#;
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    check_list(&page, arguments, &keys, &["1", "1", "null", "null", "", "{}", "{}"]).await;
    let script = "return [...document.querySelectorAll('.approval .value')].map((it) => \
         getComputedStyle(it, '::before').content + getComputedStyle(it, '::after').content)";
    let (quoted, bare) = ("\"“\"\"”\"", "nonenone");
    assert_eq!(page.run(script).await, json!([quoted, bare, quoted, bare, quoted, quoted, bare]));
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn arguments_that_cannot_be_listed_are_shown_as_written() {
    let (_model, _server, page) = open_page().await;
    let deep = format!("{}1{}", "[".repeat(33), "]".repeat(33));
    let bracket_bomb = "[".repeat(9_000);
    let many = format!("[{}0]", "0,".repeat(4_998));
    let too_many = format!("[{}0]", "0,".repeat(4_999));
    let [long_key, too_long_key] = [998, 999].map(|size| format!("{{\"{}\":0}}", "k".repeat(size)));
    let [long, too_long] = [249_998, 249_999].map(|size| format!("\"{}\"", "a".repeat(size)));
    let invalid = "These arguments are not valid JSON";
    let too_large = "These arguments are too large to be listed";
    for (arguments, why) in [
        ("{\"a\":1,}", invalid),
        ("{a:1}", invalid),
        ("{'a':1}", invalid),
        ("{\"a\":01}", invalid),
        ("{\"a\":NaN}", invalid),
        ("{\"a\":1}{\"a\":2}", invalid),
        ("{\"a\":\"\\x\"}", invalid),
        ("{\"a\":\"1\n2\"}", invalid),
        ("```json\n{\"a\":1}\n```", invalid),
        ("rm -rf /", invalid),
        (" ", invalid),
        (&bracket_bomb, too_large),
        (&deep, too_large),
        (&too_many, too_large),
        (&too_long_key, too_large),
        (&too_long, too_large),
    ] {
        show_question(&page, "write_file", arguments).await;
        assert_eq!(page.texts(".approval .note").await, [why], "{arguments:?}");
        assert_eq!(
            shown_values(&page).await.1,
            [if arguments.len() > 10_000 { &arguments[..10_000] } else { arguments }]
        );
    }
    for arguments in [&deep[1..deep.len() - 1], &many, &long_key, &long] {
        show_question(&page, "write_file", arguments).await;
        assert_eq!(page.texts(".approval .note").await, [""; 0]);
        assert_eq!(shown_values(&page).await.0.len(), 1);
    }
    // Valid JSON that is not an object.
    for (arguments, shown) in
        [("[ 1.0,\"a\" ]", "[\n  1.0,\n  \"a\"\n]"), ("-0", "-0"), ("{ }", "{}")]
    {
        check_list(&page, arguments, &[], &[shown]).await;
    }
    show_question(&page, "write_file", "").await;
    assert_eq!(page.texts(".approval .note").await, ["No arguments"]);
    page.close().await;
}

/// Characters that are invisible or look like a space, by the reason.
const HIDDEN: &[(&str, &[char])] = &[
    ("control", &['\0', '\u{7}', '\u{8}', '\u{b}', '\r', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}']),
    (
        "bidirectional",
        &[
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202d}', '\u{202e}', '\u{2066}',
            '\u{2069}',
        ],
    ),
    (
        "format",
        &[
            '\u{ad}',
            '\u{600}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{2060}',
            '\u{2063}',
            '\u{206f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{110bd}',
            '\u{13430}',
            '\u{1bca0}',
            '\u{1d173}',
        ],
    ),
    (
        "default ignorable",
        &[
            '\u{34f}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{2065}',
            '\u{3164}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{e0fff}',
        ],
    ),
    (
        "variation selector",
        &['\u{180b}', '\u{fe00}', '\u{fe0e}', '\u{fe0f}', '\u{e0100}', '\u{e01ef}'],
    ),
    ("tag", &['\u{e0001}', '\u{e0020}', '\u{e0041}', '\u{e007f}']),
    (
        "space",
        &[
            '\u{a0}', '\u{1680}', '\u{180e}', '\u{2000}', '\u{2007}', '\u{200a}', '\u{202f}',
            '\u{205f}', '\u{3000}', '\u{2028}', '\u{2029}',
        ],
    ),
    ("blank", &['\u{2800}', '\u{fffc}', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}']),
    ("private use", &['\u{e000}', '\u{f8ff}', '\u{f0000}', '\u{10fffd}']),
    ("not a character", &['\u{fdd0}', '\u{fffe}', '\u{ffff}', '\u{1fffe}', '\u{10ffff}']),
    ("unassigned", &['\u{378}', '\u{2fe0}', '\u{50000}']),
];

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn each_hidden_character_of_a_name_a_key_or_a_value_has_a_mark() {
    let (_model, _server, page) = open_page().await;
    for (reason, characters) in HIDDEN {
        for &hidden in *characters {
            let text = format!("a{hidden}b");
            let mark = format!("U+{:04X}", u32::from(hidden));
            let shown = format!("a{mark}b");
            let arguments = json!({ text.as_str(): text, "nested": [{ text.as_str(): text }] });
            show_question(&page, &text, &arguments.to_string()).await;
            assert_eq!(page.texts(".approval h2 code").await, [shown.as_str()], "{reason}");
            assert_eq!(page.texts(".approval dt").await, [shown.as_str(), "nested"], "{reason}");
            let nested = if hidden < ' ' {
                // JSON text has an escape for it, which is visible.
                let escaped = serde_json::to_string(&text).unwrap();
                format!("[\n  {{\n    {escaped}: {escaped}\n  }}\n]")
            } else {
                format!("[\n  {{\n    \"{shown}\": \"{shown}\"\n  }}\n]")
            };
            assert_eq!(shown_values(&page).await.0, [shown, nested], "{reason}");
            let marks = if hidden < ' ' { 3 } else { 5 };
            assert_eq!(page.texts(".approval .mark").await, vec![mark.clone(); marks], "{reason}");
            // Text that is not JSON.
            show_question(&page, "t", &text).await;
            assert_eq!(page.texts(".approval .value.raw .mark").await, [mark], "{reason}");
        }
    }
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_mark_differs_from_the_same_text_of_a_model() {
    let (_model, _server, page) = open_page().await;
    let text =
        "U+3164 \u{3164}\u{3164}\u{3164}\u{200b} U+3164 ×3 <span class=\"mark\">U+3164</span>";
    show_question(&page, "t", &json!({ "text": text }).to_string()).await;
    let shown = text.replace("\u{3164}\u{3164}\u{3164}\u{200b}", "U+3164 ×3U+200B");
    assert_eq!(shown_values(&page).await.0, [shown]);
    assert_eq!(page.texts(".approval .mark").await, ["U+3164 ×3", "U+200B"]);
    let script = "const mark = document.querySelector('.approval .mark'); \
         const [own, box] = [mark, mark.parentElement].map((it) => getComputedStyle(it)); \
         return [mark.role, mark.ariaLabel, own.borderTopStyle, own.color !== box.color]";
    let expected = json!(["img", "hidden character U+3164 ×3", "solid", true]);
    assert_eq!(page.run(script).await, expected);
    // Screen readers read the name of the question, which is its title.
    let label = "const card = document.querySelector('.approval'); \
         return document.getElementById(card.getAttribute('aria-labelledby')) === card.querySelector('h2')";
    assert_eq!(page.run(label).await, true);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_combining_character_without_a_base_has_a_mark() {
    let (_model, _server, page) = open_page().await;
    for (text, shown) in [
        ("e\u{301}", "e\u{301}"),
        ("नमस्ते", "नमस्ते"),
        ("\u{338}a", "U+0338a"),
        ("a \u{338}b", "a U+0338b"),
        ("\u{338}\u{339}", "U+0338U+0339"),
        ("1\u{fe0f}\u{20e3}", "1U+FE0FU+20E3"),
        (
            "a\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}",
            "a\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}U+0307",
        ),
    ] {
        check_list(&page, &json!({ "text": text }).to_string(), &["text"], &[shown]).await;
    }
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn line_breaks_tabs_and_spaces_that_are_easily_overlooked_are_visible() {
    let (_model, _server, page) = open_page().await;
    for (text, visible) in [
        ("a b c", json!([])),
        (" a", json!([" "])),
        ("a ", json!([" "])),
        ("a  b   c", json!(["  ", "   "])),
        (" ", json!([" "])),
        ("a\nb", json!(["\n"])),
        ("a \n b\n\n", json!([" ", "\n", " ", "\n", "\n"])),
        ("a\tb \t c", json!(["\t", " ", "\t", " "])),
    ] {
        let arguments = json!({ text: text });
        show_question(&page, text, &arguments.to_string()).await;
        for place in ["h2 code", "dt", ".value"] {
            // The text is not changed, and no character of it is collapsed or dropped.
            assert_eq!(page.texts(&format!(".approval {place}")).await, [text], "{place}");
            let script = format!(
                "const box = document.querySelector('.approval {place}'); \
                 const style = (it, pseudo) => getComputedStyle(it, pseudo); \
                 const isVisible = (it) => style(it).backgroundImage !== 'none' || style(it, '::before').content !== 'none'; \
                 return [style(box).whiteSpace, [...box.querySelectorAll('span')].filter(isVisible).map((it) => it.textContent)]"
            );
            assert_eq!(
                page.run(&script).await,
                json!(["break-spaces", visible]),
                "{place} {text:?}"
            );
        }
    }
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn text_from_right_to_left_does_not_move_the_tokens_around_it() {
    let (_model, _server, page) = open_page().await;
    let arguments = r#"{"o":{"אבג":"דהו"},"r":"\u0061"}"#;
    show_question(&page, "t", arguments).await;
    // The horizontal position of each character, in the list and in the text as it was written.
    let script = "const left = (selector, text) => { \
             const box = document.querySelector(selector); \
             const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT); \
             while (walk.nextNode()) { \
                 const at = walk.currentNode.data.indexOf(text); \
                 if (at < 0) continue; \
                 const range = document.createRange(); \
                 range.setStart(walk.currentNode, at); \
                 range.setEnd(walk.currentNode, at + 1); \
                 return range.getBoundingClientRect().left; \
             } \
         }; \
         const isInOrder = (selector, texts) => texts.map((text) => left(selector, text)) \
             .every((x, at, all) => at === 0 || all[at - 1] < x); \
         return [isInOrder('.approval .json', ['ג', ':', 'ו']), \
             isInOrder('.approval .raw', ['א', 'ב', 'ג', 'ד', 'ה', 'ו'])]";
    assert_eq!(page.run(script).await, json!([true, true]));
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_call_is_approved_only_after_all_of_its_arguments_were_shown() {
    let (model, server, page) = open_page().await;
    page.ask("Write it").await;
    let text = format!("{}😀 the end", "\n".repeat(9_999));
    let arguments = json!({ "path": "a.txt", "text": text });
    model.asked().await.end_with_call("c1", "write_file", &arguments);
    page.wait("document.querySelector('.approval')").await;
    page.wait_until_idle().await;
    // The cut is before a character, not within it.
    assert_eq!(shown_values(&page).await.0[1], "\n".repeat(9_999));
    page.click(".approve").await;
    page.wait_for_words("Show all of the arguments before you approve them.").await;
    assert!(!server.folder.join("a.txt").exists());
    page.click(".approval dd button").await;
    assert_eq!(shown_values(&page).await.0[1], text);
    // No part of it can be scrolled out of sight within its box.
    let hidden = "return [...document.querySelectorAll('.approval .value')]\
         .filter((it) => it.scrollHeight > it.clientHeight || it.scrollWidth > it.clientWidth).length";
    assert_eq!(page.run(hidden).await, 0);
    page.click(".approve").await;
    model.answer("It is written.").await;
    page.wait_for_words("It is written.").await;
    page.wait_until_idle().await;
    assert_eq!(std::fs::read_to_string(server.folder.join("a.txt")).unwrap(), text);
    page.close().await;
}

/// Runs a script over many generated texts, with the modules of the page. The script gets `random`
/// (an integer below a limit, from a fixed seed) and `pick`.
async fn check_generated(script: &str) -> Value {
    let (_model, _server, page) = open_page().await;
    let script = format!(
        "let seed = 1; \
         const random = (limit) => {{ \
             seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; \
             return Math.floor((seed / 2 ** 32) * limit); \
         }}; \
         const pick = (list) => list[random(list.length)]; \
         const modules = ['json_text', 'visible_text'].map((name) => import(`/page/${{name}}.js`)); \
         return Promise.all(modules).then(([json, visible]) => {{ {script} }})"
    );
    let found = page.run(&script).await;
    page.close().await;
    found
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn indented_json_has_the_tokens_of_the_original_text() {
    let found = check_generated(
        r#"
        const scalars = ['9007199254740993', '1e400', '-0', '1.0', '1E+2', 'true', 'false', 'null', '""', '"a b"',
            '"\\u0061"', '"\\ud800"', '"\\/"', '"\\\\"', '"\\""', '"{[,:]}"', '"\u3164"', '"\u{e0041}"', '"__proto__"', '"1"'];
        const keys = scalars.filter((it) => it[0] === '"');
        const value = (depth) => {
            const kind = depth > 5 ? 0 : random(4);
            if (kind < 2) return [pick(scalars)];
            const parts = Array.from({ length: random(4) }, () =>
                (kind === 2 ? value(depth + 1) : [pick(keys), ':', ...value(depth + 1)]));
            const inner = parts.flatMap((part, at) => (at ? [',', ...part] : part));
            return kind === 2 ? ['[', ...inner, ']'] : ['{', ...inner, '}'];
        };
        const space = () => pick(['', '', ' ', '\n', '\t', '\r\n  ']);
        const same = (one, two) => JSON.stringify(one) === JSON.stringify(two);
        const wrong = [];
        let objects = 0;
        for (let round = 0; round < 5000; round += 1) {
            const tokens = value(0);
            const text = space() + tokens.map((token) => token + space()).join('');
            const read = json.readJson(text);
            if (!same(read.tokens, tokens)) { wrong.push(['tokens', text]); continue; }
            const pretty = json.indent(read.tokens);
            if (!same(pretty.map(([, token]) => token), tokens) || !pretty.every(([space]) => /^[ \n]*$/.test(space))
                || !same(json.readJson(pretty.flat().join('')), read)) wrong.push(['pretty', text]);
            // JavaScript's own indentation is the same if no token says what it would change.
            if (tokens.every((it) => '{}[]:,truefalsenull""'.includes(it)) && read.repeated.length === 0
                && pretty.flat().join('') !== JSON.stringify(JSON.parse(text), null, 2)) wrong.push(['layout', text]);
            if (tokens[0] !== '{') continue;
            objects += 1;
            const joined = json.members(tokens).flatMap(({ key, value }, at) => [...(at ? [','] : []), key, ':', ...value]);
            if (!same(['{', ...joined, '}'], tokens)) wrong.push(['members', text]);
        }
        return [wrong, objects > 500];
        "#,
    );
    assert_eq!(found.await, json!([[], true]));
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_page_reads_the_same_texts_as_json_as_the_browser() {
    let found = check_generated(
        r#"
        const parts = ['{', '}', '[', ']', ':', ',', '"a"', '"', '\\', '\\u', '00e9', '\\"', '-', '0', '1', '.', 'e', 'E+',
            'true', 'null', 'nul', ' ', '\n', '\u0001', '\u00a0', '\ufeff', '/', "'a'", '"b":1', '{"c":[]}'];
        const isJson = (text) => {
            try {
                JSON.parse(text);
                return true;
            } catch {
                return false;
            }
        };
        const wrong = [];
        let valid = 0;
        for (let round = 0; round < 50000; round += 1) {
            const text = Array.from({ length: 1 + random(7) }, () => pick(parts)).join('');
            const isRead = json.readJson(text).error === undefined;
            valid += isRead;
            if (isRead !== isJson(text)) wrong.push(text);
        }
        return [wrong, valid > 500];
        "#,
    );
    assert_eq!(found.await, json!([[], true]));
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_original_text_can_be_recovered_from_the_shown_text() {
    let found = check_generated(
        r#"
        const parts = ['a', 'b', ' ', '  ', '\n', '\t', '\r', '\u200b', '\u200b\u200b', '\u3164', '\u0301', '\u202e', '\u{e0041}',
            '\ud800', '\udc00', '😀', '\ufe0f', 'U+200B', '×2', '\\', '\\u0061', '"', 'é', 'א', '\u2800', '‹', '›'];
        const recover = (node) => [...node.childNodes].map((child) => {
            if (child.nodeType === Node.TEXT_NODE || child.className !== 'mark') return child.textContent;
            const [, digits, count] = /^U\+([0-9A-F]{4,6})(?: ×(\d+))?$/.exec(child.textContent);
            return String.fromCodePoint(parseInt(digits, 16)).repeat(count ?? 1);
        }).join('');
        const shows = [visible.exactText, visible.exactJson, visible.markedText, visible.prose];
        const wrong = [];
        for (let round = 0; round < 20000; round += 1) {
            const text = Array.from({ length: 1 + random(8) }, () => pick(parts)).join('');
            for (const show of shows) {
                const shown = document.createElement('p');
                shown.append(show(text));
                if (recover(shown) !== text) wrong.push([show.name, text]);
            }
        }
        return wrong;
        "#,
    );
    assert_eq!(found.await, json!([]));
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn every_character_without_a_visible_form_has_a_mark() {
    let found = check_generated(
        r"
        const hidden = /^[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zs}\p{Zl}\p{Zp}]$/u;
        const blank = ['\u2800', '\ufffc', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}'];
        const wrong = [];
        let count = 0;
        for (let code = 0; code <= 0x10ffff; code += 1) {
            const character = String.fromCodePoint(code);
            if (' \n\t'.includes(character)) continue;
            const isHidden = hidden.test(character) || blank.includes(character);
            count += isHidden;
            const shown = visible.pieces(`a${character}a`);
            if ((shown.length === 3 && shown[1].kind === 'hidden') !== isHidden) wrong.push(code.toString(16));
        }
        return [wrong, count > 800000];
        ",
    );
    assert_eq!(found.await, json!([[], true]));
}
