//! The output format of a command: a table, ids, or structured data.

use std::{fmt, str::FromStr};

use clap::Args;
use serde_json::Value;
use serde_json_path::JsonPath;

/// The output format.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Format {
    /// Tables and text for people.
    #[default]
    Table,
    /// Like a table, with all columns.
    Wide,
    /// One `kind/id` per line.
    Name,
    /// One JSON object per line.
    Json,
    /// YAML documents.
    Yaml,
    /// The values that a JSONPath selects, one per line.
    JsonPath(JsonPath),
    /// SARIF 2.1.0 for code scanners; `lint` only.
    Sarif,
    /// A document; `export` only.
    Markdown,
    /// A document in one file; `export` only.
    Html,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "name" => Self::Name,
            "json" | "jsonl" => Self::Json,
            "yaml" => Self::Yaml,
            "sarif" => Self::Sarif,
            "markdown" => Self::Markdown,
            "html" => Self::Html,
            _ => match text.strip_prefix("jsonpath=") {
                Some(path) => Self::JsonPath(parse_path(path)?),
                None => {
                    return Err(
                        "expected table, wide, name, json, yaml, jsonpath=PATH, sarif, markdown or html".to_owned(),
                    );
                }
            },
        })
    }
}

/// Parses a JSONPath in the notation of RFC 9535 (`$.sessions[*].session_id`) or of kubectl
/// (`{.sessions[*].session_id}`).
fn parse_path(text: &str) -> Result<JsonPath, String> {
    let path = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or(text);
    let path = match path.chars().next() {
        Some('$') => path.to_owned(),
        Some('.' | '[') | None => format!("${path}"),
        Some(_) => format!("$.{path}"),
    };
    JsonPath::parse(&path).map_err(|error| format!("invalid JSONPath \"{text}\": {error}"))
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table => out.write_str("table"),
            Self::Wide => out.write_str("wide"),
            Self::Name => out.write_str("name"),
            Self::Json => out.write_str("json"),
            Self::Yaml => out.write_str("yaml"),
            Self::JsonPath(path) => write!(out, "jsonpath={path}"),
            Self::Sarif => out.write_str("sarif"),
            Self::Markdown => out.write_str("markdown"),
            Self::Html => out.write_str("html"),
        }
    }
}

/// The output format and the details of tables.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Output format: table, wide, name, json, yaml, jsonpath=PATH
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        default_value_t,
        hide_default_value = true,
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
    /// Columns of the table, separated by commas
    #[arg(long, global = true, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) columns: Vec<String>,
    /// Omit the column headings
    #[arg(long, global = true)]
    pub(crate) no_headers: bool,
    /// Print complete lines on a terminal
    #[arg(long, global = true)]
    pub(crate) no_truncate: bool,
    /// Print ids only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

impl OutputArgs {
    /// Returns the options of this format without details.
    pub(crate) fn of(format: Format) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }
}

/// Returns the objects that a result contains, as `(kind, id)`.
///
/// A result is an object whose fields hold messages or lists of messages. The kind of a message is the name of its
/// field in the singular, and `thread` for the field `statuses`. For example, a `session` is identified by its
/// `session_id`, or if that is missing, by its `agent_type`, `name` or `thread_id`. The text in the field
/// `deleted_session_id` is the id of a session.
pub(crate) fn names(result: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Value::Object(fields) = result else {
        return found;
    };
    for (field, value) in fields {
        let kind = singular(field);
        match value {
            Value::Array(items) => found.extend(items.iter().filter_map(|item| named(kind, item))),
            item @ Value::Object(_) => found.extend(named(kind, item)),
            Value::String(id) if !id.is_empty() && field == "deleted_session_id" => {
                found.push(("session".to_owned(), id.clone()));
            }
            _ => {}
        }
    }
    found
}

fn singular(field: &str) -> &str {
    match field {
        "statuses" => "thread",
        field => field.strip_suffix('s').unwrap_or(field),
    }
}

/// Returns the name of one message, or `None` if it has no id.
fn named(kind: &str, item: &Value) -> Option<(String, String)> {
    let own = format!("{kind}_id");
    let id = [own.as_str(), "agent_type", "name", "thread_id"]
        .into_iter()
        .find_map(|field| item.get(field).and_then(Value::as_str).filter(|id| !id.is_empty()))?;
    Some((kind.to_owned(), id.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_are_parsed() {
        for name in ["table", "wide", "name", "json", "yaml", "sarif", "markdown", "html"] {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        let paths = ["$.a[*].b", "{.a[*].b}", ".a[*].b", "a[*].b"];
        for path in paths {
            let parsed = format!("jsonpath={path}").parse::<Format>().unwrap();
            let Format::JsonPath(parsed) = parsed else {
                panic!("{path}");
            };
            let value = json!({"a": [{"b": 1}, {"b": 2}]});
            assert_eq!(parsed.query(&value).all(), [&json!(1), &json!(2)], "{path}");
        }
        assert!("jsonpath={.a[}".parse::<Format>().is_err());
        assert!("text".parse::<Format>().is_err());
    }

    #[test]
    fn result_objects_are_listed_by_kind_and_id() {
        let listed = json!({"sessions": [{"session_id": "s1", "threads": []}, {"session_id": "s2"}]});
        let expected = [("session", "s1"), ("session", "s2")];
        assert_eq!(
            names(&listed),
            expected.map(|(kind, id)| (kind.to_owned(), id.to_owned()))
        );
        let spawned = json!({"thread": {"thread_id": "t", "session_id": "s"}, "session_id": "s", "warnings": []});
        assert_eq!(names(&spawned), [("thread".to_owned(), "t".to_owned())]);
        let agents = json!({"agents": [{"agent_type": "worker"}], "diagnostics": []});
        assert_eq!(names(&agents), [("agent".to_owned(), "worker".to_owned())]);
    }
}
