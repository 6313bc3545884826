//! Tests of WatchAgents on a TCP port. Timeouts only end failing tests, and no test sleeps.

use std::{fs, os::unix::fs::symlink, time::Duration};

use registry_svc::WatchBounds;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use troupe_proto::{
    fault,
    reason::Reason,
    registry::v1::{WatchAgentsRequest, WatchAgentsResponse},
};

use crate::site::{Site, assert_fault, plain};

/// Maximum time to wait for a message, much longer than any step takes.
const GUARD: Duration = Duration::from_secs(30);

/// Returns limits under which only changes on disk wake a watcher.
fn woken_only() -> WatchBounds {
    WatchBounds {
        debounce: Duration::from_millis(20),
        poll: GUARD * 10,
        bookmark_every: GUARD * 10,
        ..WatchBounds::default()
    }
}

async fn site(bounds: WatchBounds) -> Site {
    Site::with(|config| config.watch = bounds).await
}

async fn watch(site: &Site) -> Result<Streaming<WatchAgentsResponse>, Status> {
    let request = WatchAgentsRequest {
        cwd: site.cwd(),
        ..WatchAgentsRequest::default()
    };
    Ok(site.client().watch_agents(request).await?.into_inner())
}

async fn next(stream: &mut Streaming<WatchAgentsResponse>) -> Result<Option<WatchAgentsResponse>, Status> {
    timeout(GUARD, stream.message()).await.expect("no message came")
}

async fn state(stream: &mut Streaming<WatchAgentsResponse>) -> WatchAgentsResponse {
    next(stream).await.unwrap().expect("the stream ended")
}

/// Reads states until one matches, because an incomplete write may be visible.
async fn until(
    stream: &mut Streaming<WatchAgentsResponse>,
    fits: impl Fn(&WatchAgentsResponse) -> bool,
) -> WatchAgentsResponse {
    loop {
        let state = state(stream).await;
        if fits(&state) {
            return state;
        }
    }
}

fn changed(state: &WatchAgentsResponse) -> Vec<&str> {
    state.changed.iter().map(|agent| agent.agent_type.as_str()).collect()
}

#[tokio::test]
async fn first_state_is_whole_catalogue() {
    let site = site(woken_only()).await;
    site.role("clerk", &plain("x"));
    site.role("broken", "---\nread_only: yes\n---\nx");
    let mut stream = watch(&site).await.unwrap();
    let first = state(&mut stream).await;
    assert!(changed(&first).contains(&"clerk") && !changed(&first).contains(&"broken"));
    let mut partial = site.all();
    partial.allow_partial = true;
    let listing = site.list(partial).await.unwrap();
    let expected = WatchAgentsResponse {
        revision: listing.revision,
        changed: listing.agents,
        removed: Vec::new(),
        diagnostics: listing.diagnostics,
    };
    assert_eq!(first, expected);
}

#[tokio::test]
async fn changes_on_disk_are_sent_as_differences() {
    let site = site(woken_only()).await;
    let path = site.role("clerk", &plain("one"));
    let mut stream = watch(&site).await.unwrap();
    let first = state(&mut stream).await;

    site.role("clerk", &plain("two"));
    let second = until(&mut stream, |state| !changed(state).is_empty()).await;
    assert_eq!(changed(&second), ["clerk"]);
    assert_ne!(second.revision, first.revision);

    site.role("typist", &plain("x"));
    let third = until(&mut stream, |state| changed(state) == ["typist"]).await;
    assert_eq!(third.removed, Vec::<String>::new());

    // The malformed role is no longer served, and the state has a diagnostic about it.
    site.role("clerk", "---\nread_only: yes\n---\nx");
    let fourth = until(&mut stream, |state| state.removed == ["clerk"]).await;
    assert_eq!(fourth.diagnostics.len(), 1);

    fs::remove_file(path).unwrap();
    let fifth = until(&mut stream, |state| state.diagnostics.is_empty()).await;
    assert_eq!((changed(&fifth), fifth.removed.len()), (vec![], 0));
}

