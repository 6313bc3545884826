//! The transcript of a thread: the recorded entries, which survive the end of a stream.

use prost::Message;
use troupe_proto::supervisor::v1::{ToolVerdict, TranscriptKind as K};

use crate::{
    program::ECHO,
    supervisor::{TestRunner, input, start, turn, verdict},
};

/// A program that prints text, calls workspace tools, reports the same plan twice, and reports the use of its own tool.
const BUSY: &str = r#"
read -r turn
echo 'looking'
echo 'around'
echo '{"type":"plan","steps":[{"step":"look","state":"completed"}]}'
echo '{"type":"plan","steps":[{"step":"look","state":"completed"}]}'
echo '{"type":"tool","name":"search","detail":"for it"}'
echo '{"tool_call":{"id":"1","name":"write_file","args":{"path":"a.txt","content":"one"}}}'
IFS= read -r line
echo '{"tool_call":{"id":"2","name":"delete_file","args":{"path":"a.txt"}}}'
IFS= read -r line
echo '{"type":"turn_end","outcome":"completed","message":"Done."}'
read -r line
"#;

#[tokio::test]
async fn turn_is_recorded_with_decisions_and_results() {
    let runner = TestRunner::with_script(BUSY).await;
    let workspace = runner.directory.path().join("ws");
    std::fs::create_dir(&workspace).unwrap();
    let mut supervisor = runner.attached(Vec::new()).await;
    let mut start = start();
    start.working_directory = workspace.to_str().unwrap().to_owned();
    start.turn.as_mut().unwrap().inputs = vec![input("Do it.")];
    supervisor.start(start).await;
    supervisor.allow().await;
    let question = supervisor.question().await;
    supervisor.decide(&question, "keep it").await;
    supervisor.diff().await;
    supervisor.turn_ended().await;

    let entries: Vec<_> = supervisor.transcript.iter().flat_map(|batch| &batch.entries).collect();
    let kinds: Vec<_> = entries.iter().map(|entry| entry.kind()).collect();
    let expected = [
        K::Input,
        K::Message,
        K::Plan,
        K::ToolCall,
        K::ToolCall,
        K::ToolResult,
        K::ToolCall,
        K::FileChange,
        K::Message,
    ];
    assert_eq!(kinds, expected, "{entries:?}");
    assert_eq!((entries[0].text.as_str(), entries[0].turn), ("Do it.", 1));
    assert_eq!(entries[1].text, "looking\naround");
    let calls: Vec<_> = entries.iter().filter_map(|entry| entry.tool_call.as_ref()).collect();
    let decisions: Vec<_> = calls
        .iter()
        .map(|call| (call.tool.as_str(), call.verdict(), call.reason.as_str()))
        .collect();
    let expected = [
        ("search", ToolVerdict::Unspecified, ""),
        ("write_file", ToolVerdict::Allowed, ""),
        ("delete_file", ToolVerdict::Denied, "keep it"),
    ];
    assert_eq!(decisions, expected);
    let result = entries[5].tool_result.as_ref().unwrap();
    assert_eq!((result.call_id.as_str(), result.failed), ("1", false));
    assert_eq!(entries[5].text, r#"{"output":"wrote a.txt"}"#);
    let change = entries[7].file_change.as_ref().unwrap();
    assert_eq!((change.path.as_str(), change.added, change.removed), ("a.txt", 1, 0));
    assert_eq!(entries[8].text, "Done.");
    assert!(entries.iter().all(|entry| entry.time.is_some()));
    runner.shut_down().await.unwrap();
}

#[tokio::test]
async fn entries_without_acknowledgement_are_resent() {
    let runner = TestRunner::with_script(ECHO).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    supervisor.acknowledges_transcripts = false;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    let first = supervisor.transcript.clone();
    assert!(!first.is_empty());
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 2)]).await;
    supervisor.give_turn(turn(2)).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    assert_eq!(supervisor.transcript[..first.len()], first);
    let numbers: Vec<u64> = supervisor.transcript.iter().map(|batch| batch.batch).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 2)]).await;
    supervisor.give_turn(turn(3)).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    assert!(
        supervisor.transcript[0].batch > numbers.len() as u64,
        "acknowledged entries are not resent"
    );
    runner.shut_down().await.unwrap();
}

/// Prints 15 MiB in its first turn.
const TALKATIVE: &str = r#"
text=$(head -c 255000 /dev/zero | tr '\0' x)
while read -r line; do
  case "$line" in
    *'"turn":1'[,}]*) for line in $(seq 60); do echo "$text"; done ;;
  esac
  echo '{"type":"turn_end","outcome":"completed","message":"Done."}'
done
"#;

#[tokio::test]
async fn entries_beyond_limit_are_counted() {
    let runner = TestRunner::with_script(TALKATIVE).await;
    let mut supervisor = runner.attached(Vec::new()).await;
    supervisor.acknowledges_transcripts = false;
    supervisor.start(start()).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    let bytes: usize = supervisor.transcript.iter().map(Message::encoded_len).sum();
    assert!((8 << 20..10 << 20).contains(&bytes), "{bytes}");
    let last = supervisor.transcript.len() as u64;
    drop(supervisor);

    let mut supervisor = runner.attached(vec![verdict(true, 2)]).await;
    supervisor.batch(last).await;
    supervisor.transcript.clear();
    supervisor.give_turn(turn(2)).await;
    supervisor.turn_started().await;
    supervisor.turn_ended().await;
    let notice = &supervisor.transcript[0].entries[0];
    assert_eq!(notice.kind(), K::Notice);
    let text = &notice.text;
    assert!(
        text.ends_with(" entries are missing: the supervisor was not reachable"),
        "{text}"
    );
    runner.shut_down().await.unwrap();
}
