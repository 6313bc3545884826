//! Changes of session settings.

use crate::{
    command::SettingsUpdate,
    event::{Event, SessionEvent, SettingsChange},
    rejection::Rejection,
    state::session::Session,
};

/// Returns one event with the settings that differ, or none if nothing differs. Consequences, such as the end of a
/// pause, are decided separately.
pub(super) fn update(session: &Session, update: &SettingsUpdate) -> Result<Vec<Event>, Rejection> {
    if session.closed {
        return Err(Rejection::SessionClosed);
    }
    let (present, wanted) = (&session.settings, &update.change);
    let limits = update.limits.over(present.limits);
    let change = SettingsChange {
        mode: wanted.mode.filter(|mode| *mode != present.mode),
        limits: (limits != present.limits).then_some(limits),
        budget: wanted.budget.filter(|budget| *budget != present.budget),
        paused: wanted.paused.filter(|paused| *paused != session.paused),
        orchestration: wanted
            .orchestration
            .filter(|orchestration| *orchestration != present.orchestration),
        edge_management: wanted.edge_management.filter(|edges| *edges != present.edge_management),
        orchestrators: wanted
            .orchestrators
            .clone()
            .filter(|names| *names != present.orchestrators),
        webhooks: wanted.webhooks.clone().filter(|webhooks| *webhooks != present.webhooks),
    };
    if change == SettingsChange::default() {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Session(SessionEvent::Updated(Box::new(change)))])
}
