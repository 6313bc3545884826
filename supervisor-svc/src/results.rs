//! Results that an input requests: the bounds of their schemas, and the check of documents against them.
//!
//! A schema comes from a client or an agent, so its cost is bounded before it is compiled: it cannot refer to another
//! document, and with all references expanded it has at most [`MAX_EXPANDED`] objects. A recursive schema has no such
//! bound and is rejected. Patterns use a regex engine without backtracking.

use std::sync::Arc;

use bytes::Bytes;
use jsonschema::{Draft, PatternOptions, Validator};
use prost::Message as _;
use serde_json::{Map, Value};
use supervisor_log::{
    codec::parts::result_to_pb,
    store::{Content, EventStore},
};
use troupe_proto::supervisor::{v1 as pb, v1::input_item::Item};

use crate::{
    domain::{
        command::ResultCheck,
        content::{ContentRef, preview, truncate},
        ids::SessionId,
        state::thread::{ResultRequest, ThreadResult},
    },
    engine::{Failure, read_content, read_message},
};

/// Maximum size of a result schema, in bytes.
pub(crate) const SCHEMA_BYTES: usize = 64 * 1_024;
/// Maximum size of a result, in bytes.
pub(crate) const RESULT_BYTES: usize = 256 * 1_024;
/// Number of repair turns if a request does not specify it.
pub(crate) const DEFAULT_REPAIRS: u32 = 1;
/// Maximum number of repair turns.
pub(crate) const MAX_REPAIRS: u32 = 3;
/// Maximum number of objects in a schema whose references are expanded.
pub(crate) const MAX_EXPANDED: usize = 1_000;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 256 * 1_024;
/// Maximum number of errors in a text, and the maximum length of each, in bytes.
const SHOWN_ERRORS: usize = 10;
const ERROR_BYTES: usize = 300;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Keywords that refer to other schemas in ways that are not expanded here.
const UNSUPPORTED: [&str; 6] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
];

/// A compiled result schema.
pub(crate) struct ResultSchema(Validator);

impl ResultSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The problem and its remedy, for the caller that sent the schema.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > SCHEMA_BYTES {
            return Err(format!(
                "it has {} bytes; at most {SCHEMA_BYTES} are allowed",
                text.len()
            ));
        }
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("it is not valid JSON: {error}"))?;
        let Value::Object(root) = &schema else {
            return Err(String::from("it is not a JSON object"));
        };
        match root.get("$schema").map(Value::as_str) {
            None => {}
            Some(Some(draft)) if draft.trim_end_matches('#') == DRAFT => {}
            Some(_) => {
                return Err(format!(
                    "its \"$schema\" is not \"{DRAFT}\"; use that draft, or leave it out"
                ));
            }
        }
        Expansion::new(&schema).object(root)?;
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
            .offline()
            .build(&schema)
            .map(Self)
            .map_err(|error| truncate(&error.to_string(), ERROR_BYTES).to_owned())
    }

    /// Checks a document.
    ///
    /// # Errors
    /// The errors, one per line.
    pub(crate) fn check(&self, document: &str) -> Result<(), String> {
        if document.len() > RESULT_BYTES {
            return Err(format!(
                "- the result has {} bytes; at most {RESULT_BYTES} are allowed",
                document.len()
            ));
        }
        let document: Value =
            serde_json::from_str(document).map_err(|error| format!("- the result is not a JSON document: {error}"))?;
        let mut errors = self.0.iter_errors(&document);
        let shown: Vec<String> = errors
            .by_ref()
            .take(SHOWN_ERRORS)
            .map(|error| {
                let text = error.to_string();
                let path = error.instance_path().as_str();
                let path = if path.is_empty() { "the top level" } else { path };
                format!("- at {}: {}", truncate(path, ERROR_BYTES), truncate(&text, ERROR_BYTES))
            })
            .collect();
        if shown.is_empty() {
            return Ok(());
        }
        let more = if errors.next().is_some() {
            "\n- and more errors"
        } else {
            ""
        };
        Err(shown.join("\n") + more)
    }
}

/// The walk over a schema with all references expanded.
struct Expansion<'s> {
    root: &'s Value,
    /// The objects that contain the current one.
    open: Vec<*const Map<String, Value>>,
    count: usize,
}

impl<'s> Expansion<'s> {
    fn new(root: &'s Value) -> Self {
        Self {
            root,
            open: Vec::new(),
            count: 0,
        }
    }

