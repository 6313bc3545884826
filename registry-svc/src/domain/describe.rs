//! The supervisor's tools as offered to a model: names, descriptions, JSON schemas, and a one-sentence summary of the
//! catalogue's roles.
//!
//! The arguments are the ones that the runner reads and that `docs/process-protocol.md` documents. The text depends
//! only on the catalogue, because a description that changes between calls would invalidate a model's prompt cache.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::domain::list::Listed;

/// Maximum number of roles in a hint.
const MAX_ROLES: usize = 12;
/// Maximum length of a role's description in a hint, in characters, including the ellipsis.
const MAX_DESCRIPTION: usize = 120;
/// The search order of roles, for a tool's description.
const SOURCES: &str = "Roles are searched in the project (nearest directory first), then in the user's home, then \
                       among the embedded roles; the first role with the name is used.";

/// A tool as offered to a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// The description of the tool's behaviour.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON.
    pub input_schema: String,
}

/// Returns the roles and personas in one sentence: `Available template roles: a: desc [agent_names: x, y]; b.` The text
/// is empty if the catalogue has no roles.
#[must_use]
pub fn hint(roles: &[Listed<'_>]) -> String {
    let shown: Vec<String> = roles.iter().take(MAX_ROLES).map(role).collect();
    if shown.is_empty() {
        return String::new();
    }
    format!("Available template roles: {}.", shown.join("; "))
}

fn role(role: &Listed<'_>) -> String {
    let mut text = role.entry.file.name.to_string();
    let description = role.template.description.as_deref().map(one_line).unwrap_or_default();
    if !description.is_empty() {
        text.push_str(": ");
        text.push_str(&cut(&description));
    }
    let personas: Vec<&str> = role.template.personas.iter().map(|each| each.name.as_str()).collect();
    if !personas.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(text, " [agent_names: {}]", personas.join(", "));
    }
    text
}

/// Joins the lines of a description, because a hint is a single line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_DESCRIPTION {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(MAX_DESCRIPTION - 1).collect();
    cut.push('…');
    cut
}

