//! Content stored outside of the events: messages that are too long for a status.

use troupe_client::Supervisor;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{GetContentRequest, Status},
};

use crate::error::{Error, Result};

/// Returns the complete text of a content.
pub(crate) async fn text(supervisor: &mut Supervisor, session: &str, digest: &str) -> Result<String> {
    let bytes = bytes(supervisor, session, digest).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a complete content.
pub(crate) async fn bytes(supervisor: &mut Supervisor, session: &str, digest: &str) -> Result<Vec<u8>> {
    let request = GetContentRequest {
        session_id: session.to_owned(),
        digest: digest.to_owned(),
    };
    let mut parts = supervisor.get_content(request).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await? {
        bytes.extend_from_slice(&part.data);
    }
    Ok(bytes)
}

/// The available part of a thread's last message.
#[derive(Debug)]
pub(crate) enum LastMessage {
    /// The complete message.
    Whole(String),
    /// The beginning of the message. The complete message was not stored, in most cases because the session's content
    /// quota was exhausted.
    NotKept(String),
    /// The beginning of the message. The complete message was stored but is lost.
    Lost {
        /// The beginning of the message.
        beginning: String,
        /// The supervisor's error.
        why: Error,
    },
}

impl LastMessage {
    /// Returns the available text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Whole(text) | Self::NotKept(text) => text,
            Self::Lost { beginning, .. } => beginning,
        }
    }

    /// Returns the name of the variant for JSON output.
    pub(crate) const fn extent(&self) -> &'static str {
        match self {
            Self::Whole(_) => "whole",
            Self::NotKept(_) => "not_kept",
            Self::Lost { .. } => "lost",
        }
    }
}

/// Returns the complete message of a status if it is available, otherwise its beginning.
pub(crate) async fn last_message(supervisor: &mut Supervisor, session: &str, status: &Status) -> Result<LastMessage> {
    let Some(content) = &status.content else {
        return Ok(LastMessage::Whole(status.message.clone()));
    };
    let beginning = status.message.clone();
    match text(supervisor, session, &content.digest).await {
        Ok(text) => Ok(LastMessage::Whole(text)),
        Err(why) if why.reason() == Some(Reason::NotFound.as_str()) => Ok(LastMessage::NotKept(beginning)),
        Err(why) if why.reason() == Some(Reason::CorruptRecord.as_str()) => Ok(LastMessage::Lost { beginning, why }),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_message_reports_its_extent() {
        let beginning = || String::from("It begins");
        let lost = LastMessage::Lost {
            beginning: beginning(),
            why: Error::failure("content is missing"),
        };
        for (message, extent) in [
            (LastMessage::Whole(beginning()), "whole"),
            (LastMessage::NotKept(beginning()), "not_kept"),
            (lost, "lost"),
        ] {
            assert_eq!((message.text(), message.extent()), ("It begins", extent));
        }
    }
}
