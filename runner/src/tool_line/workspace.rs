//! The calls of the five tools that work in a thread's directory, and their required arguments.

use serde_json::{Map, Value};

/// A tool that works in the thread's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceTool {
    /// Runs a command.
    Command,
    /// Reads a file.
    ReadFile,
    /// Writes a file, whole.
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

    /// Returns the tool of that name.
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
        match self {
            Self::Command => Ok(WorkspaceCall::Command {
                cmd: text("cmd").filter(is_given).ok_or(ArgumentError::Command)?,
                cwd: text("cwd").unwrap_or_else(here),
            }),
            Self::ReadFile => Ok(WorkspaceCall::ReadFile {
                path: text("path").filter(is_given).ok_or(ArgumentError::ReadFile)?,
            }),
            Self::WriteFile => Ok(WorkspaceCall::WriteFile {
                path: text("path").filter(is_given).ok_or(ArgumentError::WriteFile)?,
                content: text("content").ok_or(ArgumentError::WriteFile)?,
            }),
            Self::ListFiles => Ok(WorkspaceCall::ListFiles {
                path: text("path").unwrap_or_else(here),
            }),
            Self::DeleteFile => Ok(WorkspaceCall::DeleteFile {
                path: text("path").filter(is_given).ok_or(ArgumentError::DeleteFile)?,
            }),
        }
    }
}

fn here() -> String {
    ".".to_owned()
}

/// A call of such a tool. Paths are unchanged from the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceCall {
    /// Run a command.
    Command {
        /// The command, for the shell.
        cmd: String,
        /// Where to run it.
        cwd: String,
    },
    /// Read a file.
    ReadFile {
        /// The file.
        path: String,
    },
    /// Write a file.
    WriteFile {
        /// The file.
        path: String,
        /// All of its text.
        content: String,
    },
    /// List a directory.
    ListFiles {
        /// The directory.
        path: String,
    },
    /// Delete a file.
    DeleteFile {
        /// The file.
        path: String,
    },
}

impl WorkspaceCall {
    /// The tool.
    #[must_use]
    pub const fn tool(&self) -> WorkspaceTool {
        match self {
            Self::Command { .. } => WorkspaceTool::Command,
            Self::ReadFile { .. } => WorkspaceTool::ReadFile,
            Self::WriteFile { .. } => WorkspaceTool::WriteFile,
            Self::ListFiles { .. } => WorkspaceTool::ListFiles,
            Self::DeleteFile { .. } => WorkspaceTool::DeleteFile,
        }
    }

    /// Returns the path that the call refers to.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Command { cwd: path, .. }
            | Self::ReadFile { path }
            | Self::WriteFile { path, .. }
            | Self::ListFiles { path }
            | Self::DeleteFile { path } => path,
        }
    }
}

/// A missing argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A command without text.
    #[error("command tool requires cmd")]
    Command,
    /// No path to read.
    #[error("read_file requires path")]
    ReadFile,
    /// No path or no content to write. Empty content is valid.
    #[error("write_file requires path and content")]
    WriteFile,
    /// No path to delete.
    #[error("delete_file requires path")]
    DeleteFile,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, args: &Value) -> Result<WorkspaceCall, String> {
        let tool = WorkspaceTool::named(name).unwrap();
        let call = tool.read(args.as_object().unwrap().clone());
        if let Ok(call) = &call {
            assert_eq!(call.tool(), tool);
        }
        call.map_err(|error| error.to_string())
    }

    #[test]
    fn valid_tool_arguments_are_accepted() {
        for (name, args, expected) in [
            (
                "command",
                json!({"cmd": "make", "cwd": 7}),
                WorkspaceCall::Command {
                    cmd: "make".to_owned(),
                    cwd: here(),
                },
            ),
            (
                "write_file",
                json!({"path": "a/b", "content": "", "mode": 7}),
                WorkspaceCall::WriteFile {
                    path: "a/b".to_owned(),
                    content: String::new(),
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