/// Returns the tools for a catalogue with these roles, `spawn_agent` first.
#[must_use]
pub fn tools(roles: &[Listed<'_>]) -> Vec<Tool> {
    vec![
        spawn_agent(&hint(roles)),
        spawn_node(),
        spawn_group(),
        list_agents(),
        list_active_agents(),
        read_transcript(),
        send_input(),
        wait(),
        close_agent(),
        resume_agent(),
        set_thread_note(),
        create_edge(),
        send_handoff(),
        report_result(),
        ask_parent(),
    ]
}

fn spawn_agent(hint: &str) -> Tool {
    let mut agent_type =
        format!("The role of the new agent. Default: no role; the agent works on your instructions. {SOURCES}");
    if !hint.is_empty() {
        agent_type.push('\n');
        agent_type.push_str(hint);
    }
    tool(
        "spawn_agent",
        "Spawns an agent for a well-defined task. Returns its id; wait for its result with `wait`.",
        &[],
        json!({
            "message": string("The task for the new agent. Give message or items, not both."),
            "items": items(),
            "agent_type": string(&agent_type),
            "agent_name": string("The persona of the role, one of its agent_names. Only together with agent_type."),
            "model": string("Model that overrides the persona's, the role's and your own."),
            "reasoning_effort": {
                "type": "string",
                "enum": ["none", "minimal", "low", "medium", "high", "xhigh"],
                "description": "Reasoning effort that overrides the persona's, the role's and your own.",
            },
            "thread_note": string("Note that distinguishes this agent in listings."),
            "working_directory": string("The absolute path of its working directory. Default: yours."),
            "label": string("A display name."),
            "alias": string("A short name that is unique in the session and can be used instead of the id."),
            "objective": string("Objective of the agent."),
            "definition_of_done": string("Criteria for a completed task."),
            "result_schema": result_schema(),
            "queue": boolean("Whether to wait for a free slot instead of failing. Default: false."),
        }),
    )
}

/// Returns the tool that spawns nodes. Its arguments are spelled as in graph templates.
fn spawn_node() -> Tool {
    let capabilities = json!({
        "edgeManagement": {
            "type": "string",
            "enum": ["none", "self", "all"],
            "description": "Which edges it may manage; at most what its template declares, which is the default.",
        },
        "writeCode": boolean("Whether it may write files. Can only be disabled together with writeDocs. Default: true."),
        "writeDocs": boolean("Whether it may write files. Can only be disabled together with writeCode. Default: true."),
        "runCommands": boolean("Whether it may run commands. Default: true."),
        "delegateOnly": boolean("Whether it may neither write files nor run commands. Default: false."),
    });
    let permissions = json!({
        "cliPermissionsMode": {"type": "string", "enum": ["skip"], "description": "No other mode is supported."},
        "agentManagementRequiresApproval": boolean("Has no effect: the session's settings apply."),
    });
    tool(
        "spawn_node",
        "Spawns a node from a graph template, with an edge between you and it. Returns its nodeId. The node knows only \
         what you tell it.",
        &["label", "roleTemplate"],
        json!({
            "label": string("A display name."),
            "alias": string("A short name that is unique in the session and can be used instead of the id."),
            "roleTemplate": string("The name of its graph template, such as planner."),
            "instructions": string("The task: objective, inputs, limits, definition of done."),
            "input": {"type": "object", "description": "Structured data for the task, in any shape."},
            "provider": string("The provider. Default: yours."),
            "capabilities": narrowing("Restrictions of the template's capabilities. A node never has more permissions than you.", capabilities),
            "permissions": narrowing("How it asks for permission.", permissions),
            "session": {"type": "object", "description": "Has no effect: a node always keeps its session."},
            "customSystemPrompt": string("A text that replaces the template's prompt. Only operators may set it."),
        }),
    )
}

/// Returns the schema of an object whose keys are all optional.
fn narrowing(description: &str, properties: Value) -> Value {
    let mut schema = object(&[], properties);
    schema["description"] = description.into();
    schema
}

fn list_agents() -> Tool {
    tool(
        "list_agents",
        "Lists the roles that you may spawn, with their personas and tools.",
        &[],
        json!({
            "agent_type": string("Lists only this role. Default: all."),
            "expanded": boolean("Whether to show models, reasoning efforts and prompts, too. Default: false."),
        }),
    )
}

fn list_active_agents() -> Tool {
    tool(
        "list_active_agents",
        "Lists the agents below you with status, role and note.",
        &[],
        json!({
            "scope": {
                "type": "string",
                "enum": ["children", "descendants", "all"],
                "description": "Your children, your descendants, or all that you may see. Default: all.",
            },
            "include_tree": boolean("Whether to show parent and depth. Default: false."),
            "include_closed": boolean("Whether to list closed agents too. Default: false."),
        }),
    )
}

fn read_transcript() -> Tool {
    tool(
        "read_transcript",
        "Reads what an agent below you, or you yourself, received, said and did. Long texts are cut.",
        &[],
        json!({
            "id": string("The id of the agent. Default: you."),
            "kinds": {
                "type": "array",
                "items": {
                    "type": "string",
                    "enum": [
                        "input", "message", "reasoning", "tool_call", "tool_result", "plan", "file_change", "error",
                        "notice",
                    ],
                },
                "description": "Only entries of these kinds. Default: all.",
            },
            "tail": {
                "type": "integer",
                "minimum": 1,
                "maximum": 200,
                "description": "Maximum number of entries, counted from the end. Default: 50, or all that follow `after`.",
            },
            "after": {
                "type": "integer",
                "minimum": 0,
                "description": "Only entries with a higher number. To continue, pass `next_after` of the previous answer.",
            },
        }),
    )
}

fn send_input() -> Tool {
    tool(
        "send_input",
        "Sends a message to an agent. A settled agent starts a new turn; a running agent reads it when its turn is over, \
         or at once with interrupt.",
        &["id"],
        json!({
            "id": string("The id of the agent."),
            "message": string("The message. Give message or items, not both."),
            "items": items(),
            "result_schema": result_schema(),
            "interrupt": boolean("Whether to stop the running turn first. Default: false."),
            "queue": boolean("Whether to wait for a free slot instead of failing. Default: false."),
        }),
    )
}

fn wait() -> Tool {
    tool(
        "wait",
        "Waits until one or all of these agents are settled, and returns the status of each settled agent. A timeout is \
         not an error.",
        &["ids"],
        json!({
            "ids": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "The ids of the agents.",
            },
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_800_000,
                "description": "Maximum wait time in milliseconds: 10000 to 1800000; smaller values count as 10000. Default: \
                                300000.",
            },
            "all": boolean("Whether to wait until all of them are settled instead of one. Default: false."),
        }),
    )
}

