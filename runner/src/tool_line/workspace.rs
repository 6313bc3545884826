//! The calls of the five tools that work in a thread's directory, and their required arguments.

use serde_json::{Map, Value};

/// A tool that works in the thread's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceTool {
    /// Runs a command.
    Command,
    /// Reads a file.
    ReadFile,
    /// Writes a complete file.
    WriteFile,
    /// Lists a directory.
    ListFiles,
    /// Deletes a file.
    DeleteFile,
}

impl WorkspaceTool {
    const ALL: [Self; 5] = [
        Self::Command,
        Self::ReadFile,
        Self::WriteFile,
        Self::ListFiles,
        Self::DeleteFile,
    ];

    /// Returns the tool with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the tool's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::ListFiles => "list_files",
            Self::DeleteFile => "delete_file",
        }
    }

    /// Reads the arguments. Unknown arguments are ignored, and an argument of a wrong type counts as missing.
    ///
    /// # Errors
    ///
    /// A required argument is missing.
    pub fn read(self, mut args: Map<String, Value>) -> Result<WorkspaceCall, ArgumentError> {
        let mut text = |key: &str| match args.remove(key) {
            Some(Value::String(text)) => Some(text),
            Some(_) | None => None,
        };
        let is_given = |text: &String| !text.is_empty();
        let here = || ".".to_owned();
        let nothing = Some(String::new());
        let (path, text, missing) = match self {
            Self::Command => (
                Some(text("cwd").unwrap_or_else(here)),
                text("cmd").filter(is_given),
                "command tool requires cmd",
            ),
            Self::ReadFile => (text("path").filter(is_given), nothing, "read_file requires path"),
            // An empty content is valid.
            Self::WriteFile => (
                text("path").filter(is_given),
                text("content"),
                "write_file requires path and content",
            ),
            Self::ListFiles => (Some(text("path").unwrap_or_else(here)), nothing, ""),
            Self::DeleteFile => (text("path").filter(is_given), nothing, "delete_file requires path"),
        };
        let (Some(path), Some(text)) = (path, text) else {
            return Err(ArgumentError(missing));
        };
        Ok(WorkspaceCall { tool: self, path, text })
    }
}

/// A call of a tool that works in the thread's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceCall {
    /// The tool.
    pub tool: WorkspaceTool,
    /// The path as the agent wrote it. For a command, its working directory.
    pub path: String,
    /// The shell command, or the complete text of a file to write. Empty for the other tools.
    pub text: String,
}

/// A missing argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(&'static str);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, args: &Value) -> Result<WorkspaceCall, String> {
        let tool = WorkspaceTool::named(name).unwrap();
        let call = tool.read(args.as_object().unwrap().clone());
        call.map_err(|error| error.to_string())
    }

    #[test]
    fn valid_tool_arguments_are_accepted() {
        for (name, args, expected) in [
            (
                "command",
                json!({"cmd": "make", "cwd": 7}),
                WorkspaceCall {
                    tool: WorkspaceTool::Command,
                    path: ".".to_owned(),
                    text: "make".to_owned(),
                },
            ),
            (
                "write_file",
                json!({"path": "a/b", "content": "", "mode": 7}),
                WorkspaceCall {
                    tool: WorkspaceTool::WriteFile,
                    path: "a/b".to_owned(),
                    text: String::new(),
                },
            ),
        ] {
            assert_eq!(read(name, &args), Ok(expected), "{name} {args}");
        }
    }

    #[test]
    fn invalid_tool_arguments_are_rejected() {
        for (name, args, expected) in [
            ("command", json!({}), "command tool requires cmd"),
            ("command", json!({"cmd": ""}), "command tool requires cmd"),
            ("command", json!({"cmd": ["ls"]}), "command tool requires cmd"),
            ("read_file", json!({"file": "a"}), "read_file requires path"),
            ("read_file", json!({"path": null}), "read_file requires path"),
            (
                "write_file",
                json!({"path": "a"}),
                "write_file requires path and content",
            ),
            (
                "write_file",
                json!({"content": "a"}),
                "write_file requires path and content",
            ),
            (
                "write_file",
                json!({"path": "a", "content": {"a": 1}}),
                "write_file requires path and content",
            ),
            ("delete_file", json!({"path": ""}), "delete_file requires path"),
        ] {
            assert_eq!(read(name, &args), Err(expected.to_owned()), "{name} {args}");
        }
    }
}