    fn object(&mut self, object: &'s Map<String, Value>) -> Result<(), String> {
        self.count += 1;
        if self.count > MAX_EXPANDED {
            return Err(format!(
                "with its references expanded it has more than {MAX_EXPANDED} objects; make it smaller"
            ));
        }
        if let Some(keyword) = UNSUPPORTED.iter().find(|keyword| object.contains_key(**keyword)) {
            return Err(format!(
                "\"{keyword}\" is not supported; use \"$ref\" with \"#/$defs/NAME\""
            ));
        }
        if !self.open.is_empty() && object.get("$id").is_some_and(Value::is_string) {
            return Err(String::from("\"$id\" is supported at the top level only; remove it"));
        }
        self.open.push(object);
        for value in object.values() {
            self.value(value)?;
        }
        if let Some(Value::String(reference)) = object.get("$ref") {
            let target = self.target(reference)?;
            self.value(target)?;
        }
        self.open.pop();
        Ok(())
    }

    fn value(&mut self, value: &'s Value) -> Result<(), String> {
        match value {
            Value::Object(object) if self.open.contains(&std::ptr::from_ref(object)) => Err(String::from(
                "it refers to itself; recursive schemas are not supported, so limit the depth by separate definitions",
            )),
            Value::Object(object) => self.object(object),
            Value::Array(values) => values.iter().try_for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn target(&self, reference: &str) -> Result<&'s Value, String> {
        let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| {
            format!(
                "the reference \"{}\" names no part of the schema; only references such as \"#/$defs/NAME\" \
                 are supported",
                truncate(reference, ERROR_BYTES)
            )
        })
    }
}

/// Checks the last message of a completed turn, and adds the contents that the check refers to.
///
/// # Errors
/// The schema could not be read.
pub(crate) async fn check_message(
    store: &dyn EventStore,
    session: SessionId,
    request: &ResultRequest,
    message: String,
    contents: &mut Vec<Content>,
) -> Result<ResultCheck, Failure> {
    let input: pb::Input = read_message(store, session, &request.input).await?;
    let schema = input.result_schema;
    let checked = schema.clone();
    let verdict = tokio::task::spawn_blocking(move || {
        let document = without_fence(&message).to_owned();
        match ResultSchema::compile(&checked) {
            Ok(schema) if !document.is_empty() => schema.check(&document).map(|()| document),
            Ok(_) => Err(String::from("- there is no result")),
            Err(problem) => Err(format!("- the schema cannot be used: {problem}")),
        }
    });
    let verdict = verdict.await.map_err(|error| Failure::Corrupt(error.to_string()))?;
    let check = match verdict {
        Ok(document) => {
            let (result, content) = document_content(document);
            contents.push(content);
            ResultCheck::Valid(result)
        }
        Err(errors) => {
            let text = format!(
                "Your result is missing or does not match its JSON Schema:\n{errors}\nReport the corrected result."
            );
            let shown = preview(&text);
            let repair = pb::Input {
                items: vec![pb::InputItem {
                    item: Some(Item::Text(text)),
                }],
                result_schema: schema,
                ..pb::Input::default()
            };
            let content = Content::new(Bytes::from(repair.encode_to_vec()));
            let repair = content.reference(shown);
            contents.push(content);
            ResultCheck::Invalid { errors, repair }
        }
    };
    Ok(check)
}

/// Returns a result as content.
pub(crate) fn document_content(document: String) -> (ContentRef, Content) {
    let shown = preview(&document);
    let content = Content::new(Bytes::from(document.into_bytes()));
    (content.reference(shown), content)
}

/// Returns a message without the code fence that models put around JSON.
fn without_fence(message: &str) -> &str {
    let message = message.trim();
    let fenced = message.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match fenced.and_then(|inner| inner.split_once('\n')) {
        Some((_language, inner)) => inner.trim(),
        None => message,
    }
}

/// Reads the documents of results for a response, as long as there is room for them.
pub(crate) struct ResultReader<'a> {
    store: &'a dyn EventStore,
    session: SessionId,
    room: u64,
}

impl<'a> ResultReader<'a> {
    pub(crate) fn new(store: &'a dyn EventStore, session: SessionId, room: u64) -> Self {
        Self { store, session, room }
    }

