//! Transcripts: entries are stored once and in order, listed, followed, and displayed only to authorized callers.

use std::time::Duration;

use tonic::{Code, Status};
use troupe_proto::supervisor::v1::{
    AppendTranscriptRequest, ExportSessionRequest, ListTranscriptRequest, ListTranscriptResponse, PolicyGapReport,
    ToolVerdict, TranscriptEntry, TranscriptKind as K, TranscriptLog, TranscriptToolCall, TranscriptToolResult,
    WatchTranscriptRequest, WatchTranscriptResponse, export_session_response::Record, runner_report::Kind,
};
use troupe_proto::{fault::reason_of, reason::Reason};
use troupe_tests::{
    client::Supervisor,
    content::read,
    events::names,
    pair::{Pair, VIEWER},
    refusal::outside_subtree,
    within,
};

use crate::{attached, running, started, working};

fn entry(kind: K, text: &str) -> TranscriptEntry {
    TranscriptEntry {
        kind: kind.into(),
        text: text.to_owned(),
        turn: 1,
        ..TranscriptEntry::default()
    }
}

fn of(thread: &str) -> ListTranscriptRequest {
    ListTranscriptRequest {
        thread_id: thread.to_owned(),
        ..ListTranscriptRequest::default()
    }
}

async fn page(client: &Supervisor, request: ListTranscriptRequest) -> Result<ListTranscriptResponse, Status> {
    let answer = within("a page of a transcript", client.clone().list_transcript(request)).await?;
    Ok(answer.into_inner())
}

