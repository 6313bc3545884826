//! The body and the signature of a delivery.

use std::collections::BTreeSet;

use base16ct::lower;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use serde_json::json;
use sha2::Sha256;
use supervisor_log::codec::parts::time_to_pb;

use crate::domain::{ids::SessionId, rules::notify::Notification, settings::NotificationKind, time::UnixMillis};

/// A notification in delivery. All attempts send the same data, so that a receiver can recognize a repetition.
#[derive(Debug)]
pub(super) struct Delivery {
    /// `SESSION-SEQUENCE`.
    pub id: String,
    /// The body as JSON.
    pub body: Bytes,
}

impl Delivery {
    /// Creates the delivery of a notification. `kinds` are the kinds that apply to its receiver.
    pub fn of(session: SessionId, notification: &Notification, kinds: &BTreeSet<NotificationKind>) -> Self {
        let id = format!("{session}-{}", notification.sequence);
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        let body = json!({
            "id": id,
            "session_id": session.to_string(),
            "thread_id": notification.thread.to_string(),
            "sequence": notification.sequence.get(),
            "kinds": kinds,
            "text": notification.text(true),
            "time": time_to_pb(notification.time).to_string(),
        });
        Self {
            id,
            body: Bytes::from(body.to_string()),
        }
    }

    /// Returns the headers of an attempt at this time.
    ///
    /// # Errors
    ///
    /// A value is not valid in a header. This is a defect.
    pub fn headers(&self, signer: &Signer, now: UnixMillis) -> Result<HeaderMap, http::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("troupe-delivery", HeaderValue::try_from(&self.id)?);
        headers.insert("troupe-signature", HeaderValue::try_from(signer.sign(now, &self.body))?);
        Ok(headers)
    }
}

/// Signs deliveries with a receiver's secret.
#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    /// Creates a signer. Returns `None` if the secret is not a valid key; HMAC accepts keys of any length.
    pub fn new(secret: &str) -> Option<Self> {
        Hmac::new_from_slice(secret.as_bytes()).ok().map(Self)
    }

    /// Returns the value of the `Troupe-Signature` header: `t=UNIX,v1=HEX`, where HEX is HMAC-SHA256 of `UNIX.BODY`.
    /// The signature covers the time, so a receiver can reject a replayed delivery.
    pub fn sign(&self, now: UnixMillis, body: &[u8]) -> String {
        let seconds = now.get() / 1_000;
        let mac = self
            .0
            .clone()
            .chain_update(seconds.to_string().as_bytes())
            .chain_update(b".")
            .chain_update(body);
        format!("t={seconds},v1={}", lower::encode_string(&mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_equals_that_of_openssl() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 'a secret of 19 byte'
        let signer = Signer::new("a secret of 19 byte").unwrap();
        assert_eq!(
            signer.sign(UnixMillis::new(1_700_000_000_999), b"{}"),
            "t=1700000000,v1=89ce962305f381b3d1f540b699d7b8ebe5629c846aa3b20240f07cf6b21fa08f"
        );
    }
}
