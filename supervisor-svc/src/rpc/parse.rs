//! Validation of requests. Every field has a bound, and an error names the field, the value and the remedy.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
    str::FromStr,
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::{
    codec::{WireEnum, parts::budget_from_request},
    store::Content,
};
use tonic::Status;
use tool_policy::{Layer, MatchMode};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};
use uuid::Uuid;

use crate::{
    convert::status::refused,
    domain::{
        content::{ContentRef, preview, truncate},
        event,
        ids::SessionId,
        rules::{
            approval::{APPROVAL_TIMEOUT, LONGEST_APPROVAL_TIMEOUT, SHORTEST_APPROVAL_TIMEOUT},
            authorize,
            input::{self, GivenInput},
        },
        settings::{Budget, approval_gate},
    },
    results::{DEFAULT_REPAIRS, MAX_REPAIRS, ResultSchema},
};

/// Maximum length of a label, a role or a persona, in bytes.
pub(crate) const NAME_BYTES: usize = 128;
/// Maximum length of an alias, in bytes.
pub(crate) const ALIAS_BYTES: usize = 64;
/// Names that refer to threads by their position. They are not valid aliases.
const RESERVED_ALIASES: [&str; 3] = ["root", "parent", "self"];
/// Maximum length of a note, in bytes.
pub(crate) const NOTE_BYTES: usize = event::MAX_NOTE_BYTES;
/// Maximum length of a reason, in bytes.
pub(crate) const REASON_BYTES: usize = 256;
/// Maximum length of a path, in bytes.
pub(crate) const PATH_BYTES: usize = authorize::MAX_PATH_BYTES;
/// Maximum length of an objective, a definition of done, an override or a custom system prompt, in bytes.
pub(crate) const PROSE_BYTES: usize = 64 * 1_024;
/// Maximum total size of the items of an input, in bytes.
pub(crate) const INPUT_BYTES: usize = 1_024 * 1_024;
/// Maximum number of items of an input.
pub(crate) const INPUT_ITEMS: usize = 64;
/// Maximum number of labels in one field.
pub(crate) const LABELS: usize = 32;
/// Minimum wall time of a budget.
const LEAST_WALL_TIME: Duration = Duration::from_millis(1);
/// Maximum number of patterns of tools whose calls need an operator.
pub(crate) const APPROVE_TOOLS: usize = 64;
/// Maximum number of graph templates that a session names as orchestrators.
pub(crate) const ORCHESTRATORS: usize = 64;

/// Returns the error of a request with an invalid field.
pub(super) fn bad(field: &'static str, message: impl Into<String>) -> Status {
    Fault::bad_field(Reason::InvalidArgument, field, message)
        .with("field", field)
        .into()
}

/// Validates the number of items in a list.
pub(super) fn count(field: &'static str, what: &str, count: usize, max: usize) -> Result<(), Status> {
    if count > max {
        return Err(bad(field, format!("{count} {what}; at most {max} are allowed")));
    }
    Ok(())
}

/// Validates the size of a text or a message.
pub(super) fn size(field: &'static str, what: &str, bytes: usize, max: usize) -> Result<(), Status> {
    if bytes > max {
        return Err(bad(
            field,
            format!("{what} has {bytes} bytes; at most {max} are allowed"),
        ));
    }
    Ok(())
}

/// Validates a text: at most `max` bytes, without control characters other than line breaks and tabs.
pub(super) fn text(field: &'static str, value: &str, max: usize) -> Result<(), Status> {
    size(field, field, value.len(), max)?;
    if value
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
    {
        return Err(control_characters(field));
    }
    Ok(())
}

/// Validates a text that is displayed within a line: at most `max` bytes, without control characters.
pub(super) fn line(field: &'static str, value: &str, max: usize) -> Result<(), Status> {
    text(field, value, max)?;
    if value.contains(char::is_control) {
        return Err(control_characters(field));
    }
    Ok(())
}

fn control_characters(field: &'static str) -> Status {
    bad(field, format!("{field} has control characters; remove them"))
}

/// Validates a reason. Returns `default` if the reason is empty.
pub(super) fn reason(given: &str, default: &str) -> Result<String, Status> {
    text("reason", given, REASON_BYTES)?;
    Ok(String::from(if given.is_empty() { default } else { given }))
}

/// Parses a required id.
pub(super) fn id<T: FromStr>(field: &'static str, value: &str) -> Result<T, Status> {
    if value.is_empty() {
        return Err(bad(field, format!("{field} is required")));
    }
    value.parse().map_err(|_| {
        let shown = truncate(value, 64);
        bad(
            field,
            format!("invalid {field} \"{shown}\"; expected a UUID of 36 characters"),
        )
    })
}

/// Parses an optional id.
pub(super) fn optional_id<T: FromStr>(field: &'static str, value: &str) -> Result<Option<T>, Status> {
    if value.is_empty() {
        Ok(None)
    } else {
        id(field, value).map(Some)
    }
}

