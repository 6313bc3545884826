//! Ids as typed by a person: a complete id, its first or last characters, a thread's alias, or `@last`.
//!
//! The first characters of a UUIDv7 encode the time and are equal for ids of about the same time. Tables therefore show
//! the last eight characters.

use std::{collections::HashSet, env, path::Path};

use troupe_client::Supervisor;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{Approval, Edge, GetThreadRequest, Session, Thread},
};
use uuid::Uuid;

use crate::{
    error::{Error, Result},
    listing, sanitize, suggest,
};

/// Number of characters of an id that tables show.
pub(crate) const SHORT: usize = 8;
/// Minimum number of characters that identify an object. Shorter texts would soon be ambiguous.
const MIN_PART: usize = 4;
/// The text that stands for the newest object.
const LAST: &str = "@last";
/// Maximum number of candidates in an error message.
const MAX_LISTED: usize = 3;

/// Returns the last characters of an id, for tables.
pub(crate) fn short(id: &str) -> &str {
    let start = id.len().saturating_sub(SHORT);
    id.get(start..).unwrap_or(id)
}

/// Returns whether a text is a complete id.
fn is_complete(text: &str) -> bool {
    text.parse::<Uuid>().is_ok()
}

/// An object that an id may refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Candidate {
    id: String,
    alias: String,
    /// The role of a thread, for messages.
    role: String,
}

impl Candidate {
    /// Creates a candidate without an alias.
    fn plain(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..Self::default()
        }
    }

    fn has_alias(&self, text: &str) -> bool {
        !self.alias.is_empty() && self.alias.eq_ignore_ascii_case(text)
    }

    fn is_match(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let is_part = self.id.ends_with(&text) || self.id.starts_with(&text);
        self.has_alias(&text) || (text.len() >= MIN_PART && is_part)
    }

    /// Describes the candidate in a message: `01939c5a-... (worker "scout")`.
    fn describe(&self) -> String {
        match (self.role.as_str(), self.alias.as_str()) {
            ("", _) => self.id.clone(),
            (role, "") => format!("{} ({})", self.id, sanitize::line(role)),
            (role, alias) => format!("{} ({} \"{}\")", self.id, sanitize::line(role), sanitize::line(alias)),
        }
    }
}

/// The kind of object that an id refers to.
#[derive(Clone, Copy)]
enum ObjectKind {
    Session,
    Thread,
    SessionOrThread,
    Approval,
    Edge,
}

impl ObjectKind {
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
                "`troupe ps --closed` lists all sessions and threads"
            }
            Self::Approval => "`troupe approvals --all` lists the approvals of all open sessions",
            Self::Edge => "`troupe edges` lists the edges of all open sessions",
        }
    }
}

/// Returns the id of the only candidate that matches the text.
fn pick(kind: ObjectKind, text: &str, mut candidates: Vec<Candidate>) -> Result<String> {
    let what = kind.name();
    if text == LAST {
        // UUIDv7 ids are ordered by the time of their creation.
        let newest = candidates.into_iter().map(|candidate| candidate.id).max();
        return newest.ok_or_else(|| Error::not_found(format!("there is no {what}")).hint(kind.hint()));
    }
    // An alias wins over a part of an id.
    if candidates.iter().filter(|candidate| candidate.has_alias(text)).count() == 1 {
        candidates.retain(|candidate| candidate.has_alias(text));
    }
    let meant: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.is_match(text)).collect();
    match meant.as_slice() {
        [only] => Ok(only.id.clone()),
        [] => Err(unknown(kind, text, &candidates)),
        several => {
            let mut listed: Vec<String> = several.iter().take(MAX_LISTED).map(|one| one.describe()).collect();
            if several.len() > MAX_LISTED {
                listed.push(format!("{} more", several.len() - MAX_LISTED));
            }
            let listed = listed.join(", ");
            Err(
                Error::usage(format!("{what} \"{text}\" is ambiguous; it matches {listed}"))
                    .hint("type more characters of the id"),
            )
        }
    }
}

/// Returns the error for a text that matches no candidate, with a suggestion if one is similar.
fn unknown(kind: ObjectKind, text: &str, candidates: &[Candidate]) -> Error {
    let unknown = Error::not_found(format!("unknown {} \"{text}\"", kind.name()));
    let aliases = candidates
        .iter()
        .map(|candidate| candidate.alias.as_str())
        .filter(|alias| !alias.is_empty());
    let ids = candidates.iter().map(|candidate| short(&candidate.id));
    match suggest::closest(text, aliases.chain(ids)) {
        Some(similar) => unknown.hint(format!("did you mean \"{}\"? {}", sanitize::line(similar), kind.hint())),
        None if text.len() < MIN_PART => unknown.hint(format!("type at least {MIN_PART} characters of the id")),
        None => unknown.hint(kind.hint()),
    }
}

