//! Pagination: each page has a maximum number of items and bytes, and a token for the next page.
//!
//! A token holds a digest of the request that it belongs to and the position after which the next page starts.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use prost::Message;

use crate::{
    domain::{digest::Digest, error::RegistryError},
    grpc::bounds,
};

/// Maximum size of one page, in bytes. A larger single item is sent alone.
pub(super) const PAGE_BYTES: usize = 1024 * 1024;

/// The version of tokens. It changes when the meaning of tokens changes, so that tokens of another release are
/// rejected.
const VERSION: &str = "1";

/// The start of a page, and its size limits.
#[derive(Clone, Debug)]
pub(super) struct Page {
    request: Digest,
    after: Option<String>,
    size: usize,
    bytes: usize,
}

impl Page {
    /// Returns the page that a request asks for. `request` is a digest of the fields that the next request must repeat.
    pub(super) fn of(request: Digest, page_size: i32, token: String, bytes: usize) -> Result<Self, RegistryError> {
        let size = bounds::page_size(page_size)?;
        let token = bounds::text("page_token", token, bounds::TOKEN_BYTES)?;
        let after = if token.is_empty() {
            None
        } else {
            Some(open(&token, &request)?)
        };
        Ok(Self {
            request,
            after,
            size,
            bytes,
        })
    }

    /// Returns whether this is the first page.
    pub(super) const fn is_first(&self) -> bool {
        self.after.is_none()
    }

    /// Returns the page's items and the token for the next page. The token is empty on the last page. `items` must be
    /// sorted by `key`. Only the items of this page are converted.
    pub(super) fn take<I, M: Message>(
        &self,
        items: impl IntoIterator<Item = I>,
        key: impl Fn(&I) -> String,
        make: impl Fn(I) -> M,
    ) -> (Vec<M>, String) {
        let mut page: Vec<M> = Vec::new();
        let mut bytes = 0;
        let mut last = String::new();
        for item in items {
            let position = key(&item);
            if self.after.as_ref().is_some_and(|after| position <= *after) {
                continue;
            }
            let message = make(item);
            // 8 bytes are enough for the field's tag and the length prefix.
            bytes += message.encoded_len() + 8;
            if page.len() >= self.size || (bytes > self.bytes && !page.is_empty()) {
                return (page, self.token(&last));
            }
            page.push(message);
            last = position;
        }
        (page, String::new())
    }

    fn token(&self, after: &str) -> String {
        URL_SAFE_NO_PAD.encode(format!("{VERSION}:{}:{after}", self.request))
    }
}

fn open(token: &str, request: &Digest) -> Result<String, RegistryError> {
    let refuse = |message: &str| RegistryError::Argument {
        field: "page_token",
        message: message.to_owned(),
    };
    let malformed = || refuse("page_token was not issued by this service; start without it");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| malformed())?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let mut parts = text.splitn(3, ':');
    let (Some(VERSION), Some(digest), Some(after)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed());
    };
    if digest != request.as_str() {
        return Err(refuse(
            "page_token belongs to another request, or the listed items have changed; start without it",
        ));
    }
    Ok(after.to_owned())
}

/// Returns the first messages, as many as have at most `bytes` together.
pub(super) fn within_bound<M: Message>(bytes: usize, messages: impl Iterator<Item = M>) -> Vec<M> {
    let mut left = bytes;
    let fitting = messages.map_while(|message| {
        left = left.checked_sub(message.encoded_len() + 8)?;
        Some(message)
    });
    fitting.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(size: i32, token: &str, bytes: usize) -> Result<Page, RegistryError> {
        Page::of(Digest::of(b"request"), size, token.to_owned(), bytes)
    }

    fn take(page: &Page) -> (Vec<String>, String) {
        let items = ["a", "b", "c"];
        page.take(items, |item| (*item).to_owned(), str::to_owned)
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let (first, token) = take(&page(2, "", PAGE_BYTES).unwrap());
        assert_eq!(first, ["a", "b"]);
        let next = page(2, &token, PAGE_BYTES).unwrap();
        assert!(!next.is_first());
        assert_eq!(take(&next), (vec!["c".to_owned()], String::new()));
        assert_eq!(take(&page(3, "", PAGE_BYTES).unwrap()).1, "");
    }

    #[test]
    fn token_after_longest_name_is_accepted() {
        let longest = "x".repeat(bounds::NAME_BYTES);
        let token = page(0, "", PAGE_BYTES).unwrap().token(&longest);
        assert_eq!(page(0, &token, PAGE_BYTES).unwrap().after, Some(longest));
    }

    #[test]
    fn page_size_is_bounded_but_never_empty() {
        let (first, token) = take(&page(0, "", 1).unwrap());
        assert_eq!(first, ["a"]);
        assert_eq!(take(&page(0, &token, 1).unwrap()).0, ["b"]);
    }

    #[test]
    fn page_token_is_valid_for_same_request_only() {
        let (_, token) = take(&page(1, "", PAGE_BYTES).unwrap());
        assert!(Page::of(Digest::of(b"other"), 1, token, PAGE_BYTES).is_err());
        for bad in ["x", "!!", "MTp4"] {
            assert!(page(1, bad, PAGE_BYTES).is_err(), "{bad}");
        }
    }
}
