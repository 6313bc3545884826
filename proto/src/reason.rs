//! The closed list of reasons that `google.rpc.ErrorInfo` carries. A reason, once released, keeps its meaning.

/// `ErrorInfo.domain` of every error of Troupe.
pub const DOMAIN: &str = "troupe.dev";

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a call failed, stable across releases. The text of an error may improve; its reason does not change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $variant,)+ }

        impl Reason {
            /// Every reason, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the reason with this name, or `None` if the name is unknown.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

reasons! {
    /// A field of the request is malformed, missing, too large or contradicts another.
    InvalidArgument = "INVALID_ARGUMENT",
    /// An agent_type is not a legal name.
    InvalidAgentType = "INVALID_AGENT_TYPE",
    /// An agent_type matches several templates by its kebab and snake spellings.
    AmbiguousAgentType = "AMBIGUOUS_AGENT_TYPE",
    /// No template of that name exists in any scope.
    TemplateNotFound = "TEMPLATE_NOT_FOUND",
    /// The template exists and is malformed.
    TemplateInvalid = "TEMPLATE_INVALID",
    /// The persona does not exist in the role, is missing although the role requires one, or is given without a role.
    InvalidAgentName = "INVALID_AGENT_NAME",
    /// The model catalogue does not know the model.
    UnknownModel = "UNKNOWN_MODEL",
    /// The model does not support that reasoning effort.
    UnsupportedEffort = "UNSUPPORTED_EFFORT",
    /// No such provider is configured.
    UnknownProvider = "UNKNOWN_PROVIDER",
    /// The digest of the template differs from the digest in the request.
    DigestMismatch = "DIGEST_MISMATCH",
    /// The working directory does not exist.
    CwdNotFound = "CWD_NOT_FOUND",
    /// The working directory lies outside the workspace roots.
    CwdOutsideRoots = "CWD_OUTSIDE_ROOTS",
    /// The registry does not have that workspace bundle; upload it with PutWorkspace.
    WorkspaceUnknown = "WORKSPACE_UNKNOWN",
    /// The input of a thread is missing, blank, or given as both message and items.
    InvalidInput = "INVALID_INPUT",
    /// No such session.
    SessionNotFound = "SESSION_NOT_FOUND",
    /// No such thread.
    ThreadNotFound = "THREAD_NOT_FOUND",
    /// Something else that the request names does not exist.
    NotFound = "NOT_FOUND",
    /// The thread would be deeper than max_depth.
    DepthLimit = "DEPTH_LIMIT",
    /// max_threads threads are active.
    ThreadLimit = "THREAD_LIMIT",
    /// The session has its maximum number of open threads, or of threads ever created.
    OpenLimit = "OPEN_LIMIT",
    /// The budget of a thread and its descendants is exhausted.
    BudgetExhausted = "BUDGET_EXHAUSTED",
    /// A result does not match the schema that the input has; the text lists the errors.
    ResultInvalid = "RESULT_INVALID",
    /// A limit on a size or a number in the request, the session or the service is exceeded.
    LimitExceeded = "LIMIT_EXCEEDED",
    /// A message is larger than this method allows.
    MessageTooLarge = "MESSAGE_TOO_LARGE",
    /// The bytes of the request are not a message of this method.
    MalformedMessage = "MALFORMED_MESSAGE",
    /// The tool of the call is not in the thread's effective policy, or an operator did not agree to the call.
    ToolDenied = "TOOL_DENIED",
    /// The target is not the calling thread or one of its descendants.
    OutsideSubtree = "OUTSIDE_SUBTREE",
    /// The role of the caller may not spawn that role.
    SpawnNotAllowed = "SPAWN_NOT_ALLOWED",
    /// The caller may not call this method, may not set one of its fields, or lacks the edge management or the approval
    /// that the call needs.
    NotPermitted = "NOT_PERMITTED",
    /// The service has no such method: it is older than the caller, or the address belongs to the other service.
    UnknownMethod = "UNKNOWN_METHOD",
    /// The token is missing, invalid or stale; these cases have the same reason.
    Unauthenticated = "UNAUTHENTICATED",
    /// The thread or an ancestor is being closed.
    ThreadClosing = "THREAD_CLOSING",
    /// The thread is closed.
    ThreadClosed = "THREAD_CLOSED",
    /// The session is paused.
    SessionPaused = "SESSION_PAUSED",
    /// The session is closed.
    SessionClosed = "SESSION_CLOSED",
    /// The call is not possible in the current state of the session, thread, approval, edge, group, prompt or
    /// supervisor.
    IllegalTransition = "ILLEGAL_TRANSITION",
    /// The request_id was used with another body.
    RequestIdReused = "REQUEST_ID_REUSED",
    /// An alias is taken.
    AliasInUse = "ALIAS_IN_USE",
    /// The position of a watch lies before the oldest event that is kept.
    HistoryCompacted = "HISTORY_COMPACTED",
    /// The position of a watch lies after the newest event.
    AheadOfHead = "AHEAD_OF_HEAD",
    /// Another supervisor takes the session over; nothing was done, and a retry succeeds.
    SessionMoving = "SESSION_MOVING",
    /// The server is shutting down; retry with another server, or later.
    Draining = "DRAINING",
    /// The registry cannot be reached or did not answer in time.
    RegistryUnavailable = "REGISTRY_UNAVAILABLE",
    /// Too much work is waiting; nothing was done.
    Overloaded = "OVERLOADED",
    /// The calling thread, or all threads of its session together, cause more events than allowed; nothing was done.
    /// Retry after the time in RetryInfo.
    RateLimited = "RATE_LIMITED",
    /// The append may or may not have happened; retry with the same request_id.
    OutcomeUnknown = "OUTCOME_UNKNOWN",
    /// The store cannot write now (disk full or read-only); nothing was done.
    StoreUnavailable = "STORE_UNAVAILABLE",
    /// A stored record fails its checksum.
    CorruptRecord = "CORRUPT_RECORD",
    /// Stored data was written by a newer release.
    UpgradeRequired = "UPGRADE_REQUIRED",
    /// No attached runner can enforce the policy of the role.
    PolicyNotEnforceable = "POLICY_NOT_ENFORCEABLE",
    /// The deadline of the call passed before the work was done.
    DeadlineExceeded = "DEADLINE_EXCEEDED",
    /// A defect of the service; the log has the details.
    Internal = "INTERNAL",
}
