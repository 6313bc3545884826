//! The start of the delivery of notifications to a webhook.

use crate::ids::Sequence;

/// The delivery start of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookStart {
    /// The event after which delivery starts if nothing was sent yet.
    pub after: Sequence,
    /// The event that configured the webhook. Earlier progress of its URL is ignored. Zero if unknown.
    pub given: Sequence,
}

impl WebhookStart {
    /// Returns the delivery start of a webhook configured by an event: delivery starts after that event.
    #[must_use]
    pub const fn given_by(event: Sequence) -> Self {
        Self {
            after: event,
            given: event,
        }
    }

    /// Returns the position at which delivery continues. `reached` is the last recorded progress of the webhook's URL.
    #[must_use]
    pub fn position(self, reached: Option<Sequence>) -> Sequence {
        reached.filter(|reached| *reached >= self.given).unwrap_or(self.after)
    }
}
