//! Messages of callers as inputs of threads, and texts of threads as parts of messages.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Input, InputItem, input_item::Item};

use crate::{
    error::{Error, Kind, Result, cut},
    json,
    pb::{Message, Part, Role, part::Content},
};

/// The media types that agents accept.
pub(crate) const INPUT_MODES: &[&str] = &["text/plain", "text/markdown", "application/json"];
/// The media types that agents produce.
pub(crate) const OUTPUT_MODES: &[&str] = &["text/plain", "application/json"];

/// Maximum number of parts of a message.
pub(crate) const MAX_PARTS: usize = 60;
/// Maximum size of all texts of a message in bytes. An input may have 1 MiB.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024 - 4 * 1024;
/// Maximum size of an id of a caller in bytes.
pub(crate) const MAX_ID_BYTES: usize = 128;
/// Start of the line that shows an agent the id of its message.
const ID_LINE: &str = "A2A message ";

/// Checks the fields of a message that do not depend on the task.
///
/// # Errors
///
/// A field is missing or invalid.
pub(crate) fn check(message: &Message) -> Result<()> {
    let id = &message.message_id;
    if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
        return Err(Error::invalid_params(
            "message.messageId",
            format!("messageId must have 1 to {MAX_ID_BYTES} bytes on one line"),
        ));
    }
    if message.role() != Role::User {
        return Err(Error::invalid_params(
            "message.role",
            "the role of a client's message must be ROLE_USER",
        ));
    }
    if message.parts.is_empty() || message.parts.len() > MAX_PARTS {
        return Err(Error::invalid_params(
            "message.parts",
            format!(
                "the message has {} parts; expected 1 to {MAX_PARTS}",
                message.parts.len()
            ),
        ));
    }
    Ok(())
}

/// Returns the items of the input for a message.
///
/// # Errors
///
/// A part is not supported, or the message is empty or too large.
pub(crate) fn to_items(message: &Message, show_id: bool) -> Result<Vec<InputItem>> {
    let mut texts = Vec::new();
    for (index, part) in message.parts.iter().enumerate() {
        texts.push(to_text(part, index)?);
    }
    let size: usize = texts.iter().map(String::len).sum();
    if size > MAX_TEXT_BYTES {
        return Err(Error::new(
            Kind::TooLarge,
            format!("the message has {size} bytes of text; at most {MAX_TEXT_BYTES} are accepted"),
        ));
    }
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Err(Error::invalid_params("message.parts", "the message is empty"));
    }
    if show_id {
        // The id is the caller's text. Other characters could look like instructions.
        let fits = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        let id: String = message.message_id.chars().filter(|c| fits(*c)).collect();
        texts.push(format!("{ID_LINE}{id}"));
    }
    Ok(texts
        .into_iter()
        .map(|text| InputItem {
            item: Some(Item::Text(text)),
        })
        .collect())
}

/// Returns the text of a part.
fn to_text(part: &Part, index: usize) -> Result<String> {
    let media_type = part.media_type.split(';').next().unwrap_or_default().trim();
    let is_accepted = media_type.is_empty() || INPUT_MODES.contains(&media_type.to_ascii_lowercase().as_str());
    let unsupported = |what: &str| {
        Error::new(
            Kind::ContentTypeNotSupported,
            format!("{what}; the agent accepts {}", INPUT_MODES.join(", ")),
        )
    };
    if !is_accepted {
        return Err(unsupported(&format!("unsupported media type {:?}", cut(media_type))));
    }
    let field = format!("message.parts[{index}]");
    match &part.content {
        Some(Content::Text(text)) => Ok(text.clone()),
        Some(Content::Data(_)) => {
            let mut part = json::to_value(part)?;
            Ok(part.get_mut("data").map(Value::take).unwrap_or_default().to_string())
        }
        Some(Content::Url(url)) => {
            if url.len() > 2_048 || url.chars().any(char::is_control) {
                return Err(Error::invalid_params(
                    &field,
                    "the URL must have at most 2048 characters on one line",
                ));
            }
            Ok(match part.filename.is_empty() {
                true => url.clone(),
                false => format!("{}: {url}", cut(&part.filename)),
            })
        }
        Some(Content::Raw(raw)) => {
            if media_type.is_empty() {
                return Err(unsupported("a file without a media type is not supported"));
            }
            let text = std::str::from_utf8(raw).map_err(|_| unsupported("the file is not UTF-8"))?;
            Ok(match part.filename.is_empty() {
                true => text.to_owned(),
                false => format!("{}:\n{text}", cut(&part.filename)),
            })
        }
        None => Err(Error::invalid_params(&field, "the part has no content")),
    }
}

