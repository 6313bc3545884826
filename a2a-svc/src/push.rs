//! Push notifications: the updates of a task, sent to a URL that the caller configured.
//!
//! Each configuration is stored in a file, because it has secrets that the supervisor cannot store. The file also has
//! the position up to which updates were accepted, so that a crash repeats at most the updates of one event. All other
//! state is in the supervisor's log.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use svc_kit::{
    outgoing::{Backoff, Poster, Target, public_tls},
    paths::{DataDir, PathsError},
    private_file,
};
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use crate::{
    contexts::Contexts,
    error::{Error, Kind, Result, cut},
    ids::TaskId,
    json,
    metrics::{Delivery, Metrics},
    pb::{AuthenticationInfo, TaskPushNotificationConfig},
    render::{Renderer, is_last},
    upstream::{self, Supervisor},
};

/// Maximum number of configurations of a task.
pub(crate) const MAX_OF_TASK: usize = 8;
/// Maximum number of configurations of all tasks.
pub(crate) const MAX_TOTAL: usize = 10_000;
const MAX_URL_BYTES: usize = 2_048;
const MAX_SECRET_BYTES: usize = 2_048;
pub(crate) const POST_WITHIN: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// Maximum number of attempts to send an update. They take about a day, and then the delivery is abandoned.
pub(crate) const MAX_ATTEMPTS: u32 = 300;
/// Interval at which the configurations of deleted contexts are removed.
pub(crate) const CLEAN_EVERY: Duration = Duration::from_secs(3600);
/// The header with the token of a configuration.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// A configuration as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    key: Key,
    url: String,
    token: String,
    scheme: String,
    credentials: String,
    /// The receiver has accepted all updates up to this event.
    position: u64,
    /// Whether the delivery has ended.
    is_done: bool,
}

impl Stored {
    /// Returns the configuration without its secrets.
    fn show(&self) -> TaskPushNotificationConfig {
        TaskPushNotificationConfig {
            tenant: String::new(),
            id: self.key.id.clone(),
            task_id: self.key.task.to_string(),
            url: self.url.clone(),
            token: String::new(),
            authentication: (!self.scheme.is_empty()).then(|| AuthenticationInfo {
                scheme: self.scheme.clone(),
                credentials: String::new(),
            }),
        }
    }

    fn headers(&self) -> std::result::Result<HeaderMap, http::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/a2a+json"));
        let mut secret = |name: HeaderName, text: &str| -> std::result::Result<(), http::Error> {
            let mut value = HeaderValue::try_from(text)?;
            value.set_sensitive(true);
            headers.insert(name, value);
            Ok(())
        };
        if !self.scheme.is_empty() {
            secret(
                AUTHORIZATION,
                format!("{} {}", self.scheme, self.credentials).trim_end(),
            )?;
        }
        if !self.token.is_empty() {
            secret(TOKEN_HEADER, &self.token)?;
        }
        Ok(headers)
    }
}

/// The name of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    #[serde(flatten)]
    task: TaskId,
    id: String,
}

impl Key {
    fn new(task: &TaskId, id: &str) -> Self {
        Self {
            task: task.clone(),
            id: id.to_owned(),
        }
    }
}

/// A configuration in memory, with its delivery.
struct Entry {
    stored: Stored,
    _delivery: Option<AbortOnDropHandle<()>>,
}

/// All configurations.
pub(crate) struct Push {
    directory: DataDir,
    supervisor: Supervisor,
    contexts: Arc<Contexts>,
    metrics: Arc<Metrics>,
    poster: Poster,
    table: Mutex<BTreeMap<Key, Entry>>,
    /// One writer at a time, so that the file of a configuration is never older than its entry.
    writing: tokio::sync::Mutex<()>,
    stopped: CancellationToken,
}

/// Why push notifications cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] PathsError),
    /// A file cannot be read.
    #[error("cannot read the push notification configuration {}: {cause}; delete it to start without it", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The defect.
        cause: io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

