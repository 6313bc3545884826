//! Which data of sessions a client may see.

use troupe_proto::supervisor::v1::{self as pb, event::Kind};

use crate::domain::rules::approval::without_arguments;

/// Which data is visible to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// Everything, including previews of texts and the URLs of webhooks.
    #[default]
    Everything,
    /// Excludes webhook URLs, because many receivers authenticate senders only by the path of the URL.
    Previews,
    /// Excludes webhook URLs and previews of texts. Texts have only digests and sizes, and tool calls have only the
    /// names of their tools.
    Digests,
}

impl Redaction {
    /// Returns the index of the value, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Everything => 0,
            Self::Previews => 1,
            Self::Digests => 2,
        }
    }

    /// Returns whether texts are visible.
    #[must_use]
    pub const fn has_texts(self) -> bool {
        match self {
            Self::Everything | Self::Previews => true,
            Self::Digests => false,
        }
    }

    /// Returns a session with only the visible data.
    #[must_use]
    pub fn session(self, mut session: pb::Session) -> pb::Session {
        self.webhooks(&mut session.webhooks);
        session
    }

    /// Returns an entry of a transcript with only the visible data.
    #[must_use]
    pub fn transcript_entry(self, mut entry: pb::TranscriptEntry) -> pb::TranscriptEntry {
        if !self.has_texts() {
            entry.text.clear();
            entry.plan.clear();
            if let Some(content) = &mut entry.content {
                content.preview.clear();
            }
            if let Some(call) = &mut entry.tool_call {
                call.reason.clear();
            }
        }
        entry
    }

    /// Returns an approval with only the visible data.
    #[must_use]
    pub fn approval(self, mut approval: pb::Approval) -> pb::Approval {
        if !self.has_texts() && approval.kind() == pb::ApprovalKind::Tool {
            approval.subject = without_arguments(&approval.subject);
        }
        approval
    }

    /// Returns a condition with only the visible data.
    #[must_use]
    pub fn condition(self, mut condition: pb::Condition) -> pb::Condition {
        if !self.has_texts() {
            hide_reason(condition.kind(), &mut condition.reason);
        }
        condition
    }

    /// Returns a result with only the visible data.
    #[must_use]
    pub fn result(self, mut result: pb::ThreadResult) -> pb::ThreadResult {
        if !self.has_texts() {
            result.document_json.clear();
            if let Some(content) = &mut result.content {
                content.preview.clear();
            }
        }
        result
    }

    /// Removes the invisible data from the latest tool.
    pub fn tool_use(self, tool: &mut Option<pb::ToolUse>) {
        if let Some(tool) = tool.as_mut().filter(|_| !self.has_texts()) {
            tool.detail.clear();
        }
    }

    /// Returns an event with only the visible data.
    #[must_use]
    pub fn event(self, mut event: pb::Event) -> pb::Event {
        match &mut event.kind {
            Some(Kind::SessionOpened(opened)) => {
                let webhooks = opened.session.as_mut().map(|session| &mut session.webhooks);
                webhooks.into_iter().for_each(|webhooks| self.webhooks(webhooks));
            }
            Some(Kind::SessionUpdated(updated)) => self.webhooks(&mut updated.webhooks),
            _ if !self.has_texts() => hide_previews(&mut event),
            _ => {}
        }
        event
    }

    fn webhooks(self, webhooks: &mut [pb::Webhook]) {
        match self {
            Self::Everything => {}
            Self::Previews | Self::Digests => webhooks.iter_mut().for_each(hide_path),
        }
    }
}

/// Removes the text of an agent from the reason of a condition.
fn hide_reason(kind: pb::ConditionKind, reason: &mut String) {
    match kind {
        pb::ConditionKind::AwaitingToolApproval => *reason = without_arguments(reason),
        pb::ConditionKind::AwaitingInput => reason.clear(),
        _ => {}
    }
}

/// Removes everything but the scheme, the host and the port from a webhook's URL.
fn hide_path(webhook: &mut pb::Webhook) {
    let (scheme, rest) = webhook.url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    webhook.url = format!("{scheme}://{host}/…");
}

/// Removes text previews and tool call arguments from an event, for readers that may see digests only.
fn hide_previews(event: &mut pb::Event) {
    let hide = |content: &mut Option<pb::ContentRef>| {
        if let Some(content) = content {
            content.preview.clear();
        }
    };
    match &mut event.kind {
        None => {}
        Some(Kind::ThreadSpawned(spawned)) => {
            hide(&mut spawned.resolved);
            hide(&mut spawned.input);
        }
        Some(Kind::InputQueued(queued)) => hide(&mut queued.input),
        Some(Kind::TurnDispatched(dispatched)) => {
            dispatched.blocks.iter_mut().for_each(|block| hide(&mut block.content));
        }
        Some(Kind::ResultReported(reported)) => hide(&mut reported.result),
        Some(Kind::GroupItemEnded(ended)) => ended.reason.clear(),
        Some(Kind::TurnEnded(ended)) => hide(&mut ended.content),
        Some(Kind::ArtifactRecorded(artifact)) => hide(&mut artifact.content),
        Some(Kind::ThreadResumed(resumed)) => {
            if let Some(status) = &mut resumed.status {
                hide(&mut status.content);
            }
        }
        Some(Kind::HandoffSent(sent)) => {
            if let Some(handoff) = &mut sent.handoff {
                hide(&mut handoff.message);
                hide(&mut handoff.structured);
            }
        }
        Some(Kind::ApprovalRequested(requested)) if requested.kind() == pb::ApprovalKind::Tool => {
            requested.subject = without_arguments(&requested.subject);
        }
        Some(Kind::ConditionChanged(changed)) => hide_reason(changed.kind(), &mut changed.reason),
        Some(
            Kind::SessionOpened(_)
            | Kind::SessionUpdated(_)
            | Kind::SessionClosed(_)
            | Kind::SpawnFailed(_)
            | Kind::ThreadAdmitted(_)
            | Kind::ThreadPlaced(_)
            | Kind::TurnStarted(_)
            | Kind::InputDelivered(_)
            | Kind::InterruptRequested(_)
            | Kind::GroupCreated(_)
            | Kind::GroupUpdated(_)
            | Kind::GroupEnding(_)
            | Kind::GroupEnded(_)
            | Kind::GroupRetried(_)
            | Kind::NoteSet(_)
            | Kind::UsageRecorded(_)
            | Kind::BudgetUpdated(_)
            | Kind::ToolDenied(_)
            | Kind::CloseRequested(_)
            | Kind::ThreadClosed(_)
            | Kind::EdgeCreated(_)
            | Kind::EdgeDeleted(_)
            | Kind::MailAcknowledged(_)
            | Kind::ApprovalRequested(_)
            | Kind::ApprovalResolved(_),
        ) => {}
    }
}
