//! The next call after a change on disk serves the change, even if calls and changes alternate many times.

use std::{fs, os::unix::fs::symlink};

use tokio::task::JoinSet;
use troupe_proto::{fault::reason_of, reason::Reason, registry::v1::ResolveSpawnRequest};

use crate::site::{Site, plain};

/// Number of changes in each test.
const ROUNDS: usize = 40;
/// Path of the role that changes, in the repository.
const ROLE: &str = "repo/.codex/.agents/who.md";

/// The instructions of the role `who`, or the reason of the error.
type Served = Result<String, Option<Reason>>;

fn missing() -> Served {
    Err(Some(Reason::TemplateNotFound))
}

async fn served(site: &Site, cwd: &str) -> Served {
    let request = ResolveSpawnRequest {
        cwd: site.base.join(cwd).display().to_string(),
        ..site.spawn("who")
    };
    match site.resolve(request).await {
        Ok(resolved) => Ok(resolved.instructions.trim().to_owned()),
        Err(status) => Err(reason_of(&status)),
    }
}

/// Alternates changes and calls. `change` receives the number of the round and returns the result that must be served
/// after it.
async fn take_turns(cwd: &str, prepare: impl FnOnce(&Site), change: impl Fn(&Site, usize) -> Served) {
    let site = Site::new().await;
    prepare(&site);
    for round in 0..ROUNDS {
        let expected = change(&site, round);
        assert_eq!(served(&site, cwd).await, expected, "round {round}");
        assert_eq!(served(&site, cwd).await, expected, "round {round}, nothing changed");
    }
}

/// Returns `even` in even rounds and `odd` in odd rounds.
fn one_of<T>(round: usize, even: T, odd: T) -> T {
    if round.is_multiple_of(2) { even } else { odd }
}

/// Creates a repository with the role `who`.
fn repository(site: &Site, path: &str, prompt: &str) {
    for directory in [".git", "a"] {
        fs::create_dir_all(site.base.join(path).join(directory)).unwrap();
    }
    site.write(&format!("{path}/.codex/.agents/who.md"), &plain(prompt));
}

fn rename(site: &Site, from: &str, to: &str) {
    fs::rename(site.base.join(from), site.base.join(to)).unwrap();
}

/// Creates a link, or changes its target atomically.
fn set_link(site: &Site, link: &str, target: &str) {
    let fresh = format!("{link}.new");
    symlink(target, site.base.join(&fresh)).unwrap();
    rename(site, &fresh, link);
}

#[tokio::test]
async fn file_written_in_place_is_served_at_once() {
    let change = |site: &Site, round: usize| {
        site.write(ROLE, &plain(round));
        Ok(round.to_string())
    };
    take_turns("repo/a", |_| {}, change).await;
}

#[tokio::test]
async fn file_replaced_by_rename_is_served_at_once() {
    let change = |site: &Site, round: usize| {
        site.write("repo/.codex/fresh", &plain(round));
        rename(site, "repo/.codex/fresh", ROLE);
        Ok(round.to_string())
    };
    take_turns("repo/a", |site| drop(site.write(ROLE, &plain("x"))), change).await;
}

#[tokio::test]
async fn created_and_removed_file_is_served_at_once() {
    let change = |site: &Site, round: usize| {
        let path = site.base.join(ROLE);
        if path.exists() {
            fs::remove_file(path).unwrap();
            return missing();
        }
        site.write(ROLE, &plain(round));
        Ok(round.to_string())
    };
    take_turns("repo/a", |_| {}, change).await;
}

#[tokio::test]
async fn created_and_removed_directory_is_served_at_once() {
    let change = |site: &Site, round: usize| {
        let place = site.base.join("repo/a/.codex");
        if place.exists() {
            fs::remove_dir_all(place).unwrap();
            return Ok("far".to_owned());
        }
        site.write("repo/a/.codex/.agents/who.md", &plain(round));
        Ok(round.to_string())
    };
    take_turns("repo/a", |site| drop(site.write(ROLE, &plain("far"))), change).await;
}

