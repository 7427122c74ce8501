use proc_macro2::TokenStream;

use crate::expand;

/// Expands a macro, and returns the text at which it reports an error, and the error.
fn refused(
    expand: fn(TokenStream, TokenStream) -> syn::Result<TokenStream>,
    settings: &str,
    item: &str,
) -> (String, String) {
    let (settings, item) = (settings.parse().unwrap(), item.parse().unwrap());
    let error = expand(settings, item).expect_err("it is refused");
    (error.span().source_text().unwrap_or_default(), error.to_string())
}

#[track_caller]
fn tool_is_refused(item: &str, at: &str, message: &str) {
    let (found_at, found) = refused(expand::tool, "", item);
    assert!(found.contains(message), "{found}");
    assert_eq!(found_at, at, "{found}");
}

#[track_caller]
fn tools_are_refused(block: &str, at: &str, message: &str) {
    let (found_at, found) = refused(|settings, item| expand::tools(&settings, item), "", block);
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
        ("read_only", "read_only", "`dry_run_support`"),
    ] {
        let (found_at, found) = refused(expand::tool, settings, item);
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
    tools_are_refused("impl<T> Notes<T> {}", "<T>", "a generic type");
    tools_are_refused("impl Add for Notes {}", "Add", "not for those of a trait");
    tools_are_refused("fn add() {}", "fn", "put `#[tool]` on a function");
    let (_, found) =
        refused(|settings, item| expand::tools(&settings, item), "idempotent", "impl Notes {}");
    assert!(found.contains("`#[tools]` has no settings"), "{found}");
}
