//! The demo's view of the session: follows the event stream, stores the events and displays them.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use troupe_client::follow::{Follow, ThreadWatch, Update};
use troupe_proto::supervisor::v1::{Event, WatchThreadsResponse, watch_threads_response::Message};

use crate::{
    context::Context,
    error::{Error, Result},
    event_format, json,
    session_view::SessionView,
    ui::{self, Live, style},
};

/// Number of recent events shown below the tree.
const RECENT: usize = 6;
/// Maximum time that the demo waits for a condition.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The observed state and events.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The current state of the session.
    pub(super) view: SessionView,
    /// All events in the order of arrival.
    pub(super) events: Vec<Event>,
}

/// The watched session.
pub(super) struct DemoEnvironment<'a> {
    context: &'a Context,
    follow: Follow<ThreadWatch>,
    live: Option<Live>,
    seen: Seen,
}

impl<'a> DemoEnvironment<'a> {
    /// Creates a view that reads from this follower.
    pub(super) fn new(context: &'a Context, follow: Follow<ThreadWatch>) -> Self {
        Self {
            context,
            follow,
            live: context.ui.live(),
            seen: Seen::default(),
        }
    }

    /// Returns the observed state and events.
    pub(super) const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Announces the next step.
    pub(super) fn announce(&mut self, text: &str) -> Result<()> {
        let heading = style::paint(style::HEADING, text);
        if !self.context.ui.is_text() {
            return Ok(());
        }
        match &mut self.live {
            None => self.context.ui.line(heading),
            Some(live) => {
                live.above(&heading.to_string())?;
                self.draw()
            }
        }
    }

    /// Awaits `work` and displays the events that arrive in the meantime.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                news = self.follow.next() => self.take(news?)?,
            }
        }
    }

    /// Displays events until a condition holds.
    pub(super) async fn until(&mut self, what: &str, is_seen: impl Fn(&Seen) -> bool) -> Result<()> {
        let deadline = Instant::now() + MAX_WAIT;
        while !is_seen(&self.seen) {
            let news = timeout_at(deadline, self.follow.next()).await.map_err(|_| {
                Error::failure(format!("not observed within {} s: {what}", MAX_WAIT.as_secs()))
                    .hint("`TROUPE_LOG=info troupe demo` shows the logs of the services")
            })?;
            self.take(news?)?;
        }
        Ok(())
    }

    /// Keeps the last frame on the screen.
    pub(super) fn finish(&mut self) {
        if let Some(live) = &mut self.live {
            live.finish();
        }
    }

    fn take(&mut self, news: Update<WatchThreadsResponse>) -> Result<()> {
        match news {
            // The next connection delivers the missed events.
            Update::Opened | Update::Lost { .. } => Ok(()),
            Update::Message(message) => {
                self.seen.view.apply(&message);
                if let Some(Message::Event(event)) = &message.message {
                    self.seen.events.push(event.clone());
                }
                self.show(&message)
            }
        }
    }

    fn show(&mut self, response: &WatchThreadsResponse) -> Result<()> {
        if !self.context.ui.is_text() {
            return self.context.ui.value(&json::message(response));
        }
        if self.live.is_some() {
            return self.draw();
        }
        match &response.message {
            Some(Message::Event(event)) => self
                .context
                .ui
                .line(event_format::line(event, &self.seen.view).render(self.context.ui.columns())),
            _ => Ok(()),
        }
    }

    /// Draws the tree and the last events below it.
    fn draw(&mut self) -> Result<()> {
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let columns = self.context.ui.columns();
        let mut frame = ui::tree(self.seen.view.threads(), columns);
        let recent = self.seen.events.len().saturating_sub(RECENT);
        for event in self.seen.events.iter().skip(recent) {
            frame.push('\n');
            frame.push_str(&event_format::line(event, &self.seen.view).render(columns));
        }
        live.draw(&frame)
    }
}