#[tokio::test]
async fn moved_repository_root_is_served_at_once() {
    let change = |site: &Site, _: usize| {
        let git = site.base.join("repo/.git");
        if git.exists() {
            fs::remove_dir(git).unwrap();
            return Ok("root".to_owned());
        }
        fs::create_dir(git).unwrap();
        missing()
    };
    let prepare = |site: &Site| drop(site.write(".codex/.agents/who.md", &plain("root")));
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn renamed_parent_directory_is_served_at_once() {
    let prepare = |site: &Site| {
        repository(site, "one/repo", "one");
        repository(site, "two/repo", "two");
    };
    let change = |site: &Site, round: usize| {
        let (now, before) = one_of(round, ("one", "two"), ("two", "one"));
        if site.base.join("up").exists() {
            rename(site, "up", before);
        }
        rename(site, now, "up");
        Ok(now.to_owned())
    };
    take_turns("up/repo/a", prepare, change).await;
}

#[tokio::test]
async fn created_and_removed_cwd_is_served_at_once() {
    let change = |site: &Site, _: usize| {
        let cwd = site.base.join("repo/a");
        if cwd.exists() {
            fs::remove_dir(cwd).unwrap();
            return Err(Some(Reason::CwdNotFound));
        }
        fs::create_dir(cwd).unwrap();
        Ok("x".to_owned())
    };
    take_turns("repo/a", |site| drop(site.write(ROLE, &plain("x"))), change).await;
}

#[tokio::test]
async fn moved_link_to_cwd_is_served_at_once() {
    let prepare = |site: &Site| {
        repository(site, "one", "one");
        repository(site, "two", "two");
    };
    let change = |site: &Site, round: usize| {
        let now = one_of(round, "one", "two");
        set_link(site, "link", now);
        Ok(now.to_owned())
    };
    take_turns("link/a", prepare, change).await;
}

#[tokio::test]
async fn moved_link_to_template_directory_is_served_at_once() {
    let prepare = |site: &Site| {
        site.write("repo/one/who.md", &plain("one"));
        site.write("repo/two/who.md", &plain("two"));
        fs::create_dir(site.base.join("repo/.codex")).unwrap();
    };
    let change = |site: &Site, round: usize| {
        let (now, target) = one_of(round, ("one", "../one"), ("two", "../two"));
        set_link(site, "repo/.codex/.agents", target);
        Ok(now.to_owned())
    };
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn config_map_swap_is_served_at_once() {
    let prepare = |site: &Site| {
        site.write("repo/.codex/.agents/..one/who.md", &plain("one"));
        site.write("repo/.codex/.agents/..two/who.md", &plain("two"));
        set_link(site, ROLE, "..data/who.md");
    };
    let change = |site: &Site, round: usize| {
        let (now, target) = one_of(round, ("one", "..one"), ("two", "..two"));
        set_link(site, "repo/.codex/.agents/..data", target);
        Ok(now.to_owned())
    };
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn written_link_target_is_served_at_once() {
    let prepare = |site: &Site| {
        fs::create_dir_all(site.base.join("home/.codex/.agents")).unwrap();
        set_link(site, "home/.codex/.agents/who.md", "../../elsewhere/who.md");
    };
    let change = |site: &Site, round: usize| {
        site.write("home/elsewhere/who.md", &plain(round));
        Ok(round.to_string())
    };
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn write_through_hard_link_is_served_at_once() {
    let prepare = |site: &Site| {
        let path = site.write(ROLE, &plain("x"));
        fs::hard_link(path, site.base.join("twin.md")).unwrap();
    };
    let change = |site: &Site, round: usize| {
        site.write("twin.md", &plain(round));
        Ok(round.to_string())
    };
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn created_and_removed_home_is_served_at_once() {
    let prepare = |site: &Site| {
        site.write("home/.codex/.agents/who.md", &plain("home"));
        rename(site, "home", "away");
    };
    let change = |site: &Site, round: usize| {
        let (from, to) = one_of(round, ("away", "home"), ("home", "away"));
        rename(site, from, to);
        one_of(round, Ok("home".to_owned()), missing())
    };
    take_turns("repo/a", prepare, change).await;
}

#[tokio::test]
async fn written_footer_is_served_at_once() {
    let site = Site::new().await;
    for round in 0..ROUNDS {
        let footer = format!("This is footer {round}.");
        site.write("repo/.codex/collab/codex_system_footer.md", &footer);
        let resolved = site.resolve(site.spawn("worker")).await.unwrap();
        assert!(
            resolved.blocks.iter().any(|block| block.text.contains(&footer)),
            "{footer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_do_not_hide_changes() {
    let site = Site::new().await;
    site.write(ROLE, &plain("x"));
    let mut others: JoinSet<()> = JoinSet::new();
    for _ in 0..3 {
        let (mut client, request) = (site.client(), site.spawn("who"));
        others.spawn(async move {
            loop {
                // At this moment, the file may be incomplete.
                let _ = client.resolve_spawn(request.clone()).await;
            }
        });
    }
    for round in 0..ROUNDS {
        site.write(ROLE, &plain(round));
        assert_eq!(served(&site, "repo/a").await, Ok(round.to_string()));
    }
    others.shutdown().await;
}
