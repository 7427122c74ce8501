//! Files that are part of the program.

use axum::Router;
use axum::http::header;
use axum::routing::get;

/// Returns a route for each file of a page that is part of the program, with its path and its
/// content, as `include_bytes!` returns it. Each response has the header `cache-control: no-cache`,
/// because the next version of the program may have other files.
///
/// The extension of the path selects the content type. A path without an extension is a page of
/// HTML; a file with an unknown extension is `application/octet-stream`.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream_server::{ChatServer, static_files};
///
/// let page = static_files(&[
///     ("/", b"<!doctype html><script src=main.js></script>"),
///     ("/main.js", b""),
/// ]);
/// let server = ChatServer::new(Agent::new(Scripted::new(["Hello!"]))).with_routes(page);
/// # drop(server);
/// ```
///
/// # Panics
///
/// Panics if two files have the same path, or if a path is not a valid route of axum.
pub fn static_files<S: Clone + Send + Sync + 'static>(
    files: &[(&'static str, &'static [u8])],
) -> Router<S> {
    let mut routes = Router::new();
    for &(path, content) in files {
        let headers =
            [(header::CONTENT_TYPE, content_type(path)), (header::CACHE_CONTROL, "no-cache")];
        routes = routes.route(path, get(async move || (headers, content)));
    }
    routes
}

fn content_type(path: &str) -> &'static str {
    let file = path.rsplit('/').next().unwrap_or_default();
    match file.rsplit_once('.').map(|(_, extension)| extension) {
        None | Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some(_) => "application/octet-stream",
    }
}
