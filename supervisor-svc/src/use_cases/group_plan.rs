//! The plan of a group: a spawn as a template, and the items whose values replace its placeholders.

use std::collections::{BTreeMap, HashSet};

use prost::Message as _;
use troupe_proto::{
    store::v1::GroupPlan,
    supervisor::v1::{GroupItem, SpawnAgentRequest, input_item::Item},
};

/// Maximum number of variables of an item.
pub(crate) const VARIABLES: usize = 32;
/// Maximum size of the variables of an item, in bytes.
pub(crate) const VARIABLES_BYTES: usize = 64 * 1_024;
/// Maximum length of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 128;
/// Maximum size of the template with all items, in bytes.
pub(crate) const PLAN_BYTES: usize = 12 * 1_024 * 1_024;

/// Checks the template and the items of a group.
///
/// # Errors
/// The field, and the problem with its remedy.
pub fn check(plan: &GroupPlan) -> Result<(), (&'static str, String)> {
    let template = plan.template.clone().unwrap_or_default();
    let forbidden = [
        ("request_id", !template.request_id.is_empty()),
        ("session_id", !template.session_id.is_empty()),
        ("parent_thread_id", !template.parent_thread_id.is_empty()),
        ("alias", !template.alias.is_empty()),
        ("on_limit", template.on_limit != 0),
        ("auto_route", template.auto_route),
        ("return_token", template.return_token),
    ];
    if let Some((name, _)) = forbidden.iter().find(|(_, is_set)| *is_set) {
        return Err((
            "template",
            format!("the template must leave out {name}; a group sets it for each item"),
        ));
    }
    if plan.encoded_len() > PLAN_BYTES {
        let text = format!(
            "template and items have {} bytes; at most {PLAN_BYTES} are allowed",
            plan.encoded_len()
        );
        return Err(("items", text));
    }
    let mut keys = HashSet::new();
    for (index, item) in (0_u32..).zip(&plan.items) {
        let bad = |text: String| Err(("items", format!("item {index}: {text}")));
        let key = item.key.as_str();
        if key.trim().is_empty() || key.len() > KEY_BYTES || key.contains(char::is_control) {
            return bad(format!("its key must have 1 to {KEY_BYTES} bytes on one line"));
        }
        if !keys.insert(key) {
            return bad(format!("the key \"{key}\" occurs twice; give each item its own key"));
        }
        if item.variables.len() > VARIABLES {
            return bad(format!(
                "{} variables; at most {VARIABLES} are allowed",
                item.variables.len()
            ));
        }
        let bytes: usize = item
            .variables
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > VARIABLES_BYTES {
            return bad(format!(
                "its variables have {bytes} bytes; at most {VARIABLES_BYTES} are allowed"
            ));
        }
        if let Some(name) = item.variables.keys().find(|name| !is_name(name)) {
            return bad(format!(
                "\"{}\" cannot be the name of a variable; use letters, digits and \"_\"",
                name.escape_debug()
            ));
        }
        if let Err(problem) = request(plan, index) {
            return bad(problem);
        }
    }
    Ok(())
}

/// Returns the spawn of an item.
///
/// # Errors
/// The problem with a placeholder.
pub fn request(plan: &GroupPlan, index: u32) -> Result<SpawnAgentRequest, String> {
    let mut request = plan.template.clone().unwrap_or_default();
    let no_item = GroupItem::default();
    let item = plan.items.get(index as usize).unwrap_or(&no_item);
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    let number = index.to_string();
    values.insert("key", &item.key);
    values.insert("index", &number);
    values.extend(
        item.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let fill = |text: &mut String| -> Result<(), String> {
        *text = replace_placeholders(text, &values)?;
        Ok(())
    };
    if item.message.is_empty() {
        if let Some(message) = &mut request.message {
            fill(message)?;
        }
        for piece in &mut request.items {
            if let Some(Item::Text(text)) = &mut piece.item {
                fill(text)?;
            }
        }
    } else {
        request.message = Some(item.message.clone());
        request.items.clear();
    }
    if request.label.is_empty() {
        request.label.clone_from(&item.key);
    } else {
        fill(&mut request.label)?;
    }
    if let Some(note) = &mut request.thread_note {
        fill(note)?;
    }
    fill(&mut request.objective)?;
    fill(&mut request.definition_of_done)?;
    fill(&mut request.working_directory)?;
    Ok(request)
}

/// Replaces `{name}` by the value of `name`, and `{{` by a brace. Other braces stay.
fn replace_placeholders(text: &str, values: &BTreeMap<&str, &str>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('{') {
            filled.push('{');
            rest = after;
            continue;
        }
        match rest.split_once('}').filter(|(name, _)| is_name(name)) {
            None => filled.push('{'),
            Some((name, after)) => {
                let Some(value) = values.get(name) else {
                    let known: Vec<&str> = values.keys().copied().collect();
                    return Err(format!(
                        "unknown placeholder \"{{{name}}}\"; the item has {}; write \"{{{{\" for a brace",
                        known.join(", ")
                    ));
                };
                filled.push_str(value);
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit()) && text.len() <= 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(message: &str, items: &[(&str, &str)]) -> GroupPlan {
        let item = |(key, path): &(&str, &str)| GroupItem {
            key: (*key).to_owned(),
            variables: [("path".to_owned(), (*path).to_owned())].into_iter().collect(),
            message: String::new(),
        };
        GroupPlan {
            template: Some(SpawnAgentRequest {
                message: Some(message.to_owned()),
                ..SpawnAgentRequest::default()
            }),
            items: items.iter().map(item).collect(),
            traceparent: String::new(),
        }
    }

    #[test]
    fn placeholders_are_replaced() {
        for (text, expected) in [
            ("Review {path}.", "Review a.rs."),
            ("{key} {index} {path}", "first 0 a.rs"),
            ("{\"a\": {}} {{path} { x }", "{\"a\": {}} {path} { x }"),
            ("{", "{"),
        ] {
            let request = request(&plan(text, &[("first", "a.rs")]), 0).unwrap();
            assert_eq!(request.message.as_deref(), Some(expected), "{text}");
            assert_eq!(request.label, "first");
        }
    }

    #[test]
    fn message_of_item_replaces_the_template() {
        let mut plan = plan("Review {path}.", &[("a", "b")]);
        plan.items[0].message = String::from("Look at {this}.");
        assert_eq!(request(&plan, 0).unwrap().message.as_deref(), Some("Look at {this}."));
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let problem = |plan: &GroupPlan| check(plan).unwrap_err().1;
        let text = problem(&plan("Review {pth}.", &[("a", "b")]));
        assert_eq!(
            text,
            "item 0: unknown placeholder \"{pth}\"; the item has index, key, path; write \"{{\" for a brace"
        );
        assert!(problem(&plan("x", &[("a", "b"), ("a", "c")])).contains("item 1: the key \"a\" occurs twice"));
        assert!(problem(&plan("x", &[("a\n", "b")])).contains("on one line"));
        assert!(problem(&plan("x", &[(" ", "b")])).contains("1 to 128 bytes"));
        let mut odd = plan("x", &[("a", "b")]);
        odd.items[0].variables.insert(String::from("a b"), String::new());
        assert!(problem(&odd).contains("cannot be the name of a variable"));
        let mut with_alias = plan("x", &[("a", "b")]);
        with_alias.template.as_mut().unwrap().alias = String::from("scout");
        assert!(problem(&with_alias).contains("must leave out alias"));
    }
}
