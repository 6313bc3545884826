//! `troupe agents new`: creates a template.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use registry_svc::domain::{family::NEVER_TEMPLATES, name::AgentType};
use serde_json::json;

use crate::{
    context::{Context, existing_directory},
    error::{Error, Result},
    places,
    ui::style,
};

const AFTER_HELP: &str = "\
Examples:
  troupe agents new auditor
  troupe agents new auditor --persona strict --persona fast --read-only
  troupe agents new scribe --user --description 'Use `scribe` for release notes.'";

/// Maximum number of personas in a new template.
const MAX_PERSONAS: usize = 16;

/// Tools that every role may use: running commands, reading, planning and talking to other agents.
const READING: &[&str] = &[
    "exec_command",
    "write_stdin",
    "read_file",
    "list_files",
    "update_plan",
    "list_agents",
    "list_active_agents",
    "wait",
    "send_input",
];
/// Tools that change the workspace.
const WRITING: &[&str] = &["apply_patch", "write_file", "delete_file"];
/// Tools that create agents.
const SPAWNING: &[&str] = &["spawn_agent", "spawn_node"];

/// The arguments of `agents new`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The role's name: lower-case letters, digits, `-` and `_`
    #[arg(value_name = "NAME")]
    name: String,
    /// Create the role in the user's templates instead of the project's templates
    #[arg(long)]
    user: bool,
    /// Persona, a variant of the role; may be repeated
    #[arg(long = "persona", value_name = "NAME")]
    personas: Vec<String>,
    /// Create a read-only role, without write access and network access
    #[arg(long)]
    read_only: bool,
    /// Purpose of the role, on one line
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Directory that contains the user scope's `.codex/` [default: the user's home]
    #[arg(long, value_name = "DIR", requires = "user")]
    home: Option<PathBuf>,
    /// Directory of the project; the template is created at the project's root [default: the current directory]
    #[arg(long, value_name = "DIR", conflicts_with = "user")]
    cwd: Option<PathBuf>,
}

/// Writes the template.
pub(super) fn run(args: &Args, context: &Context) -> Result<()> {
    let name = role_name(&args.name)?;
    let personas = persona_names(&args.personas)?;
    let description = description(&name, args.description.as_deref())?;
    let base = if args.user {
        places::home(args.home.clone())?
    } else {
        places::repository(&existing_directory(args.cwd.as_deref())?)
    };
    let path = base.join(places::ROLES).join(format!("{name}.md"));
    write(&path, &template(&name, &description, &personas, args.read_only))?;
    let shown = path.display().to_string();
    context.ui.answer(
        || json!({ "path": shown, "agent_type": name.as_str(), "agent_names": personas }),
        || shown.clone(),
    )?;
    context.ui.note(format!(
        "{} edit it, then `troupe lint {shown}` and `troupe agents show {name}`",
        style::paint(style::NAME, "next:")
    ));
    Ok(())
}

fn role_name(text: &str) -> Result<AgentType> {
    let name = AgentType::parse(text).map_err(|error| Error::usage(error.to_string()))?;
    if name.is_default() {
        return Err(Error::usage("\"default\" means to spawn without a template").hint("choose another name"));
    }
    if NEVER_TEMPLATES.contains(&name.as_str()) {
        let message = format!("{name}.md is a file for people and never a template");
        return Err(Error::usage(message).hint("choose another name"));
    }
    Ok(name)
}

/// Validates persona names. Each name has to fit into a marker and into plain YAML text.
fn persona_names(given: &[String]) -> Result<Vec<String>> {
    if given.len() > MAX_PERSONAS {
        return Err(Error::usage(format!("a new role has at most {MAX_PERSONAS} personas")));
    }
    let mut names: Vec<String> = Vec::with_capacity(given.len());
    for text in given {
        let name = match AgentType::parse(text) {
            Ok(name) => name.to_string(),
            Err(_) => {
                return Err(Error::usage(format!("invalid persona {text:?}"))
                    .hint("use letters, digits, - and _, as in \"strict\""));
            }
        };
        if names.contains(&name) {
            return Err(Error::usage(format!("persona {name:?} is named twice")));
        }
        names.push(name);
    }
    Ok(names)
}

fn description(name: &AgentType, given: Option<&str>) -> Result<String> {
    let Some(text) = given else {
        return Ok(format!("Use `{name}` for TODO, say in one line what this role is for."));
    };
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Error::usage(
            "the description is blank or has a line break or a control character",
        ));
    }
    Ok(text.to_owned())
}

