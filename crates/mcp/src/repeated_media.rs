//! Finds the content blocks that a result contains twice. Many servers repeat an image or audio as
//! base64 text in `structuredContent`, or in a text that contains the same JSON. The model receives
//! the media once, and not the text, which it cannot read.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The minimum length of base64 that is searched for within a longer text.
const MIN_LEN_WITHIN_TEXT: usize = 64;

/// The content blocks that the model receives.
pub(crate) struct SentBlocks<'a> {
    blocks: Vec<&'a Value>,
    /// The base64 of the media in the blocks, without padding.
    base64: Vec<&'a str>,
}

impl<'a> SentBlocks<'a> {
    pub(crate) fn new(blocks: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut sent = Self { blocks: Vec::new(), base64: Vec::new() };
        blocks.into_iter().for_each(|block| sent.add(block));
        sent
    }

    pub(crate) fn add(&mut self, block: &'a Value) {
        self.blocks.push(block);
        let data = [&block["data"], &block["resource"]["blob"]].into_iter();
        let base64 = data.filter_map(Value::as_str).map(without_padding);
        self.base64.extend(base64.filter(|data| !data.is_empty()));
    }

    /// Returns whether the block's medium is part of a block that has been added.
    pub(crate) fn contains_medium(&self, block: &Value) -> bool {
        block["data"].as_str().is_some_and(|data| self.base64.contains(&without_padding(data)))
    }

    /// Returns JSON without the repeated blocks and media. Returns `None` if the JSON contains
    /// nothing else.
    pub(crate) fn remove_from_json(&self, json: &Value) -> Option<Value> {
        let rest = self.rest_of(json);
        rest.filter(|rest| rest == json || has_content(rest))
    }

    /// Returns a text without the repeated media. Returns `None` if the text contains nothing else.
    pub(crate) fn remove_from_text<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let repeats =
            |data: &&str| data.len() >= MIN_LEN_WITHIN_TEXT && text.contains(without_padding(data));
        if !self.base64.iter().any(repeats) {
            return Some(Cow::Borrowed(text));
        }
        match serde_json::from_str::<Value>(text) {
            Ok(json @ (Value::Array(_) | Value::Object(_))) => {
                Some(Cow::Owned(self.remove_from_json(&json)?.to_string()))
            }
            _ => self.rest_of_text(text),
        }
    }

    fn rest_of(&self, json: &Value) -> Option<Value> {
        match json {
            Value::String(text) => Some(self.rest_of_text(text)?.into()),
            Value::Array(values) => {
                let rest: Vec<Value> = values.iter().filter_map(|it| self.rest_of(it)).collect();
                (values.is_empty() || !rest.is_empty()).then(|| rest.into())
            }
            Value::Object(_) if self.blocks.iter().any(|block| is_same_block(json, block)) => None,
            Value::Object(fields) => {
                let rest: Map<String, Value> = fields
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), self.rest_of(value)?)))
                    .collect();
                let is_repeated_block = rest.len() < fields.len() && is_media_block(fields);
                let is_kept = fields.is_empty() || !rest.is_empty() && !is_repeated_block;
                is_kept.then(|| rest.into())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(json.clone()),
        }
    }

    fn rest_of_text<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let base64 = match text.split_once(";base64,") {
            Some((prefix, base64)) if prefix.starts_with("data:") => base64,
            _ => text,
        };
        if !text.is_empty() && self.base64.contains(&without_padding(base64)) {
            return None;
        }
        let mut rest = Cow::Borrowed(text);
        for data in self.base64.iter().filter(|data| data.len() >= MIN_LEN_WITHIN_TEXT) {
            if rest.contains(data) {
                let padded = [format!("{data}=="), format!("{data}=")];
                let found = padded.iter().map(String::as_str).find(|it| rest.contains(it));
                rest = Cow::Owned(rest.replace(found.unwrap_or(data), "…"));
            }
        }
        Some(rest)
    }
}

