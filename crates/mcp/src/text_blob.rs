//! Detects text in the `blob` of a resource. Many servers send each file as base64, even if its
//! content is text that a model can read.

/// The media types of text, apart from `text/…` and types that end with one of the
/// [`TEXT_SUFFIXES`]. Other types are text if their bytes are UTF-8.
const TEXT_TYPES: &[&str] = &[
    "application/csv",
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/sql",
    "application/toml",
    "application/typescript",
    "application/x-httpd-php",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-perl",
    "application/x-php",
    "application/x-python",
    "application/x-ruby",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
];

/// The suffixes of media types that are text (RFC 6838, section 4.2.8).
const TEXT_SUFFIXES: &[&str] = &["+csv", "+json", "+xml", "+yaml"];

/// The first bytes of files that may consist of ASCII only, but are not text.
const SIGNATURES: &[(&str, &[u8])] =
    &[("application/pdf", b"%PDF-"), ("image/gif", b"GIF8"), ("image/webp", b"RIFF")];

/// Returns a media type in lowercase and without its parameters, such as `charset`.
pub(crate) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the text of a file that has a text type, or whose bytes are UTF-8 without NUL. Returns
/// `None` if the file is not text. `media_type` must not have parameters.
pub(crate) fn text_of_file(media_type: &str, bytes: &[u8]) -> Option<String> {
    let is_other_file = |(of_type, signature): &(&str, &[u8])| {
        media_type == *of_type && bytes.starts_with(signature)
    };
    if SIGNATURES.iter().any(is_other_file) {
        return None;
    }
    text_of_bytes(bytes, is_text_type(media_type))
}

/// Returns the text of a file that has a text type. Returns `None` if the type is not a text type,
/// or the bytes are not text.
pub(crate) fn text_of_text_type(media_type: &str, bytes: &[u8]) -> Option<String> {
    is_text_type(media_type).then(|| text_of_bytes(bytes, true)).flatten()
}

fn is_text_type(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || TEXT_TYPES.contains(&media_type)
        || TEXT_SUFFIXES.iter().any(|suffix| media_type.ends_with(suffix))
}

/// Decodes UTF-8, or UTF-16 that begins with a byte order mark. If the file is known to be text,
/// other bytes are replaced, as those of an older encoding.
fn text_of_bytes(bytes: &[u8], is_text: bool) -> Option<String> {
    let text = match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => std::str::from_utf8(rest).ok()?.to_owned(),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) if is_text => String::from_utf8_lossy(bytes).into_owned(),
            Err(_) => return None,
        },
    };
    (!text.contains('\0')).then_some(text)
}

fn utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    String::from_utf16(&pairs.iter().map(|pair| unit(*pair)).collect::<Vec<_>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_text_types_and_utf8_bytes_are_text() {
        for (media_type, bytes, text) in [
            ("text/plain", &b"hello"[..], Some("hello")),
            ("application/octet-stream", "grüße".as_bytes(), Some("grüße")),
            ("application/x-unheard-of", b"key = 1", Some("key = 1")),
            ("image/svg+xml", b"<svg/>", Some("<svg/>")),
            ("text/plain", b"caf\xE9", Some("caf\u{FFFD}")),
            ("text/plain", b"\xEF\xBB\xBFhello", Some("hello")),
            ("text/plain", b"\xFF\xFEh\0i\0", Some("hi")),
            ("text/plain", b"\xFE\xFF\0h\0i", Some("hi")),
            ("text/plain", b"a\0b", None),
            ("application/octet-stream", b"\x89PNG", None),
            ("application/octet-stream", b"a\0b", None),
            ("application/pdf", b"%PDF-1.4 all ASCII", None),
            ("image/gif", b"GIF89a", None),
            ("image/png", b"404 not found", Some("404 not found")),
        ] {
            assert_eq!(text_of_file(media_type, bytes).as_deref(), text, "{media_type} {bytes:?}");
        }
    }

    #[test]
    fn only_the_type_decides_for_media() {
        assert_eq!(text_of_text_type("image/svg+xml", b"<svg/>").as_deref(), Some("<svg/>"));
        assert_eq!(text_of_text_type("image/png", b"<svg/>"), None);
    }

    #[test]
    fn parameters_and_case_of_a_media_type_are_ignored() {
        assert_eq!(essence("Text/Markdown; charset=utf-8"), "text/markdown");
    }
}