/// Returns the parts of a message for an input.
pub(crate) fn of_input(input: &Input, shows_ids: bool) -> Vec<Part> {
    let is_id = |text: &str| text.starts_with(ID_LINE) && !text.contains('\n');
    let mut texts: Vec<String> = input
        .items
        .iter()
        .filter_map(|item| match &item.item {
            Some(Item::Text(text)) => Some(text.clone()),
            Some(Item::LocalImage(path)) => Some(path.clone()),
            Some(Item::Skill(named) | Item::Mention(named)) => Some(named.name.clone()),
            None => None,
        })
        .collect();
    if shows_ids && texts.len() > 1 && texts.last().is_some_and(|text| is_id(text)) {
        texts.pop();
    }
    texts.into_iter().map(text).collect()
}

/// Returns a part with a text.
pub(crate) fn text(text: impl Into<String>) -> Part {
    Part {
        content: Some(Content::Text(text.into())),
        ..Part::default()
    }
}

/// Returns a part for a result: data if it is a JSON object or array.
pub(crate) fn result(document: String) -> Part {
    let looks_like_json = document.starts_with(['{', '[']);
    let data = looks_like_json
        .then(|| serde_json::from_str::<Value>(&document).ok())
        .flatten()
        .and_then(|value| json::parse::<Part>(json!({ "data": value, "mediaType": "application/json" })).ok());
    match data {
        Some(data) => data,
        None => Part {
            media_type: String::from("text/plain"),
            ..text(document)
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(parts: Vec<Part>) -> Message {
        Message {
            message_id: String::from("m-1"),
            role: Role::User.into(),
            parts,
            ..Message::default()
        }
    }

    fn texts(items: &[InputItem]) -> Vec<String> {
        let input = Input {
            items: items.to_vec(),
            ..Input::default()
        };
        let parts = of_input(&input, false);
        let text = |part: &Part| match &part.content {
            Some(Content::Text(text)) => text.clone(),
            _ => panic!(),
        };
        parts.iter().map(text).collect()
    }

    #[test]
    fn parts_become_texts() {
        let data = json::parse::<Part>(json!({"data": {"a": [1, null]}})).unwrap();
        let parts = vec![
            text("one"),
            data,
            Part {
                content: Some(Content::Raw("two".into())),
                filename: String::from("f.txt"),
                media_type: String::from("text/plain; charset=utf-8"),
                ..Part::default()
            },
        ];
        let items = to_items(&message(parts), true).unwrap();
        assert_eq!(
            texts(&items),
            ["one", r#"{"a":[1,null]}"#, "f.txt:\ntwo", "A2A message m-1"]
        );
        let input = Input {
            items,
            ..Input::default()
        };
        assert_eq!(of_input(&input, true).len(), 3, "the id is not part of the message");
    }

    #[test]
    fn unsupported_and_empty_parts_are_rejected() {
        let raw = |media_type: &str| Part {
            content: Some(Content::Raw("x".into())),
            media_type: media_type.to_owned(),
            ..Part::default()
        };
        for (part, kind) in [
            (raw("image/png"), Kind::ContentTypeNotSupported),
            (raw(""), Kind::ContentTypeNotSupported),
            (Part::default(), Kind::InvalidParams),
            (text(" \n"), Kind::InvalidParams),
            (text("x".repeat(2 * 1024 * 1024)), Kind::TooLarge),
        ] {
            assert_eq!(to_items(&message(vec![part]), false).unwrap_err().kind, kind);
        }
        assert!(check(&message(Vec::new())).is_err());
        let agent = Message {
            role: Role::Agent.into(),
            ..message(vec![text("x")])
        };
        assert!(check(&agent).is_err());
    }

    #[test]
    fn json_results_are_data() {
        assert!(matches!(
            result(String::from("{\"a\": 1}")).content,
            Some(Content::Data(_))
        ));
        assert!(matches!(result(String::from("{a}")).content, Some(Content::Text(_))));
        assert!(matches!(result(String::from("12")).content, Some(Content::Text(_))));
    }
}
