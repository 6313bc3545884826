//! Pagination of listings, bounded by entries and bytes.
//!
//! The token contains the last entry of the page, so entries that are added or removed between two pages do not make
//! the next page skip or repeat the remaining ones. The token also contains a hash of the request, so it is not valid
//! for another listing.

use std::{fmt::Display, mem, str::FromStr};

use base16ct::lower;
use prost::{Message, Name};
use sha2::{Digest as _, Sha256};
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::parse;

/// Number of entries of a page if the request specifies none.
pub(crate) const DEFAULT_SIZE: usize = 100;
/// Maximum number of entries of a page.
pub(crate) const MAX_SIZE: usize = 1_000;
/// Maximum size of a page, in bytes.
pub(crate) const MAX_BYTES: usize = 1_024 * 1_024;

/// Length of the request hash prefix that distinguishes two requests.
const FINGERPRINT_BYTES: usize = 8;

/// A request for a page of a listing.
pub(super) trait Paged: Message + Name {
    /// Removes the page size and the token from the request. The remaining fields identify the listing.
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
paged! { ListActiveAgentsRequest, ListApprovalsRequest, ListArtifactsRequest, ListEdgesRequest, ListGroupItemsRequest, ListMailboxRequest, ListPromptsRequest, ListRunnersRequest, ListSessionsRequest, ListSpawnableAgentsRequest, ListTranscriptRequest }

/// A stable and ordered identifier of a listing's entry.
pub(super) trait Key: Clone + Ord + Display + FromStr {}

impl<K: Clone + Ord + Display + FromStr> Key for K {}

/// The page parameters of a request.
#[derive(Debug)]
pub(super) struct Page<K> {
    size: usize,
    /// The last entry of the previous page; `None` for the first page.
    after: Option<K>,
    fingerprint: String,
}

impl<K: Key> Page<K> {
    /// Takes the page size and the token out of the request. The token is bound to the remaining request fields and to
    /// the caller.
    pub fn of(request: &mut impl Paged, who: &str) -> Result<Self, Status> {
        let (size, token) = request.take_page();
        let fingerprint = fingerprint(request, who);
        Ok(Self {
            size: size_of(size)?,
            after: parse_token(&token, &fingerprint)?,
            fingerprint,
        })
    }

    /// Returns the maximum number of entries of this page.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns the entry after which the page starts.
    pub const fn after(&self) -> Option<&K> {
        self.after.as_ref()
    }

    /// Returns a builder to which entries are added one by one.
    pub fn builder<M: Message>(&self) -> PageBuilder<'_, K, M> {
        PageBuilder {
            page: self,
            entries: Vec::new(),
            bytes: 0,
            last: self.after.clone(),
        }
    }

    /// Builds this page's entries and the token of the next page. `entries` are in key order. They contain all
    /// remaining entries, or at least one more than fits on the page. `rest` is the position at which the listing
    /// continues if all of them fit.
    pub fn cut<T, M: Message>(
        &self,
        entries: impl IntoIterator<Item = (K, T)>,
        show: impl Fn(T) -> M,
        rest: Option<K>,
    ) -> (Vec<M>, String) {
        let mut builder = self.builder();
        let ahead = entries
            .into_iter()
            .skip_while(|(key, _)| self.after.as_ref().is_some_and(|after| key <= after));
        for (key, entry) in ahead {
            if !builder.take(key, show(entry)) {
                return builder.finish(true);
            }
        }
        let has_rest = rest.is_some();
        if let Some(rest) = rest {
            builder.skip_to(rest);
        }
        builder.finish(has_rest)
    }
}

/// A page that is being filled.
#[derive(Debug)]
pub(super) struct PageBuilder<'p, K, M> {
    page: &'p Page<K>,
    entries: Vec<M>,
    bytes: usize,
    /// The last entry that was examined, on this page or an earlier one.
    last: Option<K>,
}

impl<K: Key, M: Message> PageBuilder<'_, K, M> {
    /// Adds an entry. Returns whether there was space for it.
    pub fn take(&mut self, key: K, entry: M) -> bool {
        let bytes = self.bytes + entry.encoded_len();
        let is_full = self.entries.len() >= self.page.size || (bytes > MAX_BYTES && !self.entries.is_empty());
        if !is_full {
            self.bytes = bytes;
            self.last = Some(key);
            self.entries.push(entry);
        }
        !is_full
    }

    /// Skips all entries up to this one.
    pub fn skip_to(&mut self, key: K) {
        self.last = Some(key);
    }

    /// Returns the entries, and the token of the next page if there is `more`.
    pub fn finish(self, more: bool) -> (Vec<M>, String) {
        let token = match self.last {
            Some(last) if more => format!("{}-{last}", self.page.fingerprint),
            Some(_) | None => String::new(),
        };
        (self.entries, token)
    }
}

fn size_of(size: i32) -> Result<usize, Status> {
    match usize::try_from(size) {
        Ok(0) => Ok(DEFAULT_SIZE),
        Ok(size) => Ok(size.min(MAX_SIZE)),
        Err(_) => Err(parse::bad("page_size", format!("page_size {size} is negative"))),
    }
}

/// Hashes the request and the caller, so that a token is not valid for another listing. The result contains no hyphen.
fn fingerprint<R: Paged>(asked: &R, who: &str) -> String {
    let asked = asked.encode_to_vec();
    let mut hash = Sha256::new();
    for part in [R::NAME.as_bytes(), who.as_bytes(), &asked] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    lower::encode_string(&hash.finalize()[..FINGERPRINT_BYTES])
}

/// Returns the entry that a token names; `None` if the token is empty.
fn parse_token<K: Key>(token: &str, fingerprint: &str) -> Result<Option<K>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let named = token.split_once('-').filter(|(of, _)| *of == fingerprint);
    match named.and_then(|(_, key)| key.parse::<K>().ok()) {
        Some(key) => Ok(Some(key)),
        None => Err(parse::bad(
            "page_token",
            "page_token is not from the previous page of this listing; start again without it",
        )),
    }
}
