//! Converts input to and from the formats that programs and models use.

use serde::Deserialize;
use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Input, InputItem, NamedPath, input_item::Item};

/// An input item in JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum JsonItem {
    Text { text: String },
    LocalImage { path: String },
    Skill { name: String, path: String },
    Mention { name: String, path: String },
}

impl From<JsonItem> for InputItem {
    fn from(item: JsonItem) -> Self {
        let item = match item {
            JsonItem::Text { text } => Item::Text(text),
            JsonItem::LocalImage { path } => Item::LocalImage(path),
            JsonItem::Skill { name, path } => Item::Skill(NamedPath { name, path }),
            JsonItem::Mention { name, path } => Item::Mention(NamedPath { name, path }),
        };
        Self { item: Some(item) }
    }
}

/// Returns the items of an input in the JSON form of [`JsonItem`]. Unknown kinds of items from a newer release are
/// omitted.
pub(crate) fn to_json(input: &Input) -> Vec<Value> {
    items(input)
        .map(|item| match item {
            Item::Text(text) => json!({"type": "text", "text": text}),
            Item::LocalImage(path) => json!({"type": "local_image", "path": path}),
            Item::Skill(skill) => json!({"type": "skill", "name": skill.name, "path": skill.path}),
            Item::Mention(mention) => json!({"type": "mention", "name": mention.name, "path": mention.path}),
        })
        .collect()
}

/// Returns an input as text, with one line per item.
pub(crate) fn to_text(input: &Input) -> String {
    items(input).map(item_to_text).collect::<Vec<_>>().join("\n")
}

/// Returns an input item as text.
pub(crate) fn item_to_text(item: &Item) -> String {
    match item {
        Item::Text(text) => text.clone(),
        Item::LocalImage(path) => format!("[local_image:{path}]"),
        Item::Skill(NamedPath { name, path }) => format!("[skill:${name}]({path})"),
        Item::Mention(NamedPath { name, path }) => format!("[mention:${name}]({path})"),
    }
}

fn items(input: &Input) -> impl Iterator<Item = &Item> {
    input.items.iter().filter_map(|piece| piece.item.as_ref())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_input_is_unchanged() {
        let written = json!([
            {"type": "text", "text": "look"},
            {"type": "local_image", "path": "/a.png"},
            {"type": "skill", "name": "lint", "path": "/s"},
            {"type": "mention", "name": "file", "path": "/f"},
        ]);
        let read: Vec<JsonItem> = serde_json::from_value(written.clone()).unwrap();
        let input = Input {
            items: read.into_iter().map(Into::into).collect(),
            ..Input::default()
        };
        assert_eq!(Value::Array(to_json(&input)), written);
        assert_eq!(
            to_text(&input),
            "look\n[local_image:/a.png]\n[skill:$lint](/s)\n[mention:$file](/f)"
        );
    }
}