fn close_agent() -> Tool {
    tool(
        "close_agent",
        "Closes an agent and all agents below it. Returns the status that it had.",
        &["id"],
        json!({"id": string("The id of the agent.")}),
    )
}

fn resume_agent() -> Tool {
    tool(
        "resume_agent",
        "Opens a closed agent again, with its role and at most its former permissions.",
        &["id"],
        json!({"id": string("The id of the agent.")}),
    )
}

fn set_thread_note() -> Tool {
    tool(
        "set_thread_note",
        "Sets the note that distinguishes an agent in listings.",
        &["note"],
        json!({
            "id": string("The id of the agent. Default: yourself."),
            "note": string("The note. A blank text removes it."),
        }),
    )
}

fn create_edge() -> Tool {
    tool(
        "create_edge",
        "Creates an edge between two agents, along which handoffs can be sent.",
        &["from", "to"],
        json!({
            "from": string("The sender, by id or alias."),
            "to": string("The receiver, by id or alias."),
            "bidirectional": boolean("Whether the edge goes both ways. Default: true."),
            "type": {
                "type": "string",
                "enum": ["handoff", "report"],
                "description": "Purpose of the edge. Default: handoff.",
            },
            "label": string("A display name."),
        }),
    )
}

fn send_handoff() -> Tool {
    let artifact = object(
        &["type", "ref"],
        json!({
            "type": string("Kind of artifact, such as diff."),
            "ref": string("The id of the artifact."),
        }),
    );
    let status = object(
        &["ok"],
        json!({
            "ok": boolean("Whether the work succeeded."),
            "reason": string("The reason of a failure."),
        }),
    );
    let response = object(
        &["expectation"],
        json!({
            "expectation": {"type": "string", "enum": ["none", "optional", "required"]},
            "replyTo": string("Receiver of the reply, by id or alias. Default: you."),
        }),
    );
    tool(
        "send_handoff",
        "Hands work or a result over to an agent. Needs an edge from you to it.",
        &["to", "message"],
        json!({
            "to": string("The receiver, by id or alias."),
            "message": string("What to hand over."),
            "structured": {"type": "object", "description": "The content as structured data, in any shape."},
            "artifacts": {"type": "array", "items": artifact, "description": "Artifacts that belong to it."},
            "status": status,
            "response": response,
            "contextRef": string("Reference to earlier work."),
        }),
    )
}

fn spawn_group() -> Tool {
    let item = object(
        &["key"],
        json!({
            "key": string("The key of the item, unique in the group."),
            "variables": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "The values of {name} in the message.",
            },
            "message": string("The task of this item instead of the common message."),
        }),
    );
    tool(
        "spawn_group",
        "Spawns an agent for each item, at most max_concurrency at a time, and returns the results of all of them. Use it \
         for the same task on many inputs. An agent is closed when its task has ended. An operator must approve a group \
         of more than 50 items.",
        &["items"],
        json!({
            "message": string("The task of each agent, with {name} for the variables of its item."),
            "items": {"type": "array", "items": item, "minItems": 1, "description": "The items."},
            "agent_type": string("The role of the agents."),
            "agent_name": string("The persona of the role."),
            "model": string("Model that overrides the persona's, the role's and your own."),
            "name": string("A name of the group that is unique in the session."),
            "max_concurrency": {"type": "integer", "minimum": 1, "maximum": 1_000, "description": "Default: 8."},
            "retries": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Retries of a failed item. Default: 0."},
            "tolerated_failures": {"type": "integer", "minimum": 0, "description": "Default: 0."},
            "result_schema": result_schema(),
            "wait": boolean("Whether to wait for the end of the group. Otherwise you receive mail when it has ended. Default: true."),
            "timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_800_000,
                "description": "Maximum wait time in milliseconds. Default: 1800000.",
            },
        }),
    )
}

fn report_result() -> Tool {
    tool(
        "report_result",
        "Reports the result of your task, if you were asked for one. A result that does not match the schema is \
         rejected with the errors; correct it and call again.",
        &["result"],
        json!({
            "result": {"description": "The result, a JSON value that matches the schema that you were given."},
        }),
    )
}