/// Validates the alias that a spawn requests. Empty means no alias. The character set excludes invisible and
/// look-alike characters. A UUID is rejected because it would read as a thread id.
pub(super) fn alias(value: &str) -> Result<(), Status> {
    const FIELD: &str = "alias";
    line(FIELD, value, ALIAS_BYTES)?;
    if let Some(other) = value
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'))
    {
        return Err(bad(
            FIELD,
            format!(
                "alias \"{}\" has the character {other:?}; use the letters A to Z, digits, \".\", \"_\" and \"-\"",
                value.escape_debug()
            ),
        ));
    }
    if RESERVED_ALIASES.iter().any(|name| value.eq_ignore_ascii_case(name)) {
        return Err(bad(
            FIELD,
            format!(
                "alias \"{value}\" is reserved, as are {}; choose another",
                RESERVED_ALIASES.join(", ")
            ),
        ));
    }
    if Uuid::try_parse(value).is_ok() {
        return Err(bad(
            FIELD,
            format!("alias \"{value}\" has the form of an id; choose another"),
        ));
    }
    Ok(())
}

/// Validates a required thread name: an id or an alias.
pub(super) fn thread_name<'a>(field: &'static str, value: &'a str) -> Result<&'a str, Status> {
    text(field, value, ALIAS_BYTES)?;
    let name = value.trim();
    if name.is_empty() {
        return Err(bad(field, format!("{field} is required; give an id or an alias")));
    }
    Ok(name)
}

/// Parses an enumeration value. UNSPECIFIED is the default that the API documents.
pub(super) fn choice<E: WireEnum>(field: &'static str, number: i32) -> Result<E, Status> {
    E::from_number(number).map_err(|unknown| bad(field, format!("{field}: {unknown}")))
}

/// Parses an optional enumeration value.
pub(super) fn given<E: WireEnum>(field: &'static str, number: i32) -> Result<Option<E>, Status> {
    E::given(number).map_err(|unknown| bad(field, format!("{field}: {unknown}")))
}

/// Parses the new value of a setting; `None` keeps the present one.
pub(super) fn change<E: WireEnum>(field: &'static str, number: Option<i32>) -> Result<Option<E>, Status> {
    number.map(|number| choice(field, number)).transpose()
}

/// Parses a required session id.
pub(super) fn session_id(value: &str) -> Result<SessionId, Status> {
    id("session_id", value)
}

/// Validates an optional directory, which must be absolute.
pub(super) fn directory(field: &'static str, value: &str) -> Result<(), Status> {
    text(field, value, PATH_BYTES)?;
    if value.is_empty() || value.starts_with('/') {
        return Ok(());
    }
    Err(bad(
        field,
        format!("{field} \"{value}\" is relative; give an absolute path"),
    ))
}

/// Validates a directory like [`directory`] and rejects parent components (`..`). Following such a path would reveal
/// the directories along it.
pub(super) fn direct(field: &'static str, value: &str) -> Result<(), Status> {
    directory(field, value)?;
    if !Path::new(value).components().any(|part| part == Component::ParentDir) {
        return Ok(());
    }
    Err(bad(
        field,
        format!("{field} \"{value}\" goes up by \"..\"; give the path that it leads to"),
    ))
}

/// Validates labels of a session, or labels required of its runners.
pub(super) fn labels(field: &'static str, labels: &BTreeMap<String, String>) -> Result<(), Status> {
    wanted_labels(field, labels)?;
    labels
        .iter()
        .flat_map(|(key, value)| [key, value])
        .try_for_each(|text| line(field, text, NAME_BYTES))
}

/// Validates labels of a filter. Labels of sessions from earlier releases may contain line breaks.
pub(super) fn wanted_labels(field: &'static str, labels: &BTreeMap<String, String>) -> Result<(), Status> {
    count(field, "labels", labels.len(), LABELS)?;
    for (key, value) in labels {
        if key.is_empty() {
            return Err(bad(field, "a label has an empty key"));
        }
        text(field, key, NAME_BYTES)?;
        text(field, value, NAME_BYTES)?;
    }
    Ok(())
}

/// Parses a tool ceiling of a request to a layer of the tool policy.
pub(super) fn ceiling(field: &'static str, origin: &str, given: &pb::ToolCeiling) -> Result<Layer, Status> {
    let layer = Layer {
        origin: origin.to_owned(),
        mode: MatchMode::Glob,
        allow: given.allow_list.clone(),
        deny: given.deny_list.clone(),
    };
    tool_policy::Policy::compile(vec![layer.clone()])
        .map(|_| layer)
        .map_err(|error| bad(field, format!("{field}: {error}")))
}

/// Validates the patterns of tools whose calls need an operator.
pub(super) fn approve_tools(patterns: &[String]) -> Result<(), Status> {
    count("approve_tools", "patterns", patterns.len(), APPROVE_TOOLS)?;
    approval_gate(patterns)
        .map(drop)
        .map_err(|error| bad("approve_tools", format!("approve_tools: {error}")))
}

