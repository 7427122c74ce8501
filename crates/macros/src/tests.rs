use proc_macro2::TokenStream;

use crate::expand;

/// Returns the text at which the first error of an expansion is reported, and the error.
fn error(expanded: expand::Expansion) -> (String, String) {
    let error = expanded.error.expect("it is refused");
    (error.span().source_text().unwrap_or_default(), error.to_string())
}

#[track_caller]
fn tool_is_refused(item: &str, at: &str, message: &str) {
    let (found_at, found) = error(expand::tool(TokenStream::new(), item.parse().unwrap()));
    assert!(found.contains(message), "{found}");
    assert_eq!(found_at, at, "{found}");
}

#[track_caller]
fn tools_are_refused(block: &str, at: &str, message: &str) {
    let (found_at, found) = error(expand::tools(&TokenStream::new(), block.parse().unwrap()));
    assert!(found.contains(message), "{found}");
    assert_eq!(found_at, at, "{found}");
}

#[test]
fn a_function_that_cannot_be_a_tool_is_refused_at_the_part_that_is_wrong() {
    tool_is_refused("async fn add(a: i64) {}", "add", "a tool needs a doc comment");
    tool_is_refused("/// \nasync fn add() {}", "add", "a tool needs a doc comment");
    tool_is_refused(
        "/// Adds.\nasync fn add(text: &str) {}",
        "&str",
        "take an owned value, such as `String`",
    );
    tool_is_refused(
        "/// Adds.\nfn add(texts: Vec<&'static str>) {}",
        "&'static str",
        "a reference",
    );
    tool_is_refused(
        "/// Adds.\nfn add(it: impl Into<String>) {}",
        "impl Into<String>",
        "`impl Trait`",
    );
    tool_is_refused("/// Adds.\nfn add<T>(it: T) {}", "<T>", "no type parameters");
    tool_is_refused("/// Adds.\nfn add<'a>(cx: &'a ToolContext) {}", "<'a>", "no named lifetimes");
    tool_is_refused(
        "/// Adds.\nfn add(cx: &mut ToolContext) {}",
        "&mut ToolContext",
        "or `&ToolContext`",
    );
    tool_is_refused("/// Adds.\nfn add() -> Option<&str> {}", "&str", "cannot be a reference");
    tool_is_refused("/// Adds.\nfn add();", "add", "has a body");
    tool_is_refused(
        "/// Adds.\nfn add(#[default] #[default = 3] a: i64) {}",
        "#[default = 3]",
        "given twice",
    );
    tool_is_refused(
        "/// Adds.\nfn add(#[default = Self::A] a: i64) {}",
        "Self::A",
        "in place of `Self`",
    );
    tool_is_refused(
        "/// Adds.\nfn add(#[cfg(any())] a: i64) {}",
        "#[cfg(any())]",
        "the function can",
    );
    tool_is_refused("/// Adds.\nfn add((a, b): (i64, i64)) {}", "(a, b)", "inside the function");
    tool_is_refused("/// Adds.\nfn add(_: i64) {}", "_", "replace `_`");
    tool_is_refused(
        "/// Adds.\nfn add(cx: ToolContext, other: &tool::ToolContext) {}",
        "cx: ToolContext, other: &tool::ToolContext",
        "remove the second `ToolContext`",
    );
    tool_is_refused("/// Adds.\nfn add(&self) {}", "&self", "put `#[tools]` on the `impl` block");
    tool_is_refused("/// Adds.\nunsafe fn add() {}", "unsafe", "an `unsafe fn`");
    tool_is_refused("/// Adds.\nconst fn add() {}", "const", "a `const fn`");
    tool_is_refused("/// Adds.\nextern \"C\" fn add() {}", "extern \"C\"", "an `extern fn`");
    tool_is_refused(
        "/// Adds.\nfn größe() {}",
        "größe",
        "`#[tool(name = \"…\")]` sets another name",
    );
    let long = "n".repeat(65);
    tool_is_refused(&format!("/// Adds.\nfn {long}() {{}}"), &long, "1 to 64 ASCII letters");
    tool_is_refused("struct Add;", "struct", "`#[tool]` is for functions");
    tool_is_refused("/// Adds.\nfn add(other: Self) {}", "Self", "in place of `Self`");
    tool_is_refused("/// Adds.\nfn add(#[default(1, 2)] a: i64) {}", ",", "unexpected token");
}