fn ask_parent() -> Tool {
    tool(
        "ask_parent",
        "Asks your parent a question that you cannot answer yourself. End your turn after it; the answer comes with \
         your next input.",
        &["question"],
        json!({"question": string("The question, with all that is needed to answer it.")}),
    )
}

/// Returns the schema of the argument that requests a result.
fn result_schema() -> Value {
    json!({
        "type": "object",
        "description": "JSON Schema of the result that the agent must report; `wait` returns the result. \
                        Recursion and references to other schemas are not allowed.",
    })
}

fn tool(name: &'static str, description: &str, required: &[&str], properties: Value) -> Tool {
    Tool {
        name,
        description: description.to_owned(),
        input_schema: object(required, properties).to_string(),
    }
}

fn object(required: &[&str], properties: Value) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn string(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

/// Returns the schema of the items of an input.
fn items() -> Value {
    json!({
        "type": "array",
        "description": "The input in pieces: {type: text, text}, {type: local_image, path}, {type: skill, name, path}, \
                        {type: mention, name, path}.",
        "items": object(&["type"], json!({
            "type": {"type": "string", "enum": ["text", "local_image", "skill", "mention"]},
            "text": string("The text of a text item."),
            "path": string("The path of an image, a skill or a mention."),
            "name": string("The name of a skill or a mention."),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        catalog::tests::catalog,
        list::{Selection, Violations, list},
    };

    fn described<T>(roles: &[(&str, &str)], describe: impl Fn(&[Listed<'_>]) -> T) -> T {
        let catalog = catalog(roles);
        describe(&list(&catalog, &Selection::AgentTypes, Violations::LeaveOut).unwrap())
    }

    fn role_text(description: &str) -> String {
        format!("---\ndescription: {description}\n---\nprompt")
    }

    #[test]
    fn hint_names_roles_and_personas() {
        let with_personas = "---\ndescription: Looks.\nagent_names:\n  - {name: Slow, description: s}\n  - \
                             {name: fast, description: f}\n---\nx\n<!-- agent_name: slow -->\ns\n<!-- agent_name: fast -->\nf";
        let plain = role_text("Works.");
        let rows: &[(&[(&str, &str)], &str)] = &[
            (&[], ""),
            (
                &[("worker", plain.as_str())],
                "Available template roles: worker: Works..",
            ),
            (
                &[("worker", plain.as_str()), ("explorer", with_personas), ("broken", "x")],
                "Available template roles: explorer: Looks. [agent_names: fast, slow]; worker: Works..",
            ),
        ];
        for (roles, expected) in rows {
            assert_eq!(described(roles, hint), *expected);
        }
    }

    #[test]
    fn hint_is_bounded() {
        for (length, shown) in [(119, 119), (120, 120), (121, 120)] {
            let text = role_text(&"é".repeat(length));
            let hint = described(&[("a", &text)], hint);
            let description = &hint["Available template roles: a: ".len()..hint.len() - 1];
            assert_eq!(description.chars().count(), shown, "{length}");
            assert_eq!(description.ends_with('…'), length > 120, "{length}");
        }
        let names: Vec<String> = (0..20).map(|number| format!("role-{number:02}")).collect();
        let text = role_text("d");
        let roles: Vec<_> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        let hint = described(&roles, hint);
        assert!(hint.contains("role-11: d.") && !hint.contains("role-12"), "{hint}");
    }

    #[test]
    fn multiline_description_becomes_one_line() {
        let text = role_text("|\n  first\n\n  second");
        assert_eq!(
            described(&[("a", &text)], hint),
            "Available template roles: a: first second."
        );
    }

    #[test]
    fn tools_are_ordered_with_valid_schemas() {
        let text = role_text("d");
        let tools = described(&[("a", &text)], tools);
        let names: Vec<_> = tools.iter().map(|tool| tool.name).collect();
        assert_eq!(
            names,
            [
                "spawn_agent",
                "spawn_node",
                "spawn_group",
                "list_agents",
                "list_active_agents",
                "read_transcript",
                "send_input",
                "wait",
                "close_agent",
                "resume_agent",
                "set_thread_note",
                "create_edge",
                "send_handoff",
                "report_result",
                "ask_parent"
            ]
        );
        for tool in &tools {
            let schema: Value = serde_json::from_str(&tool.input_schema).unwrap();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for key in required {
                assert!(
                    schema["properties"].get(key.as_str().unwrap()).is_some(),
                    "{} {key}",
                    tool.name
                );
            }
        }
    }
}