/// Returns the numbers and texts of a page.
fn shown(page: &ListTranscriptResponse) -> Vec<(u64, &str)> {
    page.entries
        .iter()
        .map(|entry| (entry.number, entry.text.as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_stored_once_and_listed_in_pages() {
    let (pair, tree, mut runner, _, attempt) = working().await;
    let texts = ["do it", "looking", "done"];
    let entries = || vec![entry(K::Input, texts[0]), entry(K::Message, texts[1])];
    runner.transcribe(&attempt, 1, entries()).await;
    runner.transcribe(&attempt, 1, entries()).await;
    let mut runner = runner.come_back(&pair, std::slice::from_ref(&attempt)).await;
    runner.transcribe(&attempt, 1, entries()).await;
    runner.transcribe(&attempt, 2, vec![entry(K::Message, texts[2])]).await;

    let client = tree.client();
    let all = page(&client, of(&attempt.thread)).await.unwrap();
    assert_eq!(shown(&all), [(1, texts[0]), (2, texts[1]), (3, texts[2])]);
    assert!(
        all.entries
            .iter()
            .all(|entry| entry.generation == 1 && entry.turn == 1 && entry.time.is_some())
    );

    let small = |token: String| ListTranscriptRequest {
        page_size: 2,
        page_token: token,
        ..of(&attempt.thread)
    };
    let first = page(&client, small(String::new())).await.unwrap();
    assert_eq!(first.entries.len(), 2);
    let second = page(&client, small(first.next_page_token)).await.unwrap();
    assert_eq!(
        (shown(&second), second.next_page_token.as_str()),
        (vec![(3, texts[2])], "")
    );
    let of_worker = |change: fn(&mut ListTranscriptRequest)| {
        let mut request = of(&attempt.thread);
        change(&mut request);
        request
    };
    for (request, expected) in [
        (of_worker(|request| request.after_number = 2), vec![3]),
        (of_worker(|request| request.tail = 2), vec![2, 3]),
        (of_worker(|request| request.kinds = vec![K::Input.into()]), vec![1]),
        (
            of_worker(|request| {
                request.kinds = vec![K::Message.into()];
                request.tail = 1;
            }),
            vec![3],
        ),
    ] {
        let found = page(&client, request.clone()).await.unwrap();
        let numbers: Vec<u64> = found.entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, expected, "{request:?}");
    }
    for bad in [
        of_worker(|request| request.kinds = vec![99]),
        of_worker(|request| request.kinds = vec![0]),
        of_worker(|request| request.tail = 100_001),
        of_worker(|request| request.page_size = -1),
        of_worker(|request| request.page_token = String::from("x")),
    ] {
        let refusal = page(&client, bad.clone()).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{bad:?}: {refusal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcript_survives_restart_and_goes_with_its_session() {
    let (mut pair, tree, mut runner, _, attempt) = working().await;
    let long = "x".repeat(20_000);
    runner
        .transcribe(&attempt, 1, vec![entry(K::Message, &long), entry(K::ToolResult, &long)])
        .await;
    runner.complete(&attempt, "done").await;
    pair.restart().await;
    let mut runner = runner.come_back(&pair, std::slice::from_ref(&attempt)).await;
    let tree = tree.by(pair.operator());
    let client = tree.client();
    let found = page(&client, of(&attempt.thread)).await.unwrap();
    let content = found.entries[0].content.clone().unwrap();
    assert_eq!((found.entries[0].text.as_str(), content.size), ("", 20_000));
    assert_eq!(found.entries[1].text.len(), 4096, "a result keeps its beginning");
    assert_eq!(
        read(&client, &tree.session, &content.digest).await.unwrap(),
        long.as_bytes()
    );
    tree.close_with(&mut runner, &attempt).await;
    tree.end().await;
    tree.delete().await;
    let gone = page(&client, of(&attempt.thread)).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
}

/// The messages of a watch.
struct Watch(tonic::Streaming<WatchTranscriptResponse>);

impl Watch {
    async fn open(client: &Supervisor, request: WatchTranscriptRequest) -> Self {
        let watch = within("a watch", client.clone().watch_transcript(request)).await;
        Self(watch.unwrap().into_inner())
    }

    /// Returns the next entries and skips bookmarks.
    async fn entries(&mut self) -> Vec<(u64, String)> {
        loop {
            let message = self.message().await;
            if !message.entries.is_empty() {
                return message
                    .entries
                    .into_iter()
                    .map(|entry| (entry.number, entry.text))
                    .collect();
            }
        }
    }

    async fn message(&mut self) -> WatchTranscriptResponse {
        within("a message of a transcript watch", self.0.message())
            .await
            .unwrap()
            .expect("the stream continues")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_follows_new_entries_until_thread_is_closed() {
    let (_pair, tree, mut runner, _, attempt) = working().await;
    runner
        .transcribe(&attempt, 1, vec![entry(K::Input, "a"), entry(K::Message, "b")])
        .await;
    let request = |after_number, tail| WatchTranscriptRequest {
        thread_id: attempt.thread.clone(),
        after_number,
        tail,
        ..WatchTranscriptRequest::default()
    };
    let mut watch = Watch::open(&tree.client(), request(0, 1)).await;
    assert_eq!(watch.entries().await, [(2, String::from("b"))]);
    runner.transcribe(&attempt, 2, vec![entry(K::Message, "c")]).await;
    assert_eq!(watch.entries().await, [(3, String::from("c"))]);
    let mut resumed = Watch::open(&tree.client(), request(2, 0)).await;
    assert_eq!(resumed.entries().await, [(3, String::from("c"))]);

    runner.transcribe(&attempt, 3, vec![entry(K::Message, "d")]).await;
    runner.complete(&attempt, "d").await;
    tree.begin_close(&attempt.thread).await;
    runner.stop_as_asked(&attempt).await;
    for watch in [&mut watch, &mut resumed] {
        assert_eq!(watch.entries().await, [(4, String::from("d"))]);
        let mut last = watch.message().await;
        while !last.closed {
            last = watch.message().await;
        }
        assert_eq!(last.number, 4);
        assert!(within("the end", watch.0.message()).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcript_is_complete_when_its_turn_ends() {
    let (_pair, tree, mut runner, _, attempt) = working().await;
    for batch in 1..=100 {
        runner.send_batch(&attempt, batch, vec![entry(K::Message, "m")]).await;
    }
    // Waits for the acknowledgement of the report, but not of the batches before it.
    runner.complete(&attempt, "done").await;
    let request = ListTranscriptRequest {
        page_size: 1000,
        ..of(&attempt.thread)
    };
    assert_eq!(page(&tree.client(), request).await.unwrap().entries.len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_reads_its_subtree_and_viewer_reads_no_texts() {
    let (pair, tree, mut runner) = attached().await;
    let parent = tree.spawn("worker").await;
    runner.run(&parent.id).await;
    let child = tree.spawn_under(&parent.id, "worker").await;
    let attempt = runner.run(&child.id).await;
    let call = TranscriptEntry {
        tool_call: Some(TranscriptToolCall {
            call_id: String::from("1"),
            tool: String::from("exec_command"),
            verdict: ToolVerdict::Denied.into(),
            reason: String::from("secret"),
            ..TranscriptToolCall::default()
        }),
        ..entry(K::ToolCall, "{\"command\":\"secret\"}")
    };
    let result = TranscriptEntry {
        tool_result: Some(TranscriptToolResult {
            call_id: String::from("1"),
            size: 6,
            ..TranscriptToolResult::default()
        }),
        ..entry(K::ToolResult, "secret")
    };
    let long = "secret".repeat(5_000);
    runner
        .transcribe(&attempt, 1, vec![call, result, entry(K::Message, &long)])
        .await;

    let by_parent = pair.with_token(&parent.token);
    let found = page(&by_parent, of(&child.id)).await.unwrap();
    assert_eq!(found.entries[1].text, "secret");
    let digest = found.entries[2].content.clone().unwrap().digest;
    assert_eq!(
        read(&by_parent, &tree.session, &digest).await.unwrap().len(),
        long.len()
    );
    let own = page(&pair.with_token(&child.token), ListTranscriptRequest::default())
        .await
        .unwrap();
    assert_eq!(own.entries.len(), 3);
    let outside = page(&pair.with_token(&child.token), of(&parent.id)).await;
    let text = "Not permitted to act on agents outside your subtree.";
    outside_subtree(outside, text);
    let sibling = tree.spawn("worker").await;
    let by_sibling = pair.with_token(&sibling.token);
    let absent = read(&by_sibling, &tree.session, &digest).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);

    let viewer = pair.with_token(VIEWER);
    let seen = page(&viewer, of(&child.id)).await.unwrap();
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    let call = seen.entries[0].tool_call.as_ref().unwrap();
    assert_eq!(
        (call.tool.as_str(), call.verdict()),
        ("exec_command", ToolVerdict::Denied)
    );
    assert!(read(&viewer, &tree.session, &digest).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_writes_the_transcript_of_its_root() {
    let (pair, tree) = started().await;
    let root = pair.with_token(&tree.root_token);
    let batch = |batch, entries: Vec<TranscriptEntry>| AppendTranscriptRequest {
        batch,
        entries,
        ..AppendTranscriptRequest::default()
    };
    let append = async |client: &Supervisor, request: AppendTranscriptRequest| {
        let answer = within("an append", client.clone().append_transcript(request)).await?;
        Ok::<u64, Status>(answer.into_inner().last_number)
    };
    let first = || batch(7, vec![entry(K::Input, "Ship it."), entry(K::Message, "I look.")]);
    assert_eq!(append(&root, first()).await.unwrap(), 2);
    assert_eq!(append(&root, first()).await.unwrap(), 0, "a retry");
    assert_eq!(
        append(&root, batch(8, vec![entry(K::Message, "Done.")])).await.unwrap(),
        3
    );
    let by_operator = AppendTranscriptRequest {
        session_id: tree.session.clone(),
        ..batch(9, vec![entry(K::Notice, "seen")])
    };
    assert_eq!(append(&tree.client(), by_operator).await.unwrap(), 4);
    let found = page(&root, of("")).await.unwrap();
    assert_eq!(
        shown(&found),
        [(1, "Ship it."), (2, "I look."), (3, "Done."), (4, "seen")]
    );

    let worker = tree.spawn("worker").await;
    let by_worker = append(
        &pair.with_token(&worker.token),
        batch(1, vec![entry(K::Message, "Me too.")]),
    )
    .await;
    assert_eq!(reason_of(&by_worker.unwrap_err()), Some(Reason::IllegalTransition));
    let text = &*"x".repeat(1_024 * 1_024);
    for (bad, field) in [
        (batch(0, vec![entry(K::Message, "x")]), "batch"),
        (batch(10, Vec::new()), "entries"),
        (batch(10, vec![entry(K::Message, "x"); 257]), "entries"),
        (
            batch(10, [text, text, "x"].map(|text| entry(K::Message, text)).into()),
            "entries",
        ),
        (batch(10, vec![entry(K::Unspecified, "x")]), "entries.kind"),
    ] {
        let refusal = append(&root, bad).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
        assert!(
            refusal.message().starts_with(field) || field == "entries.kind",
            "{refusal}"
        );
    }
    tree.end().await;
    let late = AppendTranscriptRequest {
        session_id: tree.session.clone(),
        ..batch(11, vec![entry(K::Message, "late")])
    };
    assert_eq!(
        reason_of(&append(&tree.client(), late).await.unwrap_err()),
        Some(Reason::ThreadClosed)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_and_lost_attempts_are_notices() {
    let pair = Pair::with(|config| config.lease = Duration::from_secs(3)).await;
    let tree = pair.tree().await;
    let (mut runner, attempt) = running(&pair, &tree).await;
    let request = WatchTranscriptRequest {
        thread_id: attempt.thread.clone(),
        ..WatchTranscriptRequest::default()
    };
    let mut watch = Watch::open(&tree.client(), request).await;
    runner.transcribe(&attempt, 1, vec![entry(K::Message, "I look.")]).await;
    let gap = PolicyGapReport {
        gap: String::from("web_search"),
    };
    runner.report(&attempt, Kind::PolicyGap(gap)).await;
    drop(runner);
    let mut found = Vec::new();
    for expected in [
        "I look.",
        "POLICY_GAP: web_search",
        "UNREACHABLE: runner r has been disconnected for half of its lease",
        "the attempt ended: runner r was lost",
    ] {
        while found.is_empty() {
            found = within(expected, watch.entries()).await;
        }
        let (_, text) = found.remove(0);
        assert!(text.starts_with(expected), "{text}");
    }
    let all = page(&tree.client(), of(&attempt.thread)).await.unwrap();
    let numbers: Vec<u64> = all.entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(
        all.entries[1..]
            .iter()
            .all(|entry| entry.kind() == K::Notice && entry.turn == 1)
    );
}

/// Returns all records of an export.
async fn exported(client: &Supervisor, session: &str) -> Result<Vec<Record>, Status> {
    records(client, session, false).await
}

async fn records(client: &Supervisor, session: &str, prompt_texts: bool) -> Result<Vec<Record>, Status> {
    let request = ExportSessionRequest {
        session_id: session.to_owned(),
        prompt_texts,
    };
    let mut stream = within("an export", client.clone().export_session(request))
        .await?
        .into_inner();
    let mut records = Vec::new();
    while let Some(message) = within("a record", stream.message()).await? {
        records.extend(message.record);
    }
    Ok(records)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_contains_all_records_in_order() {
    let (pair, tree, mut runner, _, attempt) = working().await;
    let entries: Vec<_> = (0..200)
        .map(|number| entry(K::Message, &format!("secret {number}")))
        .collect();
    runner.transcribe(&attempt, 1, entries).await;
    runner.complete(&attempt, "done").await;
    let records = exported(&tree.client(), &tree.session).await.unwrap();
    let Record::Header(header) = &records[0] else {
        panic!("{:?}", records[0]);
    };
    assert_eq!((header.format_version, header.log_id.len()), (1, 36));
    assert!(matches!(&records[1], Record::Session(session) if session.session_id == tree.session));
    let threads = records.iter().filter_map(|record| match record {
        Record::Thread(thread) => Some(thread.thread_id.as_str()),
        _ => None,
    });
    assert_eq!(
        threads.collect::<Vec<_>>(),
        [tree.root.as_str(), attempt.thread.as_str()]
    );
    let events = records.iter().filter_map(|record| match record {
        Record::Event(event) => Some(event.clone()),
        _ => None,
    });
    let (events, log) = (events.collect::<Vec<_>>(), tree.log().await);
    assert_eq!(names(&events), names(&log));
    assert!(
        records
            .iter()
            .any(|record| matches!(record, Record::Prompt(prompt) if prompt.turn == 1))
    );
    let numbers = records.iter().filter_map(|record| match record {
        Record::Entry(entry) => Some((entry.thread_id.as_str(), entry.entry.as_ref().unwrap().number)),
        _ => None,
    });
    let expected = (1..=200).map(|number| (attempt.thread.as_str(), number));
    assert!(numbers.eq(expected));

    let has_text = |record: &Record| match record {
        Record::Prompt(prompt) => prompt.blocks.iter().any(|block| !block.text.is_empty()),
        _ => false,
    };
    assert!(!records.iter().any(has_text));
    let with_texts = self::records(&tree.client(), &tree.session, true).await.unwrap();
    assert_eq!(with_texts.iter().filter(|record| has_text(record)).count(), 1);
    let by_viewer = self::records(&pair.with_token(VIEWER), &tree.session, true)
        .await
        .unwrap();
    assert!(!by_viewer.iter().any(has_text));

    let seen = exported(&pair.with_token(VIEWER), &tree.session).await.unwrap();
    assert_eq!(seen.len(), records.len());
    assert!(seen.iter().all(|record| !format!("{record:?}").contains("secret")));
    let unknown = exported(&tree.client(), troupe_tests::UNKNOWN).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_setting_limits_stored_transcript() {
    let pair = Pair::start().await;
    let kinds = [
        K::Input,
        K::Message,
        K::Reasoning,
        K::ToolCall,
        K::ToolResult,
        K::Plan,
        K::Notice,
    ];
    let tools = vec![
        (K::Input, "text", false),
        (K::ToolCall, "text", false),
        (K::ToolResult, "", true),
        (K::Notice, "text", false),
    ];
    for (log, expected) in [
        (TranscriptLog::Full, kinds.map(|kind| (kind, "text", false)).to_vec()),
        (TranscriptLog::Tools, tools),
        (TranscriptLog::Off, Vec::new()),
    ] {
        let tree = pair.tree_where(|session| session.transcript = log.into()).await;
        assert_eq!(tree.now().await.transcript(), log);
        let (mut runner, attempt) = running(&pair, &tree).await;
        let entries = kinds.map(|kind| entry(kind, "text"));
        runner.transcribe(&attempt, 1, entries.to_vec()).await;
        let page = page(&tree.client(), of(&attempt.thread)).await.unwrap();
        let entries = page.entries.iter();
        let found: Vec<_> = entries
            .map(|entry| (entry.kind(), entry.text.as_str(), entry.text_left_out))
            .collect();
        assert_eq!(found, expected);
    }
}
