//! The limits in the guide are the actual ones.

use std::time::Duration;

use turnstream_mcp::Limits;

/// The default of a limit in the guide's table.
fn documented(limit: &str) -> &'static str {
    let guide = include_str!("../src/guide/mcp.md");
    let row = guide.lines().find(|line| line.starts_with(&format!("| {limit} | ")));
    row.unwrap_or_else(|| panic!("no row `{limit}`")).split('|').nth(2).unwrap().trim()
}

fn format_time(time: Duration) -> String {
    match time.as_secs() {
        secs if secs > 0 && secs.is_multiple_of(60) => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    }
}

fn format_bytes(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

#[test]
fn the_guide_lists_the_actual_limits() {
    let limits = Limits::default();
    for (limit, actual) in [
        ("size of a message", format_bytes(limits.message_bytes)),
        ("total size of all names, schemas and descriptions", format_bytes(limits.schema_bytes)),
        ("size of an image or file in a result", format_bytes(limits.media_bytes)),
        ("size of the standard error output that is kept", format_bytes(limits.stderr_bytes)),
        ("time until a connection is ready", format_time(limits.start)),
        ("time for a request other than a tool call", format_time(limits.request)),
        ("time without progress during a call", format_time(limits.call)),
        ("total time for a call", format_time(limits.call_total)),
        ("how long a user may take to answer", format_time(limits.input)),
        ("time for a process to exit", format_time(limits.close)),
        ("pages per list", limits.pages.to_string()),
        ("questions during a call", limits.input_rounds.to_string()),
    ] {
        assert_eq!(documented(limit), actual, "{limit}");
    }
    assert_eq!((documented("tools per server"), limits.tools), ("1,000", 1_000));
    // The number of JSON values is tested by `hostile`.
    assert!(documented("JSON values in a message").starts_with("200,000, except"));
}
