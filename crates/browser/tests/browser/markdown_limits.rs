//! No text of a model can overflow the browser's stack, or take the parser more than linear time.

use serde_json::{Value, json};

use crate::driver::WIDE;
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

/// Markup that a text can repeat. Each is read in pieces of 20 characters.
const REPEATED: [&str; 38] = [
    "*", "_", "\\", "- ", "> ", ">", "* ", "_ ", "+ ", "*_", "*_x", "~~*", "**[", "[![", "![",
    "[a](", "[", "`", "```", "a `", "1", "1.", "#", "|", "|-", "$", "\\[", "<", "<br ", "h",
    "http://", "\n", "- a\n", "> a\n", "    a\n", "| a\n", " ", "\t",
];

/// Markup after which the rest of a text is undecided.
const OPENED: [&str; 10] =
    ["[a](", "![a](", "http://a", "```", "```\n", "a `", "|a|\n|", "<br ", "1", "- "];

/// Reads texts with the page's parser. Returns the greatest depth and the greatest number of
/// undecided characters, which the parser copies for each character.
const READ: &str = "
    const { parser, parser_write, parser_end } = await import('/page/streaming-markdown/smd.js');
    let depth = 0, deepest = 0, longest = 0;
    const renderer = {
        add_token() { deepest = Math.max(deepest, depth += 1); },
        end_token() { depth -= 1; },
        add_text() {},
        set_attr() {},
    };
    for (const text of texts) {
        const state = parser(renderer);
        for (let at = 0; at < text.length; at += 20) {
            parser_write(state, text.slice(at, at + 20));
            longest = Math.max(longest, state.pending.length);
        }
        parser_end(state);
        depth = 0;
    }
    return [deepest, longest];
";

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn the_depth_and_the_undecided_text_of_markdown_are_limited() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    let mut texts: Vec<String> = REPEATED.iter().map(|it| it.repeat(20_000 / it.len())).collect();
    for opened in OPENED {
        texts.extend(
            ["x", "`", " ", "-", "*", "1"].map(|it| format!("{opened}{}", it.repeat(20_000))),
        );
    }
    // Lists within lists, and block quotes that grow with each line.
    for (nested, line) in [("  ", "- a\n"), ("> ", "a\n")] {
        let lines: Vec<String> = (0..100).map(|depth| nested.repeat(depth) + line).collect();
        texts.push(lines.concat());
    }
    let script = format!("const texts = {}; return (async () => {{ {READ} }})()", json!(texts));
    let limits = page.run(&script).await;
    let limit = |at: usize| limits[at].as_u64().unwrap();
    assert!((10..=23).contains(&limit(0)) && (1_000..=2_020).contains(&limit(1)), "{limits}");
    page.close_after_errors().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_long_paragraph_is_divided_and_a_reload_divides_it_in_the_same_way() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Speak").await;
    let asked = model.asked().await;
    // Words, words in many elements, and text without spaces.
    let words = format!(
        "{}{}**{}**",
        "some words ".repeat(1_000),
        "*and* `so` on ".repeat(500),
        "x😀".repeat(10_000)
    );
    let letters: Vec<char> = words.chars().collect();
    for piece in letters.chunks(20) {
        asked.say(&piece.iter().collect::<String>());
    }
    asked.say("\n\nThe end.");
    asked.end();
    page.wait_for_words("The end.").await;
    page.wait_until_idle().await;
    let parts = page.texts(".answer .part").await;
    assert!(parts.len() > 5, "{}", parts.len());
    assert!(!parts.concat().contains('\u{fffd}'), "a character is divided");
    let lengths = "return [...document.querySelectorAll('.answer .part:not(:has(.part))')].map((it) => \
         it.textContent.length)";
    let lengths = page.run(lengths).await;
    let lengths: Vec<u64> = lengths.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!(lengths.len() > 4 && lengths.iter().all(|length| *length <= 8_000), "{lengths:?}");
    let text = page.texts(".answer p:first-child").await.concat();
    assert_eq!(text, words.replace(['*', '`'], ""));
    page.reload().await;
    page.wait_for_words("The end.").await;
    assert_eq!(page.texts(".answer .part").await, parts);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn an_answer_with_thousands_of_block_quotes_is_shown() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Quote").await;
    let asked = model.asked().await;
    for _ in 0..500 {
        asked.say(&"> ".repeat(10));
    }
    asked.say("a\n\nThe end.");
    asked.end();
    for _ in 0..2 {
        page.wait_for_words("The end.").await;
        page.wait_until_idle().await;
        let text = page.texts(".answer").await.concat();
        assert_eq!(text.matches('>').count(), 5_000 - 8);
        let depth = page.run("return document.querySelectorAll('.answer blockquote').length").await;
        assert_eq!(depth, Value::from(8));
        page.reload().await;
    }
    page.close().await;
}
