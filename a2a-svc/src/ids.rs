//! The ids of contexts and tasks. A context is a session. A task is named after the input that began it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a task: `SESSION-NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TaskId {
    pub(crate) context: String,
    pub(crate) number: u32,
}

impl TaskId {
    /// Parses an id. `None`: no task has this id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (context, number) = text.rsplit_once('-')?;
        let context = parse_context(context)?;
        let number: u32 = number.parse().ok()?;
        let id = Self { context, number };
        // A task has only one id: other spellings of the number, such as `01`, are rejected.
        (id.to_string() == text && number > 0).then_some(id)
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.context, self.number)
    }
}

/// Parses the id of a context. `None`: no context has this id.
pub(crate) fn parse_context(text: &str) -> Option<String> {
    let id = Uuid::try_parse(text).ok()?.to_string();
    (id == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_id_has_one_spelling() {
        let id = "01a1fc89-0902-7629-98ed-9dce17881f00-3";
        assert_eq!(TaskId::parse(id).map(|id| id.to_string()).as_deref(), Some(id));
        for text in [
            "",
            "3",
            "01a1fc89-0902-7629-98ed-9dce17881f00",
            "01a1fc89-0902-7629-98ed-9dce17881f00-03",
            "01a1fc89-0902-7629-98ed-9dce17881f00-0",
            "01A1FC89-0902-7629-98ED-9DCE17881F00-3",
            "01a1fc89-0902-7629-98ed-9dce17881f00-99999999999",
        ] {
            assert_eq!(TaskId::parse(text), None, "{text}");
        }
    }
}