#[test]
fn a_setting_that_no_tool_has_is_refused() {
    let item = "/// Adds.\nfn add() {}";
    for (settings, at, message) in [
        ("idempotnet", "idempotnet", "`idempotent`"),
        ("idempotent, idempotent", "idempotent", "given twice"),
        ("name = \"a b\"", "\"a b\"", "vendors refuse the name `a b`"),
        ("name = \"\"", "\"\"", "vendors refuse the name ``"),
        ("name", "", "expected `=`"),
        ("idempotent = true", "idempotent", "takes no value"),
        ("description = \"a\"", "description", "the doc comment"),
        ("read_only", "read_only", "`dry_run_support`"),
    ] {
        let (found_at, found) =
            error(expand::tool(settings.parse().unwrap(), item.parse().unwrap()));
        assert!(found.contains(message), "{settings}: {found}");
        assert_eq!(found_at, at, "{settings}: {found}");
    }
}

#[test]
fn a_block_whose_methods_cannot_be_tools_is_refused_at_the_part_that_is_wrong() {
    let method = |signature: &str| format!("impl Notes {{ /// Adds.\n#[tool] {signature} {{}} }}");
    tools_are_refused(&method("fn add(&mut self)"), "&mut self", "in a `Mutex`");
    tools_are_refused(&method("fn add(self)"), "self", "so it takes `&self`");
    tools_are_refused(&method("fn add(a: i64)"), "add", "outside the block");
    tools_are_refused(
        "impl Notes { #[tool] fn add(&self) {} }",
        "add",
        "a tool needs a doc comment",
    );
    tools_are_refused(
        "impl Notes { /// Adds.\n#[tool = 1] fn add(&self) {} }",
        "tool = 1",
        "settings are in parentheses",
    );
    tools_are_refused(
        "impl Notes { fn add(&self) {} }",
        "Notes",
        "none of these methods is a tool",
    );
    tools_are_refused(&method("fn add(self: &mut Self)"), "self: &mut Self", "in a `Mutex`");
    tools_are_refused(
        "impl Notes { /// Adds.\n#[tool] #[turnstream::tool] fn add(&self) {} }",
        "#[turnstream::tool]",
        "given twice",
    );
    tools_are_refused("impl Notes<'_> {}", "'_", "no lifetime but `'static`");
    tools_are_refused("impl<T> Notes<T> {}", "<T>", "a generic type");
    tools_are_refused("impl Add for Notes {}", "Add", "not for those of a trait");
    tools_are_refused("fn add() {}", "fn", "put `#[tool]` on a function");
    let (_, found) =
        error(expand::tools(&"idempotent".parse().unwrap(), "impl Notes {}".parse().unwrap()));
    assert!(found.contains("`#[tools]` has no settings"), "{found}");
}

#[test]
fn all_errors_are_reported_together() {
    let block =
        "impl Notes { #[tool] fn a(&self) {} /// B.\n#[tool] fn b(&self, c: &str, _: u8) {} }";
    let error = expand::tools(&TokenStream::new(), block.parse().unwrap()).error.unwrap();
    let errors: Vec<String> = error.into_iter().map(|error| error.to_string()).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn an_item_that_cannot_be_a_tool_stays_without_the_attributes_of_its_parameters() {
    let item = "/// A.\nfn a(#[default] #[serde(rename = \"c\")] /** D */ b: &str) {}";
    let expanded =
        expand::tool(TokenStream::new(), item.parse().unwrap()).into_tokens().to_string();
    assert!(expanded.contains("fn a (b : & str)"), "{expanded}");
    assert!(expanded.contains("fn a_tool ()"), "{expanded}");
}