#[tokio::test]
async fn directory_created_later_is_detected() {
    let site = site(woken_only()).await;
    let mut stream = watch(&site).await.unwrap();
    state(&mut stream).await;
    site.write("repo/a/.codex/.agents/near.md", &plain("x"));
    until(&mut stream, |state| changed(state) == ["near"]).await;
    site.write("home/.codex/.agents/mine.md", &plain("x"));
    until(&mut stream, |state| changed(state) == ["mine"]).await;

    fs::remove_dir_all(site.base.join("repo/a/.codex")).unwrap();
    until(&mut stream, |state| state.removed == ["near"]).await;
    site.write("repo/a/.codex/.agents/again.md", &plain("x"));
    until(&mut stream, |state| changed(state) == ["again"]).await;
}

#[tokio::test]
async fn change_of_link_target_wakes_watcher() {
    let bounds = WatchBounds {
        poll: Duration::from_millis(50),
        ..woken_only()
    };
    let site = site(bounds).await;
    // The target lies outside the template directories.
    let target = site.write("repo/elsewhere/linked.md", &plain("one"));
    fs::create_dir_all(site.base.join("repo/.codex/.agents")).unwrap();
    symlink(&target, site.base.join("repo/.codex/.agents/linked.md")).unwrap();
    let mut stream = watch(&site).await.unwrap();
    assert!(changed(&state(&mut stream).await).contains(&"linked"));
    fs::write(&target, plain("two")).unwrap();
    until(&mut stream, |state| changed(state) == ["linked"]).await;
}

#[tokio::test]
async fn silent_stream_repeats_its_revision() {
    let bounds = WatchBounds {
        bookmark_every: Duration::from_millis(50),
        ..woken_only()
    };
    let site = site(bounds).await;
    let mut stream = watch(&site).await.unwrap();
    let first = state(&mut stream).await;
    let bookmark = state(&mut stream).await;
    assert_eq!(bookmark.revision, first.revision);
    assert_eq!((bookmark.changed.len(), bookmark.removed.len()), (0, 0));
}

#[tokio::test]
async fn stream_ends_at_lifetime() {
    let bounds = WatchBounds {
        lifetime: Duration::from_millis(50),
        ..woken_only()
    };
    let site = site(bounds).await;
    let mut stream = watch(&site).await.unwrap();
    state(&mut stream).await;
    assert_eq!(next(&mut stream).await.unwrap(), None);
}

#[tokio::test]
async fn streams_end_when_the_service_drains() {
    let site = site(woken_only()).await;
    let mut stream = watch(&site).await.unwrap();
    state(&mut stream).await;
    site.draining.cancel();
    let ended = next(&mut stream).await.unwrap_err();
    assert_fault(
        &ended,
        Code::Unavailable,
        Reason::Draining,
        "the registry is shutting down",
    );
    assert!(fault::retry_after(&ended).is_some());
    let refused = watch(&site).await.unwrap_err();
    assert_fault(
        &refused,
        Code::Unavailable,
        Reason::Draining,
        "the registry is shutting down",
    );
}

#[tokio::test]
async fn stream_limit_is_enforced_and_ended_stream_frees_slot() {
    let bounds = WatchBounds {
        streams: 1,
        ..woken_only()
    };
    let site = site(bounds).await;
    let mut one = watch(&site).await.unwrap();
    state(&mut one).await;
    let refused = watch(&site).await.unwrap_err();
    assert_fault(
        &refused,
        Code::ResourceExhausted,
        Reason::Overloaded,
        "1 streams of WatchAgents are open, which is the limit",
    );
    assert!(fault::retry_after(&refused).is_some());
    drop(one);
    let room = async {
        while watch(&site).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(GUARD, room).await.unwrap();
}

#[tokio::test]
async fn invalid_directory_fails_call_and_removed_one_ends_stream() {
    let site = site(woken_only()).await;
    let at = |cwd: String| WatchAgentsRequest {
        cwd,
        ..WatchAgentsRequest::default()
    };
    let none = site.base.join("none").display().to_string();
    for (cwd, code) in [("relative", Code::InvalidArgument), (none.as_str(), Code::NotFound)] {
        let error = site.client().watch_agents(at(cwd.to_owned())).await.unwrap_err();
        assert_eq!(error.code(), code, "{cwd}");
    }
    let mut stream = watch(&site).await.unwrap();
    state(&mut stream).await;
    fs::remove_dir_all(site.base.join("repo/a")).unwrap();
    let ended = loop {
        match next(&mut stream).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without a reason"),
            Err(ended) => break ended,
        }
    };
    assert_fault(&ended, Code::NotFound, Reason::CwdNotFound, "cwd ");
}
