//! The form of webhooks, in CreateSession and UpdateSession.

use supervisor_log::codec::settings::webhook_from_pb;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::parse;
use crate::{domain::settings::Webhook, projections::webhooks::Target};

/// The most webhooks of a session.
pub(super) const WEBHOOKS: usize = 8;
/// The longest URL.
pub(super) const URL_BYTES: usize = 1_024;
/// The shortest and the longest secret: below this it is a password to guess.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// Validates the webhooks of a request. Names are resolved at delivery, so only the URL itself is checked here.
pub(super) fn checked(given: &[pb::Webhook], allow_private: bool) -> Result<Vec<Webhook>, Status> {
    if given.len() > WEBHOOKS {
        return Err(check::bad(
            "webhooks",
            format!("{} webhooks; at most {WEBHOOKS} are allowed", given.len()),
        ));
    }
    let mut webhooks: Vec<Webhook> = Vec::with_capacity(given.len());
    for webhook in given {
        url(&webhook.url, allow_private)?;
        secret(&webhook.secret)?;
        if webhooks.iter().any(|other| other.url == webhook.url) {
            let message = format!("webhooks.url \"{}\" is given twice; give each once", webhook.url);
            return Err(check::bad("webhooks.url", message));
        }
        let mut webhook = webhook_from_pb(webhook.clone())
            .map_err(|error| check::bad("webhooks.kinds", format!("webhooks.kinds: {error}")))?;
        webhook.kinds.sort_unstable();
        webhook.kinds.dedup();
        webhooks.push(webhook);
    }
    Ok(webhooks)
}

fn url(url: &str, allow_private: bool) -> Result<(), Status> {
    check::text("webhooks.url", url, URL_BYTES)?;
    let bad = |why: &str| check::bad("webhooks.url", format!("webhooks.url \"{url}\": {why}"));
    let target = Target::parse(url).map_err(|error| bad(&error.to_string()))?;
    if target.is_plainly_private() && !allow_private {
        return Err(bad(
            "it leads to a private, loopback or link-local address; a service started with --webhook-allow-private takes it",
        ));
    }
    Ok(())
}

fn secret(secret: &str) -> Result<(), Status> {
    if SECRET_BYTES.contains(&secret.len()) {
        return Ok(());
    }
    let message = format!(
        "webhooks.secret has {} bytes; give {} to {}",
        secret.len(),
        SECRET_BYTES.start(),
        SECRET_BYTES.end()
    );
    Err(check::bad("webhooks.secret", message))
}
