//! Asks the supervisor whether a tool may run. A question remains open while the runner is disconnected, and is sent
//! again on the next stream.

use base16ct::lower;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{sync::oneshot, time::timeout};
use troupe_proto::{reason::Reason, supervisor::v1::ToolRequest};
use uuid::Uuid;

use super::{ThreadEvent, ThreadReporter};
use crate::{
    questions::Question,
    redact,
    tools::{DECISION_LIMIT, ToolFailure},
};

/// Maximum length of a tool name in a question, in bytes. Calls that exceed this limit, [`MAX_PATHS`] or
/// [`MAX_PATH_BYTES`] are denied without a question. A question larger than the maximum message would break the stream
/// after each reattach.
const MAX_TOOL_BYTES: usize = 256;
/// Maximum length of the arguments, in bytes of JSON. A question omits longer arguments.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// Maximum number of files that a call may write.
const MAX_PATHS: usize = 64;
/// Maximum length of such a file's path, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// A tool call on which the supervisor decides.
#[derive(Debug)]
pub(super) struct JudgedCall<'a> {
    /// The kind of the program that offers the tool.
    pub(super) kind: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    /// The paths that the call would write. Empty: unknown.
    pub(super) written: Vec<String>,
    /// Whether the program did not offer the tool and has already refused the call.
    pub(super) not_offered: bool,
    /// Whether the program can write only in the docs directory.
    pub(super) docs_only: bool,
}

/// The supervisor's decision on a call.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) verdict: Result<(), ToolFailure>,
    /// The id of the operator's approval. Empty: no operator decided.
    pub(super) approval_id: String,
}

impl From<ToolFailure> for Judgement {
    /// Returns a denial without an operator.
    fn from(failure: ToolFailure) -> Self {
        Self {
            verdict: Err(failure),
            approval_id: String::new(),
        }
    }
}

impl ThreadReporter {
    /// Waits for permission to run a tool. The supervisor records and denies a call of a tool that was not offered. A
    /// denial contains the reason.
    pub(super) async fn ask(&self, call: JudgedCall<'_>, secrets: &[String]) -> Judgement {
        let JudgedCall {
            kind,
            tool,
            arguments,
            written,
            not_offered,
            docs_only,
        } = call;
        if let Err(failure) = check(tool, &written) {
            return failure.into();
        }
        let arguments_sha256 = digest(tool, arguments, &written);
        let mut arguments_json = redact::secrets(arguments, secrets).to_string();
        let mut omitted_bytes = 0;
        if arguments_json.len() > MAX_ARGUMENTS_BYTES {
            omitted_bytes = arguments_json.len() as u64;
            arguments_json.clear();
        }
        let (answer, decision) = oneshot::channel();
        let request = ToolRequest {
            request_id: Uuid::now_v7().to_string(),
            thread_id: self.attempt.thread_id.clone(),
            generation: self.attempt.generation,
            tool: tool.to_owned(),
            arguments_json,
            runner_kind: kind.to_owned(),
            resolved_paths: written,
            arguments_sha256,
            omitted_bytes,
            not_offered,
            docs_only,
        };
        self.report_event(ThreadEvent::Question(Question { request, answer }))
            .await;
        match timeout(DECISION_LIMIT, decision).await {
            Ok(Ok(decision)) => Judgement {
                verdict: match decision.allowed {
                    true => Ok(()),
                    false => Err(ToolFailure::new(Reason::ToolDenied, decision.reason)),
                },
                approval_id: decision.approval_id,
            },
            Ok(Err(_)) => ToolFailure::local("the thread is being stopped").into(),
            Err(_) => {
                let text = format!("the supervisor did not decide on {tool} within {DECISION_LIMIT:?}");
                ToolFailure::new(Reason::DeadlineExceeded, text).into()
            }
        }
    }
}

/// Rejects calls that exceed the limits of a question. Must run before the files of a call are examined.
pub(super) fn check(tool: &str, written: &[String]) -> Result<(), ToolFailure> {
    match too_large(tool, written) {
        None => Ok(()),
        Some(text) => Err(ToolFailure::new(Reason::LimitExceeded, text)),
    }
}

/// Returns the digest of an unredacted call: SHA-256 over the tool, the arguments with sorted keys, and the paths, each
/// preceded by its length.
fn digest(tool: &str, arguments: &Value, written: &[String]) -> String {
    let arguments = arguments.to_string();
    let mut hash = Sha256::new();
    let parts = [tool, &arguments].into_iter().chain(written.iter().map(String::as_str));
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    lower::encode_string(&hash.finalize())
}

/// Returns which part of a call exceeds the limits. `None`: no part does.
fn too_large(tool: &str, written: &[String]) -> Option<String> {
    if tool.len() > MAX_TOOL_BYTES {
        let bytes = tool.len();
        return Some(format!(
            "the name of the tool has {bytes} bytes; at most {MAX_TOOL_BYTES} are allowed"
        ));
    }
    if written.len() > MAX_PATHS {
        let files = written.len();
        return Some(format!(
            "{tool} would write {files} files; at most {MAX_PATHS} are allowed at once"
        ));
    }
    let bytes = written.iter().map(String::len).max().unwrap_or_default();
    (bytes > MAX_PATH_BYTES).then(|| {
        format!("the path of a file that {tool} would write has {bytes} bytes; at most {MAX_PATH_BYTES} are allowed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_tool_arguments_and_paths() {
        let arguments = |cmd: &str| serde_json::json!({"cmd": cmd, "cwd": "."});
        let calls = [
            digest("t", &arguments("a"), &[]),
            digest("u", &arguments("a"), &[]),
            digest("t", &arguments("b"), &[]),
            digest("t", &arguments("a"), &["/p".to_owned()]),
            digest("t", &arguments("a"), &["/".to_owned(), "p".to_owned()]),
        ];
        let distinct: std::collections::BTreeSet<&String> = calls.iter().collect();
        assert_eq!(distinct.len(), calls.len());
        let reordered: Value = serde_json::from_str(r#"{"cwd":".","cmd":"a"}"#).unwrap_or_default();
        assert_eq!(digest("t", &reordered, &[]), calls[0]);
    }

    #[test]
    fn oversized_permission_request_is_not_sent() {
        let paths = |count: usize, bytes: usize| vec!["p".repeat(bytes); count];
        let tool = "t".repeat(MAX_TOOL_BYTES);
        assert_eq!(too_large(&tool, &paths(MAX_PATHS, MAX_PATH_BYTES)), None);
        for (tool, written, words) in [
            (
                "t".repeat(MAX_TOOL_BYTES + 1),
                Vec::new(),
                "the name of the tool has 257 bytes",
            ),
            ("t".to_owned(), paths(MAX_PATHS + 1, 1), "t would write 65 files"),
            (
                "t".to_owned(),
                paths(1, MAX_PATH_BYTES + 1),
                "would write has 4097 bytes",
            ),
        ] {
            let text = too_large(&tool, &written).unwrap_or_default();
            assert!(text.contains(words), "{text}");
        }
    }
}
