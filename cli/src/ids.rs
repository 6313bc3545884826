//! Ids as typed by a person: a complete id, its last characters, or a thread's alias.
//!
//! The first characters of a UUIDv7 encode the time and are equal for ids of about the same time. Tables therefore show
//! the last eight characters, and commands accept them.

use std::collections::HashSet;

use troupe_proto::{
    reason::Reason,
    supervisor::v1::{Approval, Edge, GetThreadRequest, Session, Thread},
};
use uuid::Uuid;

use crate::{
    client::Supervisor,
    error::{Error, Result},
    listing,
};

/// Number of characters of an id in tables.
const SHORT: usize = 8;
/// Minimum number of characters that identify an object. Fewer would soon be ambiguous.
const FEWEST: usize = 4;

/// Returns the last characters of an id, for tables.
pub(crate) fn short(id: &str) -> &str {
    let start = id.len().saturating_sub(SHORT);
    id.get(start..).unwrap_or(id)
}

/// Returns whether a text is a complete id.
fn is_whole(text: &str) -> bool {
    text.parse::<Uuid>().is_ok()
}

/// An object that an id may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    id: String,
    alias: String,
}

impl Candidate {
    /// Creates a candidate without an alias.
    fn plain(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            alias: String::new(),
        }
    }

    fn is_meant_by(&self, text: &str) -> bool {
        let by_alias = !self.alias.is_empty() && self.alias.eq_ignore_ascii_case(text);
        by_alias || (text.len() >= FEWEST && self.id.ends_with(&text.to_ascii_lowercase()))
    }
}

/// The kind of object that an id refers to.
#[derive(Clone, Copy)]
enum Thing {
    Session,
    Thread,
    SessionOrThread,
    Approval,
    Edge,
}

impl Thing {
    const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Thread => "thread",
            Self::SessionOrThread => "session or thread",
            Self::Approval => "approval",
            Self::Edge => "edge",
        }
    }

    /// Returns a hint for finding the right id.
    const fn hint(self) -> &'static str {
        match self {
            Self::Session | Self::Thread | Self::SessionOrThread => {
                "`troupe ps --closed` lists every session and thread"
            }
            Self::Approval => "`troupe approvals --all` lists those of every open session",
            Self::Edge => "`troupe edges` lists those of every open session",
        }
    }
}

/// Returns the id of the only candidate that matches the text.
fn pick(thing: Thing, text: &str, candidates: Vec<Candidate>) -> Result<String> {
    let what = thing.name();
    let mut meant = candidates.into_iter().filter(|candidate| candidate.is_meant_by(text));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only.id),
        (Some(one), Some(other)) => Err(Error::failure(format!(
            "{what} {text:?} is ambiguous; it could be {} or {}",
            one.id, other.id
        ))
        .hint("type more of it")),
        (None, _) => {
            let unknown = Error::failure(format!("no {what} is named {text:?}"));
            Err(if text.len() < FEWEST {
                unknown.hint(format!("type at least {FEWEST} characters of the end of its id"))
            } else {
                unknown.hint(thing.hint())
            })
        }
    }
}

/// Resolves the text to a session id.
pub(crate) async fn session(supervisor: &mut Supervisor, text: &str) -> Result<String> {
    if is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let sessions = visible_sessions(supervisor, true).await?;
    pick(Thing::Session, text, session_candidates(&sessions))
}

/// Resolves the text to a thread id in one session or in all sessions.
pub(crate) async fn thread(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<String> {
    if is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let sessions = match session {
        Some(session) => vec![session.to_owned()],
        None => ids_of(visible_sessions(supervisor, true).await?),
    };
    thread_among(supervisor, Thing::Thread, text, &sessions).await
}

/// Two threads of one session.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// The session of both threads.
    pub(crate) session: String,
    /// The sender.
    pub(crate) from: String,
    /// The receiver.
    pub(crate) to: String,
}

