//! The transcripts of the real programs.

use serde_json::json;
use troupe_proto::supervisor::v1::{ListTranscriptRequest, ToolVerdict, TranscriptEntry, TranscriptKind as K};
use troupe_tests::{
    agents::{GEMINI, KEY, are_wanted, message, send, settled, spawn},
    tree::Tree,
    within,
};

use super::{ALL, lab, tree_of_all, writes};

async fn transcript(tree: &Tree, thread: &str) -> Vec<TranscriptEntry> {
    let request = ListTranscriptRequest {
        thread_id: thread.to_owned(),
        page_size: 1000,
        ..ListTranscriptRequest::default()
    };
    let answer = within("a transcript", tree.client().list_transcript(request)).await;
    answer.unwrap().into_inner().entries
}

/// Returns the result of an allowed call of a tool.
fn result_of<'e>(entries: &'e [TranscriptEntry], tool: &str) -> Option<&'e TranscriptEntry> {
    let calls = entries.iter().filter_map(|entry| entry.tool_call.as_ref());
    let call = calls
        .into_iter()
        .find(|call| call.tool == tool && call.verdict() == ToolVerdict::Allowed)?;
    entries.iter().find(|entry| {
        entry
            .tool_result
            .as_ref()
            .is_some_and(|result| result.call_id == call.call_id)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_program_has_a_transcript() {
    if !are_wanted("transcripts") {
        return;
    }
    let lab = lab().await;
    let tree = tree_of_all(&lab).await;
    for program in ALL {
        let file = format!("by-{program}.txt");
        let steps = json!([
            {"text": "I look.", "shell": "echo seen"},
            writes(program, &lab, &file),
            {"text": "done"},
        ]);
        let thread = spawn(&tree, program, &steps).await;
        assert_eq!(message(&settled(&tree, &thread).await), "done", "{program}");
        let entries = transcript(&tree, &thread).await;
        let of_kind = |kind: K| {
            entries
                .iter()
                .filter(move |entry| entry.kind() == kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(entries[0].kind(), K::Input, "{program}: {entries:#?}");
        assert!(
            entries[0].text.contains("I look."),
            "{program}: the input is the script"
        );
        let messages: Vec<&str> = of_kind(K::Message).iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(messages, ["I look.", "done"], "{program}: {entries:#?}");
        let shown = result_of(&entries, "exec_command");
        let shown = shown.unwrap_or_else(|| panic!("{program}: no result of a command: {entries:#?}"));
        assert!(shown.text.contains("seen"), "{program}: {entries:#?}");
        let writing = if program == GEMINI { "write_file" } else { "apply_patch" };
        assert!(result_of(&entries, writing).is_some(), "{program}: {entries:#?}");
        let changes = of_kind(K::FileChange);
        let change = changes.first().and_then(|entry| entry.file_change.as_ref());
        let change = change.unwrap_or_else(|| panic!("{program}: no file change: {entries:#?}"));
        assert_eq!(
            (change.path.as_str(), change.added, change.removed),
            (file.as_str(), 1, 0)
        );
        assert!(of_kind(K::Error).is_empty(), "{program}: {entries:#?}");
        assert!(!format!("{entries:?}").contains(KEY));

        // The next turn continues the transcript.
        send(&tree, &thread, &json!([{"shell": "echo again"}, {"text": "more"}])).await;
        settled(&tree, &thread).await;
        let longer = transcript(&tree, &thread).await;
        assert_eq!(longer[..entries.len()], entries);
        let second = &longer[entries.len()..];
        assert!(second.iter().all(|entry| entry.turn == 2), "{program}: {second:#?}");
        let again = result_of(second, "exec_command").unwrap_or_else(|| panic!("{program}: {second:#?}"));
        assert!(again.text.contains("again"), "{program}: {second:#?}");
    }
    tree.end().await;
}
