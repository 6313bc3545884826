//! The demo's view of the session: it follows the stream, keeps what it saw, and shows it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use troupe_proto::supervisor::v1::{Event, WatchThreadsResponse, watch_threads_response::Message};

use crate::{
    context::Context,
    error::{Error, Result},
    follow::{Follow, News},
    json, story,
    threads::Picture,
    ui::{self, Live, style},
};

/// How many events are shown below the tree.
const RECENT: usize = 6;
/// How long anything that the demo waits for may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The session as it is now.
    pub(super) picture: Picture,
    /// Every event, in the order in which it came.
    pub(super) events: Vec<Event>,
}

/// The watched session.
pub(super) struct Stage<'a> {
    context: &'a Context,
    follow: Follow,
    live: Option<Live>,
    seen: Seen,
}

impl<'a> Stage<'a> {
    /// Watches through this follower.
    pub(super) fn new(context: &'a Context, follow: Follow) -> Self {
        let is_live = !context.ui.is_json() && ui::is_interactive();
        Self {
            context,
            follow,
            live: is_live.then(Live::default),
            seen: Seen::default(),
        }
    }

    /// What was seen so far.
    pub(super) const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Says what comes next.
    pub(super) fn announce(&mut self, text: &str) -> Result<()> {
        let heading = style::paint(style::HEADING, text);
        if self.context.ui.is_json() {
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

    /// Does something, and shows meanwhile what happens.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                news = self.follow.next() => self.take(news?)?,
            }
        }
    }

    /// Shows what happens until something was seen.
    pub(super) async fn until(&mut self, what: &str, is_seen: impl Fn(&Seen) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_seen(&self.seen) {
            let news = timeout_at(deadline, self.follow.next()).await.map_err(|_| {
                Error::failure(format!("after {} s still not seen: {what}", PATIENCE.as_secs()))
                    .hint("TROUPE_LOG=info troupe demo shows what the services say")
            })?;
            self.take(news?)?;
        }
        Ok(())
    }

    /// Leaves the last frame on the screen.
    pub(super) fn finish(&mut self) {
        if let Some(live) = &mut self.live {
            live.finish();
        }
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            // The events that were missed come with the next connection.
            News::Lost { .. } => Ok(()),
            News::Message(message) => {
                self.seen.picture.apply(&message);
                if let Some(Message::Event(event)) = &message.message {
                    self.seen.events.push(event.clone());
                }
                self.show(&message)
            }
        }
    }

    fn show(&mut self, response: &WatchThreadsResponse) -> Result<()> {
        if self.context.ui.is_json() {
            return self.context.ui.json(&json::watch_message(response));
        }
        if self.live.is_some() {
            return self.draw();
        }
        match &response.message {
            Some(Message::Event(event)) => self
                .context
                .ui
                .line(story::line(event, &self.seen.picture).render(ui::columns())),
            _ => Ok(()),
        }
    }

    /// The tree, and the last events below it.
    fn draw(&mut self) -> Result<()> {
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let columns = ui::columns();
        let mut frame = ui::tree(self.seen.picture.threads(), columns);
        let recent = self.seen.events.len().saturating_sub(RECENT);
        for event in self.seen.events.iter().skip(recent) {
            frame.push('\n');
            frame.push_str(&story::line(event, &self.seen.picture).render(columns));
        }
        live.draw(&frame)
    }
}