/// Returns the text of a template that can be listed, resolved and linted without changes.
fn template(name: &AgentType, description: &str, personas: &[String], read_only: bool) -> String {
    let mut text = String::from("---\n");
    text.push_str(&format!("description: {}\n", quoted(description)));
    text.push_str("# Without these two keys, the values of the parent are inherited.\n");
    text.push_str("# model: gpt-5.2\n# reasoning_effort: medium\n");
    if read_only {
        text.push_str("# No write outside a scratch directory, and no network for tools.\nread_only: true\n");
    }
    if !personas.is_empty() {
        text.push_str("agent_names:\n");
    }
    for persona in personas {
        // Quoted: YAML does not read `no` and `1` as strings.
        text.push_str(&format!("  - name: {}\n", quoted(persona)));
        text.push_str(&format!(
            "    description: {}\n",
            quoted(&format!("TODO, say how {persona} differs."))
        ));
    }
    let writing: &'static [&'static str] = if read_only { &[] } else { WRITING };
    text.push_str("# Names, or globs with * and ?. All other tools are denied.\nallow_list:\n");
    push_list(&mut text, READING.iter().chain(writing));
    let kept_off: &'static [&'static str] = if read_only { WRITING } else { &[] };
    text.push_str("# Takes precedence over allow_list.\ndeny_list:\n");
    push_list(&mut text, kept_off.iter().chain(SPAWNING));
    text.push_str("---\n");
    text.push_str(&prompt(&format!("You are the role `{name}`.")));
    for persona in personas {
        text.push_str(&format!("\n<!-- agent_name: {persona} -->\n"));
        let identity = format!("You are the role `{name}` in its variant `{persona}`.");
        // A persona's text replaces the default prompt, so it has to be complete.
        text.push_str(&prompt(&identity));
    }
    text
}

fn push_list(text: &mut String, names: impl Iterator<Item = &'static &'static str>) {
    for name in names {
        text.push_str(&format!("  - {name}\n"));
    }
}

fn prompt(identity: &str) -> String {
    format!(
        "\
## Identity

{identity} TODO: say how it behaves.

## Responsibilities

- TODO: what it does, one concrete expectation a line.

## Constraints

- TODO: what it must not do.

## Output style

TODO: how its answer looks.
"
    )
}

/// Quotes the text with YAML's double quotes. The text has no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Writes a new file. Fails if the file exists.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: io::Error| Error::failure(format!("cannot write {}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::usage(format!("{} exists already", path.display()))
            .hint("edit it, or remove it first; nothing is overwritten"),
        _ => failed(error),
    })?;
    file.write_all(text.as_bytes()).map_err(failed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use registry_svc::domain::role;

    use super::*;

    fn text(personas: &[&str], read_only: bool) -> String {
        let personas: Vec<String> = personas.iter().map(ToString::to_string).collect();
        let name = role_name("auditor").unwrap();
        let description = description(&name, None).unwrap();
        template(&name, &description, &personas, read_only)
    }

    #[test]
    fn new_template_has_no_findings() {
        for personas in [&[][..], &["strict"][..], &["strict", "no", "1"][..]] {
            for read_only in [false, true] {
                let parsed = role::parse(&role_name("auditor").unwrap(), &text(personas, read_only));
                assert_eq!(parsed.findings, []);
                let template = parsed.template.unwrap();
                assert_eq!(template.complete(), Ok(()));
                assert_eq!(template.read_only, read_only);
                assert_eq!(template.personas.len(), personas.len());
                assert!(template.tools.deny.contains(&"spawn_agent".to_owned()));
                assert_eq!(template.tools.allow.contains(&"apply_patch".to_owned()), !read_only);
            }
        }
    }

    #[test]
    fn description_is_quoted_for_yaml() {
        let name = role_name("scribe").unwrap();
        let given = r#"Say "yes": # \ or no"#;
        let text = template(&name, &description(&name, Some(given)).unwrap(), &[], false);
        let parsed = role::parse(&name, &text).template.unwrap();
        assert_eq!(parsed.description.as_deref(), Some(given));
        assert!(description(&name, Some("a\nb")).is_err() && description(&name, Some(" ")).is_err());
    }

    #[test]
    fn unusable_names_are_rejected() {
        for name in ["default", "README", "agents", "a b", ""] {
            assert!(role_name(name).is_err(), "{name}");
        }
        assert_eq!(role_name("My_Role").unwrap().as_str(), "my_role");
        assert!(persona_names(&["a".to_owned(), "A".to_owned()]).is_err());
        assert!(persona_names(&["a b".to_owned()]).is_err());
    }
}
