//! Receivers of notifications on the command line.

use std::{fs, path::PathBuf};

use troupe_proto::supervisor::v1::{NotificationKind, Webhook};

use crate::{
    choices,
    error::{Error, Result},
};

/// The receivers of a session's notifications. The kinds and the secret apply to all of them.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct WebhookArgs {
    /// URL that receives notifications; may be repeated
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// Notification kinds that are sent [default: all]; may be repeated
    #[arg(long, value_name = "KIND", requires = "webhook", value_parser = choices::notification_kind())]
    webhook_kind: Vec<NotificationKind>,
    /// File with the secret that signs notifications; the first line is used
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
}

impl WebhookArgs {
    /// Returns the receivers.
    ///
    /// # Errors
    ///
    /// Fails if the file of the secret cannot be read.
    pub(crate) fn webhooks(self) -> Result<Vec<Webhook>> {
        let secret = match &self.webhook_secret_file {
            Some(path) => fs::read_to_string(path)
                .map_err(|error| Error::failure(format!("cannot read \"{}\": {error}", path.display())))?
                .lines()
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            None => String::new(),
        };
        let kinds: Vec<i32> = self.webhook_kind.iter().map(|kind| (*kind).into()).collect();
        Ok(self
            .webhook
            .into_iter()
            .map(|url| Webhook {
                url,
                kinds: kinds.clone(),
                secret: secret.clone(),
            })
            .collect())
    }
}