impl Push {
    /// Loads the configurations and continues their deliveries.
    pub(crate) fn open(
        directory: &Path,
        supervisor: Supervisor,
        contexts: Arc<Contexts>,
        metrics: Arc<Metrics>,
        allow_private: bool,
        stopped: CancellationToken,
    ) -> std::result::Result<Arc<Self>, PushError> {
        let push = Arc::new(Self {
            directory: DataDir::open(directory)?,
            supervisor,
            contexts,
            metrics,
            poster: Poster {
                tls: public_tls().map_err(|error| PushError::Tls(error.to_string()))?,
                allow_private,
                within: POST_WITHIN,
            },
            table: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            stopped,
        });
        for stored in load(push.directory.path())? {
            push.insert(stored);
        }
        Ok(push)
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the delivery of a configuration.
    fn insert(self: &Arc<Self>, stored: Stored) {
        let delivery = (!stored.is_done).then(|| {
            let (push, stored, stopped) = (Arc::clone(self), stored.clone(), self.stopped.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                stopped.run_until_cancelled(Box::pin(push.deliver(stored))).await;
            }))
        });
        let entry = Entry {
            stored,
            _delivery: delivery,
        };
        self.table().insert(entry.stored.key.clone(), entry);
    }

    /// Stores a configuration. Updates after `position` are sent.
    ///
    /// # Errors
    ///
    /// A field is invalid, there are too many configurations, or the file cannot be written.
    pub(crate) async fn create(
        self: &Arc<Self>,
        task: &TaskId,
        config: &TaskPushNotificationConfig,
        position: u64,
        is_done: bool,
    ) -> Result<TaskPushNotificationConfig> {
        self.check(config)?;
        let authentication = config.authentication.clone().unwrap_or_default();
        let stored = Stored {
            key: if config.id.is_empty() {
                Key::new(task, &Uuid::new_v4().to_string())
            } else {
                Key::new(task, &config.id)
            },
            url: config.url.clone(),
            token: config.token.clone(),
            scheme: authentication.scheme,
            credentials: authentication.credentials,
            position,
            is_done,
        };
        let _writing = self.writing.lock().await;
        {
            let table = self.table();
            let is_new = !table.contains_key(&stored.key);
            let of_task = table.keys().filter(|key| key.task == *task);
            if is_new && (of_task.count() >= MAX_OF_TASK || table.len() >= MAX_TOTAL) {
                return Err(Error::new(
                    Kind::Overloaded,
                    format!("a task has at most {MAX_OF_TASK} push notification configurations, all tasks {MAX_TOTAL}"),
                ));
            }
        }
        self.write(&stored).await?;
        let shown = stored.show();
        self.insert(stored);
        Ok(shown)
    }

    /// Checks a configuration.
    ///
    /// # Errors
    ///
    /// A field is invalid.
    pub(crate) fn check(&self, config: &TaskPushNotificationConfig) -> Result<()> {
        let bad = |field: &str, problem: String| Err(Error::invalid_params(field, problem));
        if config.id.len() > 128 || config.id.chars().any(char::is_control) {
            return bad("id", String::from("the id must have at most 128 bytes on one line"));
        }
        if config.url.len() > MAX_URL_BYTES {
            return bad("url", format!("the URL has more than {MAX_URL_BYTES} bytes"));
        }
        let target = match Target::parse(&config.url) {
            Ok(target) => target,
            Err(error) => return bad("url", format!("invalid URL: {error}")),
        };
        if target.is_plainly_private() && !self.poster.allow_private {
            return bad(
                "url",
                String::from("the URL leads to a private, loopback or link-local address"),
            );
        }
        let authentication = config.authentication.clone().unwrap_or_default();
        let is_token = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if !is_token(&authentication.scheme)
            || (authentication.scheme.is_empty() && !authentication.credentials.is_empty())
        {
            return bad(
                "authentication.scheme",
                String::from("the scheme must be the name of an HTTP authentication scheme"),
            );
        }
        for (field, secret) in [
            ("authentication.credentials", &authentication.credentials),
            ("token", &config.token),
        ] {
            let is_visible = secret.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            if secret.len() > MAX_SECRET_BYTES || !is_visible {
                return bad(
                    field,
                    format!("it must have at most {MAX_SECRET_BYTES} visible ASCII characters"),
                );
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, task: &TaskId, id: &str) -> Result<TaskPushNotificationConfig> {
        let table = self.table();
        let entry = table.get(&Key::new(task, id));
        entry.map(|entry| entry.stored.show()).ok_or_else(|| {
            Error::new(
                Kind::NotFound,
                format!("the task has no push notification configuration {:?}", cut(id)),
            )
        })
    }

    /// Returns the configurations of a task by id.
    pub(crate) fn list(&self, task: &TaskId) -> Vec<TaskPushNotificationConfig> {
        let table = self.table();
        let mine = table.iter().filter(|(key, _)| key.task == *task);
        mine.map(|(_, entry)| entry.stored.show()).collect()
    }

    /// Deletes a configuration. Idempotent.
    pub(crate) async fn delete(&self, task: &TaskId, id: &str) -> Result<()> {
        self.remove(&Key::new(task, id)).await
    }

    async fn remove(&self, key: &Key) -> Result<()> {
        let _writing = self.writing.lock().await;
        let removed = self.table().remove(key);
        if removed.is_none() {
            return Ok(());
        }
        let path = self.path(key);
        let deleted = spawn_blocking(move || fs::remove_file(path)).await;
        match deleted {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(Err(error)) => Err(Error::internal(format!("the configuration cannot be deleted: {error}"))),
            Err(error) => Err(Error::internal(error.to_string())),
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        let digest = base16ct::lower::encode_string(&Sha256::digest(key.id.as_bytes()));
        let short = digest.get(..32).unwrap_or_default();
        self.directory.join(&format!("{}.{short}.json", key.task))
    }

    async fn write(&self, stored: &Stored) -> Result<()> {
        let path = self.path(&stored.key);
        let broken =
            |error: &dyn std::fmt::Display| Error::internal(format!("the configuration cannot be stored: {error}"));
        let bytes = serde_json::to_vec(stored).map_err(|error| broken(&error))?;
        let written = spawn_blocking(move || private_file::replace(&path, &bytes, private_file::PRIVATE)).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(broken(&error)),
            Err(error) => Err(broken(&error)),
        }
    }

    /// Stores the position of a configuration. Returns false if the configuration was deleted or replaced.
    async fn advance(&self, stored: &Stored) -> Result<bool> {
        let _writing = self.writing.lock().await;
        {
            let mut table = self.table();
            match table.get_mut(&stored.key) {
                Some(entry) if entry.stored.url == stored.url => entry.stored = stored.clone(),
                Some(_) | None => return Ok(false),
            }
        }
        self.write(stored).await?;
        Ok(true)
    }

    /// Sends all updates of a task.
    async fn deliver(self: Arc<Self>, mut stored: Stored) {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            match self.follow(&mut stored).await {
                Ok(()) => return,
                Err(error) if error.kind == Kind::TaskNotFound => {
                    // The context was deleted, so its configurations are deleted too.
                    if let Err(error) = self.remove(&stored.key).await {
                        tracing::warn!(
                            message = error.message,
                            "a push notification configuration is not deleted"
                        );
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(
                        context = stored.key.task.context,
                        message = error.message,
                        "push notifications are delayed"
                    );
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Sends updates until the task has ended and its last update was accepted, or until the configuration is deleted.
    async fn follow(&self, stored: &mut Stored) -> Result<()> {
        let gone = || Error::new(Kind::TaskNotFound, "the task does not exist");
        let session = upstream::session(&self.supervisor, &stored.key.task.context)
            .await?
            .ok_or_else(gone)?;
        let mut reader = self.contexts.watch(&session, stored.position).await?;
        let mut fold = reader.see();
        let renderer = Renderer {
            supervisor: &self.supervisor,
            session: &session,
            shows_ids: false,
        };
        // An event can cause several updates. A crash between two of them repeats the earlier ones.
        let mut sent = stored.position;
        loop {
            let task = fold.task(stored.key.task.number).ok_or_else(gone)?;
            let news: Vec<_> = task
                .updates
                .iter()
                .filter(|update| update.sequence > sent)
                .cloned()
                .collect();
            for update in news {
                let mut is_accepted = true;
                for response in renderer.update(task, &update).await? {
                    let body = json::to_value(&response)?.to_string();
                    is_accepted = is_accepted && self.send(stored, Bytes::from(body)).await?;
                }
                if !is_accepted {
                    stored.is_done = true;
                    tracing::warn!(
                        context = stored.key.task.context,
                        task = stored.key.task.number,
                        "push notifications of a task are abandoned: the receiver accepted none for too long"
                    );
                    self.advance(stored).await?;
                    return Ok(());
                }
                stored.position = update.resume;
                stored.is_done = is_last(&update);
                if !self.advance(stored).await? || stored.is_done {
                    return Ok(());
                }
                sent = sent.max(update.resume);
            }
            fold = reader.changed().await?;
        }
    }

    /// Sends an update until it is accepted. Returns false after the maximum number of attempts.
    async fn send(&self, stored: &Stored, body: Bytes) -> Result<bool> {
        let internal = |error: &dyn std::fmt::Display| Error::internal(error.to_string());
        let target = Target::parse(&stored.url).map_err(|error| internal(&error))?;
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        for _ in 0..MAX_ATTEMPTS {
            let headers = stored.headers().map_err(|error| internal(&error))?;
            let Err(undelivered) = self.poster.post(&target, headers, body.clone()).await else {
                self.metrics.notified(Delivery::Accepted);
                return Ok(true);
            };
            self.metrics.notified(Delivery::Failed);
            // Log only the host, because the path of the URL may be a secret.
            let host = target.host();
            tracing::warn!(context = stored.key.task.context, host, %undelivered, "a push notification was not delivered");
            sleep(backoff.next_delay()).await;
        }
        self.metrics.notified(Delivery::GivenUp);
        Ok(false)
    }

    /// Removes the configurations whose delivery has ended and whose context was deleted. A delivery in progress
    /// removes its own configuration.
    pub(crate) async fn clean(&self) {
        let done: Vec<Key> = {
            let table = self.table();
            let done = table.iter().filter(|(_, entry)| entry.stored.is_done);
            done.map(|(key, _)| key.clone()).collect()
        };
        for key in done {
            if let Ok(None) = upstream::session(&self.supervisor, &key.task.context).await
                && let Err(error) = self.remove(&key).await
            {
                tracing::warn!(
                    message = error.message,
                    "a push notification configuration is not deleted"
                );
            }
        }
    }
}

fn load(directory: &Path) -> std::result::Result<Vec<Stored>, PushError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| PushError::File { path, cause }
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let is_temporary = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_temporary || path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        let stored = serde_json::from_str(&text).map_err(|error| failed(&path)(io::Error::other(error)))?;
        found.push(stored);
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        Stored {
            key: Key::new(&TaskId::parse("01a1fc89-0902-7629-98ed-9dce17881f00-1").unwrap(), "c"),
            url: String::from("https://example.com/hook"),
            token: String::from("token"),
            scheme: String::from("Bearer"),
            credentials: String::from("secret"),
            position: 3,
            is_done: false,
        }
    }

    #[test]
    fn secrets_are_sent_and_never_shown() {
        let headers = stored().headers().unwrap();
        assert_eq!(headers[AUTHORIZATION], "Bearer secret");
        assert_eq!(headers[TOKEN_HEADER], "token");
        let shown = json::to_value(&stored().show()).unwrap().to_string();
        assert!(!shown.contains("secret") && !shown.contains("token\""), "{shown}");
    }

    #[test]
    fn stored_configurations_are_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let text = serde_json::to_vec(&stored()).unwrap();
        fs::write(directory.path().join("a.json"), &text).unwrap();
        fs::write(directory.path().join(".a.json.17"), "torn").unwrap();
        let found = load(directory.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].position, 3);
        fs::write(directory.path().join("b.json"), "torn").unwrap();
        assert!(load(directory.path()).is_err());
    }
}