    /// Returns the message of a result, with its document if there is room for it.
    ///
    /// # Errors
    /// The document could not be read.
    pub(crate) async fn read(&mut self, result: &Arc<ThreadResult>) -> Result<pb::ThreadResult, Failure> {
        let mut shown = result_to_pb(result);
        if let Some(left) = self.room.checked_sub(result.content.size) {
            self.room = left;
            let bytes = read_content(self.store, self.session, result.content.digest).await?;
            shown.document_json = String::from_utf8_lossy(&bytes).into_owned();
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FINDING: &str = r##"{
        "type": "object",
        "required": ["file", "findings"],
        "properties": {
            "file": {"type": "string"},
            "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}}
        },
        "$defs": {"finding": {"type": "object", "properties": {"line": {"type": "integer"}}}}
    }"##;

    fn rejection(schema: &Value) -> String {
        match ResultSchema::compile(&schema.to_string()) {
            Ok(_) => panic!("{schema} is accepted"),
            Err(problem) => problem,
        }
    }

    #[test]
    fn errors_name_path_and_problem() {
        let schema = ResultSchema::compile(FINDING).unwrap();
        assert_eq!(schema.check(r#"{"file": "a", "findings": [{"line": 3}]}"#), Ok(()));
        let errors = schema.check(r#"{"findings": [{"line": "three"}]}"#).unwrap_err();
        assert!(
            errors.contains("- at /findings/0/line: \"three\" is not of type"),
            "{errors}"
        );
        assert!(
            errors.contains("- at the top level: \"file\" is a required property"),
            "{errors}"
        );
        assert!(
            schema
                .check("no")
                .unwrap_err()
                .starts_with("- the result is not a JSON document: ")
        );
        let long = format!("\"{}\"", "x".repeat(RESULT_BYTES));
        assert!(schema.check(&long).unwrap_err().contains("at most 262144 are allowed"));
    }

    #[test]
    fn errors_are_bounded() {
        let schema = ResultSchema::compile(r#"{"items": {"type": "integer"}}"#).unwrap();
        let document = json!(vec!["x".repeat(2_000); 50]).to_string();
        let errors = schema.check(&document).unwrap_err();
        assert_eq!(errors.lines().count(), SHOWN_ERRORS + 1, "{errors}");
        assert!(errors.ends_with("- and more errors") && errors.len() < 8 * 1_024);
    }

    #[test]
    fn unbounded_schemas_are_rejected() {
        for (schema, problem) in [
            (json!(true), "it is not a JSON object"),
            (json!({"type": "text"}), "\"text\" is not valid"),
            (json!({"$ref": "#"}), "it refers to itself"),
            (
                json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
                "it refers to itself",
            ),
            (json!({"properties": {"child": {"$ref": "#"}}}), "it refers to itself"),
            (json!({"properties": {"default": {"$ref": "#"}}}), "it refers to itself"),
            (
                json!({"$ref": "https://example.com/s.json"}),
                "names no part of the schema",
            ),
            (json!({"$ref": "other.json"}), "names no part of the schema"),
            (json!({"$ref": "#/$defs/none"}), "names no part of the schema"),
            (json!({"$dynamicRef": "#x"}), "\"$dynamicRef\" is not supported"),
            (json!({"not": {"$id": "https://example.com/x"}}), "\"$id\" is supported"),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
                "use that draft",
            ),
            (json!({"pattern": "(a{1000}){1000}"}), "is not a"),
            (
                json!({"description": "x".repeat(SCHEMA_BYTES)}),
                "at most 65536 are allowed",
            ),
        ] {
            let found = rejection(&schema);
            assert!(found.contains(problem), "{schema}: {found}");
        }
    }

    #[test]
    fn exponential_schema_is_rejected_quickly() {
        let mut definitions = Map::new();
        definitions.insert(String::from("d0"), json!({"type": "integer"}));
        for level in 1..40 {
            let below = format!("#/$defs/d{}", level - 1);
            definitions.insert(
                format!("d{level}"),
                json!({"allOf": [{"$ref": below}, {"$ref": below}]}),
            );
        }
        let found = rejection(&json!({"$defs": definitions, "$ref": "#/$defs/d39"}));
        assert!(found.contains("more than 1000 objects"), "{found}");
    }

    #[test]
    fn code_fence_is_removed() {
        for (message, document) in [
            (" {\"a\": 1}\n", "{\"a\": 1}"),
            ("```json\n{\"a\": 1}\n```", "{\"a\": 1}"),
            ("```\n[1]\n```\n", "[1]"),
            ("The result is 1.", "The result is 1."),
            ("```", "```"),
        ] {
            assert_eq!(without_fence(message), document, "{message}");
        }
    }
}