/// Resolves the text to a session id.
pub(crate) async fn session(supervisor: &mut Supervisor, text: &str) -> Result<String> {
    if is_complete(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let sessions = visible_sessions(supervisor, true).await?;
    pick(ObjectKind::Session, text, session_candidates(&sessions))
}

/// Resolves the text to a thread id in one session or in all sessions.
pub(crate) async fn thread(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<String> {
    if is_complete(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let sessions = match session {
        Some(session) => vec![session.to_owned()],
        None => ids_of(visible_sessions(supervisor, true).await?),
    };
    thread_among(supervisor, ObjectKind::Thread, text, &sessions).await
}

/// Resolves the text to a thread.
pub(crate) async fn thread_in(supervisor: &mut Supervisor, text: &str) -> Result<Thread> {
    let request = GetThreadRequest {
        thread_id: thread(supervisor, text, None).await?,
        ..GetThreadRequest::default()
    };
    let answer = supervisor.get_thread(request).await?.into_inner();
    answer.thread.ok_or_else(Error::empty_answer)
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
    let sender = thread_in(supervisor, from).await?;
    let to = thread(supervisor, to, Some(&sender.session_id)).await?;
    Ok(Ends {
        session: sender.session_id,
        from: sender.thread_id,
        to,
    })
}

/// Resolves the text to an approval, pending or decided, in one session or in all open sessions.
pub(crate) async fn approval(supervisor: &mut Supervisor, text: &str, session: Option<&str>) -> Result<Approval> {
    let mut approvals = Vec::new();
    for session in open_sessions(supervisor, session).await? {
        approvals.extend(listing::approvals(supervisor, &session, true).await?);
    }
    let named = approvals.iter().map(|approval| Candidate::plain(&approval.approval_id));
    let id = pick(ObjectKind::Approval, text, named.collect())?;
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
    let id = pick(ObjectKind::Edge, text, named.collect())?;
    let found = edges.into_iter().find(|(_, edge)| edge.edge_id == id);
    found.ok_or_else(|| Error::failure(format!("edge {id} is gone")))
}

/// Resolves the text to a session id. Without a text, returns the ids of all open sessions. If the caller is a thread,
/// returns the empty id instead, which refers to the thread's own session.
pub(crate) async fn open_sessions(supervisor: &mut Supervisor, named: Option<&str>) -> Result<Vec<String>> {
    match named {
        Some(text) => Ok(vec![session(supervisor, text).await?]),
        None => Ok(ids_of(visible_sessions(supervisor, false).await?)),
    }
}

/// Resolves the text to a session id. Without a text, returns the current session: the newest open session of the
/// working directory or of its nearest parent directory with one, otherwise the newest open session.
pub(crate) async fn session_or_current(supervisor: &mut Supervisor, named: Option<&str>) -> Result<String> {
    if let Some(text) = named {
        return session(supervisor, text).await;
    }
    let sessions = listing::sessions(supervisor, false).await?;
    let directory = env::current_dir().unwrap_or_default();
    current(&sessions, &directory)
        .map(|session| session.session_id.clone())
        .ok_or_else(|| {
            Error::not_found("there is no open session")
                .hint("`troupe spawn ROLE 'TASK'` opens one; `troupe ps --closed` lists closed ones")
        })
}

/// Returns the current session of a directory. The sessions are ordered, newest first.
fn current<'a>(sessions: &'a [Session], directory: &Path) -> Option<&'a Session> {
    directory
        .ancestors()
        .find_map(|parent| sessions.iter().find(|session| Path::new(&session.cwd) == parent))
        .or_else(|| sessions.first())
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
    if is_complete(text) {
        let is_session = sessions.iter().any(|session| session.session_id == lower);
        return Ok(if is_session {
            Target::Session(lower)
        } else {
            Target::Thread(lower)
        });
    }
    if let Ok(session) = pick(ObjectKind::Session, text, session_candidates(&sessions)) {
        return Ok(Target::Session(session));
    }
    let sessions = ids_of(sessions);
    let thread = thread_among(supervisor, ObjectKind::SessionOrThread, text, &sessions).await;
    thread.map(Target::Thread)
}

/// Returns all open sessions, and closed sessions on request. A thread may not list sessions. For a thread, returns one
/// session with an empty id, which refers to the thread's own session.
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
async fn thread_among(
    supervisor: &mut Supervisor,
    kind: ObjectKind,
    text: &str,
    sessions: &[String],
) -> Result<String> {
    let mut candidates = Vec::new();
    let mut unread = None;
    for session in sessions {
        match listing::threads(supervisor, session, true).await {
            Ok(threads) => candidates.extend(of_session(threads)),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    match unread {
        Some(error) if !candidates.iter().any(|candidate| candidate.is_match(text)) => Err(error),
        _ => pick(kind, text, candidates),
    }
}

/// Returns the threads of one session as candidates, in spawn order. An alias refers to the last thread that received
/// it: earlier threads released it when their spawns were denied.
fn of_session(threads: Vec<Thread>) -> Vec<Candidate> {
    let mut given = HashSet::new();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(threads.len());
    for thread in threads.into_iter().rev() {
        let mut candidate = Candidate::plain(&thread.thread_id);
        candidate.role = thread.agent_type;
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
            ("01939c5b-0000-7000-8000-00000000ab01", ""),
            ("01939c5c-0000-7000-8000-0000000000ff", ""),
        ]
        .map(|(id, alias)| Candidate {
            id: id.to_owned(),
            alias: alias.to_owned(),
            role: "worker".to_owned(),
        })
        .to_vec()
    }

    #[test]
    fn unique_part_of_id_selects_object() {
        let id = "01939c5a-0000-7000-8000-00000000aa01";
        assert_eq!(short(id), "0000aa01");
        for text in [short(id), "00AA01", "01939c5a", "Scout"] {
            assert_eq!(pick(ObjectKind::Thread, text, candidates()).unwrap(), id, "{text}");
        }
        let last = pick(ObjectKind::Thread, LAST, candidates()).unwrap();
        assert_eq!(last, "01939c5c-0000-7000-8000-0000000000ff");
    }

    #[test]
    fn alias_refers_to_its_latest_thread() {
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
        assert_eq!(pick(ObjectKind::Thread, "scout", found.clone()).unwrap(), "present");
        assert_eq!(
            pick(ObjectKind::Thread, "denied", found).unwrap(),
            "denied",
            "in their order, with their ids"
        );
    }

    #[test]
    fn unknown_and_ambiguous_ids_suggest_candidates() {
        let error = |kind, text| pick(kind, text, candidates()).unwrap_err();
        let short = error(ObjectKind::Thread, "ff");
        assert!(short.remedy().unwrap().contains("at least 4 characters"), "{short:?}");
        let unknown = error(ObjectKind::Thread, "beef");
        assert_eq!((unknown.message(), unknown.code()), ("unknown thread \"beef\"", 4));
        let misspelt = error(ObjectKind::Thread, "scuot");
        assert!(
            misspelt.remedy().unwrap().contains("did you mean \"scout\"?"),
            "{misspelt:?}"
        );
        let approval = error(ObjectKind::Approval, "beef");
        assert!(approval.remedy().unwrap().contains("troupe approvals"), "{approval:?}");
        let ambiguous = error(ObjectKind::Thread, "01939c5");
        assert!(
            ambiguous
                .message()
                .contains("01939c5a-0000-7000-8000-00000000aa01 (worker \"scout\"), 01939c5b"),
            "{ambiguous:?}"
        );
        assert_eq!(ambiguous.code(), 2);
        assert_eq!(pick(ObjectKind::Session, LAST, Vec::new()).unwrap_err().code(), 4);
    }

    #[test]
    fn current_session_belongs_to_nearest_directory() {
        let session = |id: &str, cwd: &str| Session {
            session_id: id.to_owned(),
            cwd: cwd.to_owned(),
            ..Session::default()
        };
        let sessions = [
            session("4", "/b"),
            session("3", "/a/c"),
            session("2", "/a"),
            session("1", "/a"),
        ];
        let current = |directory: &str| current(&sessions, Path::new(directory)).map(|found| found.session_id.as_str());
        assert_eq!(current("/a"), Some("2"));
        assert_eq!(current("/a/c/d"), Some("3"));
        assert_eq!(current("/elsewhere"), Some("4"));
        assert!(super::current(&[], Path::new("/a")).is_none());
    }

    #[test]
    fn short_id_of_any_text_is_its_end() {
        assert_eq!(short(""), "");
        assert_eq!(short("abc"), "abc");
        assert_eq!(short("ééééééééé"), "éééé");
    }
}