/// Returns the images and audio in JSON that have the form of content blocks.
pub(crate) fn media_blocks(json: &Value) -> Vec<&Value> {
    match json {
        Value::Object(fields) => {
            let is_block = matches!(json["type"].as_str(), Some("image" | "audio"))
                && json["mimeType"].is_string()
                && json["data"].is_string();
            match is_block {
                true => vec![json],
                false => fields.values().flat_map(media_blocks).collect(),
            }
        }
        Value::Array(values) => values.iter().flat_map(media_blocks).collect(),
        _ => Vec::new(),
    }
}

/// Returns whether the fields are those of a content block with media, or of a resource's contents.
/// Without its data, such a block describes only the repeated medium.
fn is_media_block(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("type").and_then(Value::as_str);
    matches!(kind, Some("image" | "audio" | "resource")) || fields.contains_key("blob")
}

/// Returns whether two blocks differ only in fields that are `null`.
fn is_same_block(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let has_fields_of = |one: &Map<String, Value>, other: &Map<String, Value>| {
        other.iter().all(|(name, value)| value.is_null() || one.get(name) == Some(value))
    };
    has_fields_of(one, other) && has_fields_of(other, one)
}

fn has_content(json: &Value) -> bool {
    match json {
        Value::Null => false,
        Value::Array(values) => values.iter().any(has_content),
        Value::Object(fields) => fields.values().any(has_content),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn without_padding(base64: &str) -> &str {
    base64.trim_end_matches('=')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data() -> String {
        "QUJD".repeat(50) + "QQ=="
    }

    fn image() -> Value {
        json!({ "type": "image", "mimeType": "image/png", "data": data() })
    }

    #[test]
    fn json_that_consists_of_repeated_media_has_no_rest() {
        let (image, data) = (image(), data());
        let unpadded = data.trim_end_matches('=');
        let resource = json!({ "uri": "file:///a", "mimeType": "audio/wav", "blob": data });
        let sent = SentBlocks::new([&image]);
        for repeated in [
            image.clone(),
            json!({ "result": [image] }),
            json!({ "result": image, "error": null }),
            json!({ "result": [{ "type": "image", "data": data, "annotations": null, "mimeType": "image/png" }] }),
            json!({ "type": "resource", "resource": resource }),
            json!([data, unpadded, format!("data:image/png;base64,{data}")]),
        ] {
            assert_eq!(sent.remove_from_json(&repeated), None, "{repeated}");
            assert_eq!(sent.remove_from_text(&repeated.to_string()), None, "{repeated}");
        }
    }

    #[test]
    fn other_fields_beside_repeated_media_are_kept() {
        let (image, data) = (image(), data());
        let sent = SentBlocks::new([&image]);
        for (json, rest) in [
            (json!({ "result": [image, "a cat"] }), json!({ "result": ["a cat"] })),
            (json!({ "image": data, "width": 3, "tags": [] }), json!({ "width": 3, "tags": [] })),
            (
                json!({ "markdown": format!("![cat](data:image/png;base64,{data}) A cat") }),
                json!({ "markdown": "![cat](data:image/png;base64,…) A cat" }),
            ),
            (json!({ "degrees": null }), json!({ "degrees": null })),
            (json!({ "other": "QUJD" }), json!({ "other": "QUJD" })),
            (json!({}), json!({})),
        ] {
            assert_eq!(sent.remove_from_json(&json), Some(rest), "{json}");
        }
        let text = format!("It is {data}.");
        assert_eq!(sent.remove_from_text(&text).as_deref(), Some("It is …."));
        assert_eq!(sent.remove_from_text("QUJD").as_deref(), Some("QUJD"));
    }

    #[test]
    fn a_repeated_link_is_removed_and_another_one_is_kept() {
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        let copy =
            json!({ "type": "resource_link", "uri": "file:///a", "name": "a", "size": null });
        let other = json!({ "type": "resource_link", "uri": "file:///b", "name": "b" });
        let sent = SentBlocks::new([&link]);
        assert_eq!(sent.remove_from_json(&json!({ "result": [copy] })), None);
        let rest = json!({ "result": [other] });
        assert_eq!(sent.remove_from_json(&json!({ "result": [link, other] })), Some(rest));
    }

    #[test]
    fn blocks_are_found_at_any_depth() {
        let image = image();
        let nested = json!({ "a": [{ "b": image }, { "type": "image", "url": "c" }] });
        assert_eq!(media_blocks(&nested), [&image]);
    }
}