/// Resolves two texts to threads. The second thread is searched in the session of the first one.
pub(crate) async fn ends(supervisor: &mut Supervisor, from: &str, to: &str) -> Result<Ends> {
    let from = thread(supervisor, from, None).await?;
    let sender = GetThreadRequest {
        thread_id: from.clone(),
        ..GetThreadRequest::default()
    };
    let sender = supervisor.get_thread(sender).await?.into_inner().thread;
    let session = sender.map(|thread| thread.session_id).unwrap_or_default();
    let to = thread(supervisor, to, Some(&session)).await?;
    Ok(Ends { session, from, to })
}

/// Resolves the text to an approval, pending or decided, in one session or in all open sessions.
pub(crate) async fn approval(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<Approval> {
    let mut approvals = Vec::new();
    for session in open_sessions(supervisor, session).await? {
        approvals.extend(listing::approvals(supervisor, &session, true).await?);
    }
    let named = approvals.iter().map(|approval| Candidate::plain(&approval.approval_id));
    let id = pick(Thing::Approval, text, named.collect())?;
    let found = approvals.into_iter().find(|approval| approval.approval_id == id);
    found.ok_or_else(|| Error::failure(format!("approval {id} is gone")))
}

/// Resolves the text to an edge and its session, in one session or in all open sessions.
pub(crate) async fn edge(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<(String, Edge)> {
    let mut edges = Vec::new();
    for session in open_sessions(supervisor, session).await? {
        let found = listing::edges(supervisor, &session, None).await?;
        edges.extend(found.into_iter().map(|edge| (session.clone(), edge)));
    }
    let named = edges.iter().map(|(_, edge)| Candidate::plain(&edge.edge_id));
    let id = pick(Thing::Edge, text, named.collect())?;
    let found = edges.into_iter().find(|(_, edge)| edge.edge_id == id);
    found.ok_or_else(|| Error::failure(format!("edge {id} is gone")))
}

/// Resolves the text to a session id. Without a text, returns all open sessions. For a thread, this is the empty id,
/// which refers to its own session.
pub(crate) async fn open_sessions(supervisor: &mut Supervisor, named: Option<&str>) -> Result<Vec<String>> {
    match named {
        Some(text) => Ok(vec![session(supervisor, text).await?]),
        None => Ok(ids_of(visible_sessions(supervisor, false).await?)),
    }
}

/// Resolves the text to a session id. Without a text, returns the newest open session.
pub(crate) async fn session_or_newest(supervisor: &mut Supervisor, named: Option<&str>) -> Result<String> {
    match named {
        Some(text) => session(supervisor, text).await,
        None => {
            let sessions = listing::sessions(supervisor, false).await?;
            let newest = sessions.into_iter().next().ok_or_else(|| {
                Error::failure("there is no open session")
                    .hint("`troupe spawn TYPE -m MESSAGE` opens one; `troupe ps --closed` lists old ones")
            })?;
            Ok(newest.session_id)
        }
    }
}

/// The target of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A complete session.
    Session(String),
    /// A thread and its descendants.
    Thread(String),
}

/// Resolves the text to a session or a thread.
pub(crate) async fn target(supervisor: &mut Supervisor, text: &str) -> Result<Target> {
    let sessions = visible_sessions(supervisor, true).await?;
    let lower = text.to_ascii_lowercase();
    if is_whole(text) {
        let is_session = sessions.iter().any(|session| session.session_id == lower);
        return Ok(if is_session {
            Target::Session(lower)
        } else {
            Target::Thread(lower)
        });
    }
    if let Ok(session) = pick(Thing::Session, text, session_candidates(&sessions)) {
        return Ok(Target::Session(session));
    }
    let sessions = ids_of(sessions);
    let thread = thread_among(supervisor, Thing::SessionOrThread, text, &sessions).await;
    thread.map(Target::Thread)
}

/// Returns all open sessions, and closed ones on request. A thread may not list sessions, so it gets the empty id,
/// which refers to its own session.
async fn visible_sessions(supervisor: &mut Supervisor, include_closed: bool) -> Result<Vec<Session>> {
    match listing::sessions(supervisor, include_closed).await {
        Err(error) if error.reason() == Some(Reason::NotPermitted.as_str()) => Ok(vec![Session::default()]),
        sessions => sessions,
    }
}

fn ids_of(sessions: Vec<Session>) -> Vec<String> {
    sessions.into_iter().map(|session| session.session_id).collect()
}

fn session_candidates(sessions: &[Session]) -> Vec<Candidate> {
    let named = sessions.iter().filter(|session| !session.session_id.is_empty());
    named.map(|session| Candidate::plain(&session.session_id)).collect()
}

/// Returns the only thread of these sessions that matches the text. An unreadable session does not hide the others; its
/// error is returned if no other session has a match.
async fn thread_among(supervisor: &mut Supervisor, thing: Thing, text: &str, sessions: &[String]) -> Result<String> {
    let mut candidates = Vec::new();
    let mut unread = None;
    for session in sessions {
        match listing::threads(supervisor, session, true).await {
            Ok(threads) => candidates.extend(of_session(threads)),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    match unread {
        Some(error) if !candidates.iter().any(|candidate| candidate.is_meant_by(text)) => Err(error),
        _ => pick(thing, text, candidates),
    }
}

/// Returns the threads of one session as candidates, in spawn order. An alias refers to the last thread that received
/// it: earlier threads released it when their spawns were denied.
fn of_session(threads: Vec<Thread>) -> Vec<Candidate> {
    let mut given = HashSet::new();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(threads.len());
    for thread in threads.into_iter().rev() {
        let mut candidate = Candidate::plain(&thread.thread_id);
        if given.insert(thread.alias.to_lowercase()) {
            candidate.alias = thread.alias;
        }
        candidates.push(candidate);
    }
    candidates.reverse();
    candidates
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
        assert_eq!(pick(Thing::Thread, short(id), candidates()).unwrap(), id);
        assert_eq!(pick(Thing::Thread, "00AA01", candidates()).unwrap(), id);
        assert_eq!(pick(Thing::Thread, "Scout", candidates()).unwrap(), id);
    }

    #[test]
    fn an_alias_that_was_given_back_names_who_has_it_now() {
        let thread = |id: &str, alias: &str| Thread {
            thread_id: id.to_owned(),
            alias: alias.to_owned(),
            ..Thread::default()
        };
        let threads = vec![
            thread("denied", "Scout"),
            thread("other", ""),
            thread("present", "scout"),
        ];
        let found = of_session(threads);
        assert_eq!(pick(Thing::Thread, "scout", found.clone()).unwrap(), "present");
        assert_eq!(
            pick(Thing::Thread, "denied", found).unwrap(),
            "denied",
            "in their order, with their ids"
        );
    }

    #[test]
    fn too_little_and_too_much_are_refused() {
        let short = pick(Thing::Thread, "ff", candidates()).unwrap_err();
        assert!(short.remedy().unwrap().contains("at least 4 characters"), "{short:?}");
        assert!(
            pick(Thing::Thread, "beef", candidates())
                .unwrap_err()
                .message()
                .contains("no thread")
        );
        let error = pick(Thing::Approval, "beef", candidates()).unwrap_err();
        assert!(error.remedy().unwrap().contains("troupe approvals"), "{error:?}");
        let two = vec![candidates().remove(0), candidates().remove(0)];
        assert!(
            pick(Thing::Thread, "aa01", two)
                .unwrap_err()
                .message()
                .contains("ambiguous")
        );
    }

    #[test]
    fn short_ids_of_anything() {
        assert_eq!(short(""), "");
        assert_eq!(short("abc"), "abc");
        assert_eq!(short("ééééééééé"), "éééé");
    }
}
