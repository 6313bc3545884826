//! Ids as people type them: whole, or the end of one, or a thread's alias.
//!
//! The first characters of a UUIDv7 are the time and the same for neighbours, so tables show the last eight, and those
//! are what one types back.

use troupe_proto::{reason::Reason, supervisor::v1::Session};
use uuid::Uuid;

use crate::{
    client::Supervisor,
    error::{Error, Result},
    listing,
};

/// How many characters tables show.
const SHORT: usize = 8;
/// Fewer characters than this name nothing: they would soon be ambiguous.
const FEWEST: usize = 4;

/// The end of an id, for tables.
pub(crate) fn short(id: &str) -> &str {
    let start = id.len().saturating_sub(SHORT);
    id.get(start..).unwrap_or(id)
}

/// Whether a text is a whole id.
fn is_whole(text: &str) -> bool {
    text.parse::<Uuid>().is_ok()
}

/// Something that an id may name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    id: String,
    alias: String,
}

impl Candidate {
    fn is_meant_by(&self, text: &str) -> bool {
        let by_alias = !self.alias.is_empty() && self.alias.eq_ignore_ascii_case(text);
        by_alias || (text.len() >= FEWEST && self.id.ends_with(&text.to_ascii_lowercase()))
    }
}

/// The one candidate that a text means.
fn pick(what: &str, text: &str, candidates: Vec<Candidate>) -> Result<String> {
    let mut meant = candidates.into_iter().filter(|candidate| candidate.is_meant_by(text));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only.id),
        (Some(one), Some(other)) => Err(Error::failure(format!(
            "{what} {text:?} is ambiguous; it could be {} or {}",
            one.id, other.id
        ))
        .hint("type more of it")),
        (None, _) => Err(Error::failure(format!("no {what} is named {text:?}"))
            .hint("`troupe ps --closed` lists every session and thread")),
    }
}

/// The id of the session that a text names.
pub(crate) async fn session(supervisor: &mut Supervisor, text: &str) -> Result<String> {
    if is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    pick(
        "session",
        text,
        session_candidates(&visible_sessions(supervisor).await?),
    )
}

/// The id of the thread that a text names, looked for in one session or in all.
pub(crate) async fn thread(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<String> {
    if is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let sessions = match session {
        Some(session) => vec![session.to_owned()],
        None => visible_sessions(supervisor)
            .await?
            .into_iter()
            .map(|session| session.session_id)
            .collect(),
    };
    pick("thread", text, thread_candidates(supervisor, &sessions).await?)
}

/// What a watch can follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A whole session.
    Session(String),
    /// A thread and its descendants.
    Thread(String),
}

/// The session or the thread that a text names.
pub(crate) async fn target(supervisor: &mut Supervisor, text: &str) -> Result<Target> {
    let sessions = visible_sessions(supervisor).await?;
    let lower = text.to_ascii_lowercase();
    if is_whole(text) {
        let is_session = sessions.iter().any(|session| session.session_id == lower);
        return Ok(if is_session {
            Target::Session(lower)
        } else {
            Target::Thread(lower)
        });
    }
    if let Ok(session) = pick("session", text, session_candidates(&sessions)) {
        return Ok(Target::Session(session));
    }
    let ids: Vec<String> = sessions.into_iter().map(|session| session.session_id).collect();
    pick("session or thread", text, thread_candidates(supervisor, &ids).await?).map(Target::Thread)
}

/// Every session, closed ones too. To a thread, which may not list them, its own (by its empty id).
async fn visible_sessions(supervisor: &mut Supervisor) -> Result<Vec<Session>> {
    match listing::sessions(supervisor, true).await {
        Err(error) if error.reason() == Some(Reason::NotPermitted.as_str()) => Ok(vec![Session::default()]),
        sessions => sessions,
    }
}

fn session_candidates(sessions: &[Session]) -> Vec<Candidate> {
    let named = sessions.iter().filter(|session| !session.session_id.is_empty());
    named
        .map(|session| Candidate {
            id: session.session_id.clone(),
            alias: String::new(),
        })
        .collect()
}

async fn thread_candidates(supervisor: &mut Supervisor, sessions: &[String]) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for session in sessions {
        let threads = listing::threads(supervisor, session, true).await?;
        candidates.extend(threads.into_iter().map(|thread| Candidate {
            id: thread.thread_id,
            alias: thread.alias,
        }));
    }
    Ok(candidates)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Candidate> {
        [
            ("01939c5a-0000-7000-8000-00000000aa01", "scout"),
            ("01939c5a-0000-7000-8000-00000000ab01", ""),
            ("01939c5a-0000-7000-8000-0000000000ff", ""),
        ]
        .map(|(id, alias)| Candidate {
            id: id.to_owned(),
            alias: alias.to_owned(),
        })
        .to_vec()
    }

    #[test]
    fn the_end_of_an_id_is_enough() {
        let id = "01939c5a-0000-7000-8000-00000000aa01";
        assert_eq!(short(id), "0000aa01");
        assert_eq!(pick("thread", short(id), candidates()).unwrap(), id);
        assert_eq!(pick("thread", "00AA01", candidates()).unwrap(), id);
        assert_eq!(pick("thread", "Scout", candidates()).unwrap(), id);
    }

    #[test]
    fn too_little_and_too_much_are_refused() {
        assert!(pick("thread", "ff", candidates()).is_err(), "too short");
        assert!(
            pick("thread", "beef", candidates())
                .unwrap_err()
                .message()
                .contains("no thread")
        );
        let two = vec![candidates().remove(0), candidates().remove(0)];
        assert!(pick("thread", "aa01", two).unwrap_err().message().contains("ambiguous"));
    }

    #[test]
    fn short_ids_of_anything() {
        assert_eq!(short(""), "");
        assert_eq!(short("abc"), "abc");
        assert_eq!(short("ééééééééé"), "éééé");
    }
}
