//! Changing what binds a session.

use crate::domain::{
    event::{Event, SettingsChange},
    refusal::Refusal,
    session::Session,
};

pub(super) fn update(session: &Session, change: &SettingsChange) -> Result<Vec<Event>, Refusal> {
    let _ = (session, change);
    Ok(Vec::new())
}
