//! Task texts: from the command line, a file or standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Maximum input size of the supervisor, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
/// Maximum length of a label that is derived from a task, in characters.
const LABEL: usize = 80;

/// A text for an agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TextArgs {
    /// Text for the agent; `-` reads standard input
    #[arg(value_name = "TEXT", conflicts_with = "message")]
    pub(crate) text: Option<String>,
    /// Text for the agent, as a flag; `-` reads standard input
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// File with the text for the agent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "message"])]
    pub(crate) file: Option<PathBuf>,
}

impl TextArgs {
    /// Returns whether a text is given.
    pub(crate) const fn is_given(&self) -> bool {
        self.text.is_some() || self.message.is_some() || self.file.is_some()
    }

    /// Returns the text.
    ///
    /// # Errors
    ///
    /// Fails if no text is given, or if the text cannot be read.
    pub(crate) fn read(&self) -> Result<String> {
        match (self.text.as_ref().or(self.message.as_ref()), &self.file) {
            (Some(text), _) => read(text),
            (None, Some(path)) => read_file(path),
            (None, None) => Err(Error::usage("no text for the agent")
                .hint("pass it as an argument, `-` for standard input, or --file FILE")),
        }
    }
}

/// Returns the text. `-` reads standard input.
pub(crate) fn read(given: &str) -> Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    read_from(io::stdin().lock(), "standard input")
}

/// Returns the text of a file.
pub(crate) fn read_file(path: &Path) -> Result<String> {
    let name = format!("\"{}\"", path.display());
    let file = File::open(path).map_err(|error| Error::failure(format!("cannot read {name}: {error}")))?;
    read_from(file, &name)
}

fn read_from(source: impl Read, name: &str) -> Result<String> {
    let mut text = String::new();
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Error::failure(format!("cannot read {name}: {error}")))?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_BYTES) {
        return Err(Error::usage(format!("{name} is longer than {MAX_BYTES} bytes"))
            .hint("store the text in the project and name the file in the task"));
    }
    Ok(text)
}

/// Returns the first line of a task that is not empty, as a label without control characters. The label has at most 80
/// characters and 128 bytes.
pub(crate) fn label(task: &str) -> String {
    let first = task
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let first = crate::sanitize::line(first);
    if first.chars().count() <= LABEL && first.len() <= 128 {
        return first;
    }
    let mut label: String = first.chars().take(LABEL - 1).collect();
    while label.len() > 120 {
        label.pop();
    }
    label.truncate(label.trim_end().len());
    label.push('…');
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_the_first_line() {
        assert_eq!(label("\n  Find the leak. \nIt is in pool.rs."), "Find the leak.");
        assert_eq!(label(""), "");
        let long = label(&"word ".repeat(40));
        assert!(long.ends_with('…') && long.chars().count() <= 80, "{long}");
        assert!(label(&"演".repeat(100)).len() <= 128);
    }
}
