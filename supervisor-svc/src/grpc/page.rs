//! Pages of a listing: at most so many entries and so many bytes; the token carries where the next page begins and what was
//! asked, so that it cannot be used for another listing.

use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::Status;

use super::check;

/// Entries of a page where the request does not say.
const DEFAULT_SIZE: usize = 100;
/// The most entries of a page.
const MAX_SIZE: usize = 1_000;
/// The most bytes of a page.
const MAX_BYTES: usize = 1_024 * 1_024;
/// The longest token.
const TOKEN_BYTES: usize = 128;

/// What a request asks of its page.
#[derive(Debug)]
pub(super) struct Page {
    size: usize,
    /// How many entries the pages before had.
    offset: usize,
    fingerprint: String,
}

impl Page {
    /// Reads size and token. `asked` is the request without them, and who asks.
    pub fn of(size: i32, token: &str, asked: &impl Message, who: &str) -> Result<Self, Status> {
        let size = match usize::try_from(size) {
            Ok(0) => DEFAULT_SIZE,
            Ok(size) => size.min(MAX_SIZE),
            Err(_) => return Err(check::bad("page_size", format!("page_size {size} is negative"))),
        };
        let mut hash = Sha256::new();
        hash.update(who.as_bytes());
        hash.update(asked.encode_to_vec());
        let fingerprint: String = hash
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let offset = if token.is_empty() {
            0
        } else {
            parse(token, &fingerprint)?
        };
        Ok(Self {
            size,
            offset,
            fingerprint,
        })
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
            format!("1-{next}-{}", self.fingerprint)
        } else {
            String::new()
        };
        (entries, token)
    }
}

fn parse(token: &str, fingerprint: &str) -> Result<usize, Status> {
    let wrong = || {
        check::bad(
            "page_token",
            "page_token is not from the page before of this listing; start again without it",
        )
    };
    if token.len() > TOKEN_BYTES {
        return Err(wrong());
    }
    let mut parts = token.split('-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("1"), Some(offset), Some(hash), None) if hash == fingerprint => offset.parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}
