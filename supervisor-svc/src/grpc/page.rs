//! Pages of a listing: at most so many entries and so many bytes; the token carries where the next page begins and what was
//! asked, so that it cannot be used for another listing.

use std::mem;

use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;
use uuid::Uuid;

use super::check;
use crate::domain::ids::SessionId;

/// Entries of a page where the request does not say.
pub(super) const DEFAULT_SIZE: usize = 100;
/// The most entries of a page.
pub(super) const MAX_SIZE: usize = 1_000;
/// The most bytes of a page.
pub(super) const MAX_BYTES: usize = 1_024 * 1_024;
/// The longest token.
const TOKEN_BYTES: usize = 128;

/// A request for a page of a listing.
pub(super) trait Paged: Message {
    /// Takes out the size and the token, so that what is left is what was asked.
    fn take_page(&mut self) -> (i32, String);
}

macro_rules! paged {
    ($($request:ident),+ $(,)?) => {
        $(impl Paged for pb::$request {
            fn take_page(&mut self) -> (i32, String) {
                (mem::take(&mut self.page_size), mem::take(&mut self.page_token))
            }
        })+
    };
}
paged! { ListActiveAgentsRequest, ListApprovalsRequest, ListArtifactsRequest, ListEdgesRequest, ListMailboxRequest, ListPromptsRequest, ListSessionsRequest, ListSpawnableAgentsRequest }

/// What a request asks of its page.
#[derive(Debug)]
pub(super) struct Page {
    size: usize,
    /// How many entries the pages before had.
    offset: usize,
    fingerprint: String,
}

impl Page {
    /// Takes size and token out of the request. What is left of it, and who asks, is what the token is bound to.
    pub fn of(request: &mut impl Paged, who: &str) -> Result<Self, Status> {
        let (size, token) = request.take_page();
        let size = size_of(size)?;
        let fingerprint = fingerprint(request, who);
        let offset = match place(&token, "1", &fingerprint)? {
            Some(offset) => offset.parse::<usize>().map_err(|_| wrong_token())?,
            None => 0,
        };
        Ok(Self {
            size,
            offset,
            fingerprint,
        })
    }

    /// The most entries of this page.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// In a listing of numbered entries: the number after which this page begins, 0 for the first page.
    pub const fn after(&self) -> u64 {
        self.offset as u64
    }

    /// As [`Self::cut`], of numbered entries that come and go between two pages: the token carries the last number that was
    /// shown. `entries` are those after [`Self::after`], as many as there are or at least one more than fit; `rest` is where
    /// the listing goes on if all of them do.
    pub fn cut_numbered<M: Message>(
        &self,
        entries: impl IntoIterator<Item = (u64, M)>,
        rest: Option<u64>,
    ) -> (Vec<M>, String) {
        let mut shown = Vec::new();
        let (mut bytes, mut last) = (0, self.after());
        for (number, entry) in entries {
            bytes += entry.encoded_len();
            if shown.len() >= self.size || (bytes > MAX_BYTES && !shown.is_empty()) {
                return (shown, self.token(last));
            }
            last = number;
            shown.push(entry);
        }
        (shown, rest.map(|number| self.token(number)).unwrap_or_default())
    }

    /// The entries of this page, shown one by one, and the token of the next.
    pub fn cut<T, M: Message>(&self, all: &[T], show: impl Fn(&T) -> M) -> (Vec<M>, String) {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for entry in all.iter().skip(self.offset).take(self.size) {
            let shown = show(entry);
            bytes += shown.encoded_len();
            if bytes > MAX_BYTES && !entries.is_empty() {
                break;
            }
            entries.push(shown);
        }
        let next = self.offset + entries.len();
        let token = if next < all.len() {
            self.token(next as u64)
        } else {
            String::new()
        };
        (entries, token)
    }

    fn token(&self, next: u64) -> String {
        format!("1-{next}-{}", self.fingerprint)
    }
}

/// A page of sessions, newest first, that is filled one by one. The token names the session that the pages before ended with,
/// so that a page costs its own size.
#[derive(Debug)]
pub(super) struct SessionPage {
    size: usize,
    /// The session that was taken last, on this page or those before.
    last: Option<SessionId>,
    fingerprint: String,
    sessions: Vec<pb::Session>,
    bytes: usize,
}

impl SessionPage {
    /// As [`Page::of`].
    pub fn of(request: &mut impl Paged, who: &str) -> Result<Self, Status> {
        let (size, token) = request.take_page();
        let size = size_of(size)?;
        let fingerprint = fingerprint(request, who);
        let last = match place(&token, "2", &fingerprint)? {
            Some(id) => Some(SessionId::from_uuid(Uuid::try_parse(id).map_err(|_| wrong_token())?)),
            None => None,
        };
        Ok(Self {
            size,
            last,
            fingerprint,
            sessions: Vec::new(),
            bytes: 0,
        })
    }

    /// The session that the page goes on behind.
    pub const fn last(&self) -> Option<SessionId> {
        self.last
    }

    /// Takes one session more. Answers whether there was room for it.
    pub fn take(&mut self, id: SessionId, session: pb::Session) -> bool {
        let bytes = self.bytes + session.encoded_len();
        let is_full = self.sessions.len() >= self.size || (bytes > MAX_BYTES && !self.sessions.is_empty());
        if !is_full {
            self.bytes = bytes;
            self.last = Some(id);
            self.sessions.push(session);
        }
        !is_full
    }

    /// The page, with the token of the next if there is `more`.
    pub fn finish(self, more: bool) -> (Vec<pb::Session>, String) {
        let token = match self.last {
            Some(last) if more => format!("2-{}-{}", last.as_uuid().simple(), self.fingerprint),
            Some(_) | None => String::new(),
        };
        (self.sessions, token)
    }
}

fn size_of(size: i32) -> Result<usize, Status> {
    match usize::try_from(size) {
        Ok(0) => Ok(DEFAULT_SIZE),
        Ok(size) => Ok(size.min(MAX_SIZE)),
        Err(_) => Err(check::bad("page_size", format!("page_size {size} is negative"))),
    }
}

/// What was asked and by whom, so that a token serves for no other listing.
fn fingerprint(asked: &impl Message, who: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(who.as_bytes());
    hash.update(asked.encode_to_vec());
    hash.finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Where the page begins that a token of that kind asks for; `None`: at the beginning.
fn place<'t>(token: &'t str, kind: &str, fingerprint: &str) -> Result<Option<&'t str>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > TOKEN_BYTES {
        return Err(wrong_token());
    }
    let mut parts = token.split('-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(of), Some(place), Some(hash), None) if of == kind && hash == fingerprint => Ok(Some(place)),
        _ => Err(wrong_token()),
    }
}

fn wrong_token() -> Status {
    check::bad(
        "page_token",
        "page_token is not from the page before of this listing; start again without it",
    )
}