/// Validates the names of the graph templates whose threads are orchestrators.
pub(super) fn orchestrators(names: &[String]) -> Result<(), Status> {
    const FIELD: &str = "orchestrators";
    count(FIELD, FIELD, names.len(), ORCHESTRATORS)?;
    if names.iter().any(|name| name.trim().is_empty()) {
        return Err(bad(
            FIELD,
            "orchestrators has an empty name; give the name of a graph template",
        ));
    }
    names.iter().try_for_each(|name| line(FIELD, name, NAME_BYTES))
}

/// Parses an optional duration, which must not be negative.
pub(super) fn span(field: &'static str, value: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    value
        .map(|span| Duration::try_from(span).map_err(|_| bad(field, format!("{field} must not be negative"))))
        .transpose()
}

/// Parses the time for a decision on an approval. Zero means no limit.
pub(super) fn approval_timeout(given: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let (least, most) = (SHORTEST_APPROVAL_TIMEOUT, LONGEST_APPROVAL_TIMEOUT);
    match span("approval_timeout", given)? {
        None => Ok(APPROVAL_TIMEOUT),
        Some(Duration::ZERO) => Ok(Duration::ZERO),
        Some(timeout) if timeout < least || timeout > most => Err(bad(
            "approval_timeout",
            format!("approval_timeout {timeout:?} is not between {least:?} and {most:?}; 0 means no limit"),
        )),
        Some(timeout) => Ok(timeout),
    }
}

/// Parses a budget. A missing budget is unbounded.
pub(super) fn budget(given: Option<pb::Budget>) -> Result<Budget, Status> {
    let budget = budget_from_request(given.unwrap_or_default())
        .map_err(|_| bad("budget.wall_time", "budget.wall_time must not be negative"))?;
    match budget.wall_time {
        Some(span) if span < LEAST_WALL_TIME => Err(bad(
            "budget.wall_time",
            format!("budget.wall_time {span:?} is too short; give at least {LEAST_WALL_TIME:?}, or 0 for no bound"),
        )),
        Some(_) | None => Ok(budget),
    }
}

/// Validates how a request selects its role: role_template excludes agent_type and auto_route.
pub(super) fn role(agent_type: &str, role_template: &str, auto_route: bool) -> Result<(), Status> {
    text("agent_type", agent_type, NAME_BYTES)?;
    text("role_template", role_template, NAME_BYTES)?;
    if role_template.trim().is_empty() {
        return Ok(());
    }
    if !agent_type.trim().is_empty() {
        return Err(bad(
            "role_template",
            "give agent_type or role_template, not both; they name different templates",
        ));
    }
    if auto_route {
        return Err(bad(
            "auto_route",
            "give role_template or auto_route, not both; texts are routed to agent types only",
        ));
    }
    Ok(())
}

/// Validates and encodes the input of a request.
pub(super) fn input(
    message: Option<String>,
    items: Vec<pb::InputItem>,
    around: impl FnOnce(Vec<pb::InputItem>) -> pb::Input,
) -> Result<(ContentRef, Content), Status> {
    let given = GivenInput { message, items };
    let items = input::required(given, |text| pb::InputItem {
        item: Some(pb::input_item::Item::Text(text)),
    })
    .map_err(refused)?;
    count("items", "items", items.len(), INPUT_ITEMS)?;
    if items.iter().all(is_blank) {
        return Err(refused(input::BLANK));
    }
    let preview = items.iter().find_map(shown).map(preview).unwrap_or_default();
    let bytes = Bytes::from(around(items).encode_to_vec());
    size("message", "the input", bytes.len(), INPUT_BYTES)?;
    let content = Content::new(bytes);
    Ok((content.reference(preview), content))
}

/// Validates a result schema and returns the number of repair turns. Returns `None` if no result is requested.
pub(super) fn result_request(schema: &str, repairs: Option<u32>) -> Result<Option<u32>, Status> {
    if schema.is_empty() {
        return match repairs {
            None => Ok(None),
            Some(_) => Err(bad(
                "result_repairs",
                "result_repairs needs a result_schema; give both or none",
            )),
        };
    }
    ResultSchema::compile(schema)
        .map_err(|problem| bad("result_schema", format!("result_schema cannot be used: {problem}")))?;
    match repairs.unwrap_or(DEFAULT_REPAIRS) {
        repairs if repairs <= MAX_REPAIRS => Ok(Some(repairs)),
        repairs => Err(bad(
            "result_repairs",
            format!("result_repairs is {repairs}; at most {MAX_REPAIRS} are allowed"),
        )),
    }
}

/// Returns whether a request has any input.
pub(super) const fn has_input(message: Option<&String>, items: &[pb::InputItem]) -> bool {
    message.is_some() || !items.is_empty()
}

fn is_blank(item: &pb::InputItem) -> bool {
    shown(item).is_none_or(|text| text.trim().is_empty())
}

fn shown(item: &pb::InputItem) -> Option<&str> {
    use pb::input_item::Item;
    match item.item.as_ref()? {
        Item::Text(text) => Some(text),
        Item::LocalImage(path) => Some(path),
        Item::Skill(skill) => Some(&skill.name),
        Item::Mention(mention) => Some(&mention.name),
    }
}
