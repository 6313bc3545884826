//! A hostile child: a program with a thread's token calls every method on objects outside its subtree, requests more
//! permissions than it has, and presents invalid tokens. Each call is rejected with the right code, and the error for
//! an existing object is identical to the error for a missing object.
//!
//! [`table`] lists the calls and their expected errors. A test fails if a method of the API is missing in the table.
//! `artifacts.rs` and `graph.rs` contain similar tests for contents and for the receivers of handoffs.

mod table;

use std::{collections::BTreeMap, fs, path::Path};

use jsonwebtoken::{Algorithm, EncodingKey, crypto::sign};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use svc_kit::{
    identity::ThreadPrincipal,
    thread_token::{KEYS_FILE, TokenKeys},
};
use tonic::{Code, Status};
use troupe_proto::{
    FILE_DESCRIPTOR_SET,
    common::v1::Sandbox,
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{
        Budget, CreateEdgeRequest, DeleteEdgeRequest, ListSpawnableAgentsRequest, RestartPolicy, SendHandoffRequest,
        SpawnAgentRequest, StartRefusal, StatusKind, ToolCeiling,
    },
};
use troupe_tests::{
    UNKNOWN, accepted,
    pair::Pair,
    refusal::{outside_subtree, refused},
    runner::{Attempt, Runner},
    tree::{Spawned, Tree, kind},
    within,
};

use crate::approvals::{node, pair_with_lead};

use self::table::{NO_ACTING, NO_TOKEN, Rule, Target, by_itself, every_method, words};

/// The alias of the sibling.
const SIBLING: &str = "sister";

/// Returns a method's name in snake case, as in generated clients.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_calls_cover_every_api_method() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let told = every_method(&pair, &tree.root_token, by_itself(UNKNOWN)).await;
    let mut tried: Vec<String> = told.iter().map(|told| told.method.to_owned()).collect();
    tried.sort();

    let descriptors = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let services = descriptors.file.iter().flat_map(|file| &file.service);
    let methods = services.flat_map(|service| &service.method);
    let mut there_are: Vec<String> = methods.map(|method| snake_case(method.name())).collect();
    there_are.sort();
    assert_eq!(tried, there_are);
}

// ---- objects of other threads ----

/// The child and all threads around it. Each thread has every tool, so that no call is rejected for a missing
/// permission.
struct Family {
    pair: Pair,
    tree: Tree,
    parent: Spawned,
    child: Spawned,
    sibling: Spawned,
    /// The parent's sibling.
    uncle: Spawned,
    /// Another session.
    elsewhere: Tree,
    /// A thread of the other session.
    stranger: Spawned,
}

impl Family {
    async fn spawn() -> Self {
        Box::pin(Self::on(Pair::start().await)).await
    }

    async fn on(pair: Pair) -> Self {
        let tree = pair.tree().await;
        let parent = tree.spawn("orchestrator").await;
        let child = tree.spawn_under(&parent.id, "orchestrator").await;
        let sibling = SpawnAgentRequest {
            alias: SIBLING.to_owned(),
            ..tree.request_under(&parent.id, "orchestrator")
        };
        let sibling = tree.spawn_with(sibling).await;
        let uncle = tree.spawn("orchestrator").await;
        let elsewhere = pair.tree().await;
        let stranger = elsewhere.spawn("orchestrator").await;
        Self {
            pair,
            tree,
            parent,
            child,
            sibling,
            uncle,
            elsewhere,
            stranger,
        }
    }

    /// Returns objects that are not the child's own, and objects that do not exist.
    fn others(&self) -> [(&'static str, Target<'_>); 10] {
        let there = |session, thread| Target { session, thread };
        let (own, other) = (self.tree.session.as_str(), self.elsewhere.session.as_str());
        [
            ("nobody", by_itself(UNKNOWN)),
            ("its parent", by_itself(&self.parent.id)),
            ("its sibling", by_itself(&self.sibling.id)),
            ("its uncle", by_itself(&self.uncle.id)),
            ("its root", by_itself(&self.tree.root)),
            ("a stranger", by_itself(&self.stranger.id)),
            ("its sibling in its session", there(own, self.sibling.id.as_str())),
            ("a stranger where it is", there(other, self.stranger.id.as_str())),
            ("itself in another session", there(other, self.child.id.as_str())),
            ("itself in no session", there(UNKNOWN, self.child.id.as_str())),
        ]
    }

    /// Returns the sequences of the newest events of both sessions.
    async fn heads(&self) -> (u64, u64) {
        (self.tree.head().await, self.elsewhere.head().await)
    }

    /// Returns the session with a client that uses a thread's token.
    fn by(&self, thread: &Spawned) -> Tree {
        self.tree.by(self.pair.with_token(&thread.token))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_outside_subtree_is_indistinguishable_from_unknown() {
    let family = Box::pin(Family::spawn()).await;
    let heads = family.heads().await;
    let mut first = BTreeMap::new();
    for (whom, target) in family.others() {
        for told in every_method(&family.pair, &family.child.token, target).await {
            let names_its_session = target.session.is_empty() || target.session == family.tree.session;
            if told.rule == Rule::Session && names_its_session {
                continue;
            }
            assert!(told.is(told.rule.refusal()), "on {whom}: {told:?}");
            let words = words(&told.answer.unwrap_err());
            let expected = first.entry(told.method).or_insert_with(|| words.clone());
            assert_eq!(*expected, words, "{} reveals more about {whom}", told.method);
        }
    }
    assert_eq!(family.heads().await, heads);

    let visible = family.by(&family.parent).threads().await;
    let visible: Vec<&String> = visible.iter().map(|thread| &thread.thread_id).collect();
    assert_eq!(
        visible,
        [&family.parent.id, &family.child.id, &family.sibling.id],
        "a listing contains only the caller's subtree"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_edges_are_like_unknown_edges() {
    let family = Box::pin(Family::spawn()).await;
    let child = || family.child.id.clone();
    let join = |from: &str, to: &str| CreateEdgeRequest {
        from_thread_id: from.to_owned(),
        to_thread_id: to.to_owned(),
        ..CreateEdgeRequest::default()
    };
    let between_others = join(&family.sibling.id, &family.uncle.id);
    let created = family.tree.client().create_edge(between_others).await.unwrap();
    let created = created.into_inner().edge.unwrap().edge_id;
    let heads = family.heads().await;
    let mut by_child = family.by(&family.child).client();

    let mut first = None;
    for edge_id in [UNKNOWN, &created] {
        let request = DeleteEdgeRequest {
            edge_id: edge_id.to_owned(),
            ..DeleteEdgeRequest::default()
        };
        let answer = by_child.delete_edge(request).await;
        let status = outside_subtree(answer, NO_ACTING);
        let told = words(&status);
        assert_eq!(*first.get_or_insert_with(|| told.clone()), told, "{edge_id}");
    }

    let names = [
        UNKNOWN,
        "nobody",
        SIBLING,
        &family.sibling.id,
        &family.uncle.id,
        &family.tree.root,
        &family.stranger.id,
    ];
    let mut first = None;
    for name in names {
        let to = by_child.create_edge(join(&child(), name)).await;
        let from = by_child.create_edge(join(name, &child())).await;
        let answered = SendHandoffRequest {
            to_thread_id: family.parent.id.clone(),
            message: String::from("look at this"),
            reply_to_thread_id: name.to_owned(),
            ..SendHandoffRequest::default()
        };
        let reply = by_child.send_handoff(answered).await;
        let unknown = "reply_to_thread_id must name an agent of your subtree";
        let told = [
            refused(to, Code::PermissionDenied, Reason::OutsideSubtree, NO_ACTING),
            refused(from, Code::PermissionDenied, Reason::OutsideSubtree, NO_ACTING),
            refused(reply, Code::InvalidArgument, Reason::InvalidArgument, unknown),
        ];
        let told = told.map(|status| words(&status));
        assert_eq!(*first.get_or_insert_with(|| told.clone()), told, "{name}");
    }
    assert_eq!(family.heads().await, heads);
}

/// A handoff with a fault in another field is rejected with the same error for every receiver and for every handoff
/// that it answers, whether or not these exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_handoff_does_not_reveal_threads() {
    let family = Box::pin(Family::spawn()).await;
    let to_parent = || SendHandoffRequest {
        to_thread_id: family.parent.id.clone(),
        message: String::from("look at this"),
        ..SendHandoffRequest::default()
    };
    let sent = SendHandoffRequest {
        request_id: String::from("once"),
        ..to_parent()
    };
    let mut by_child = family.by(&family.child).client();
    accepted("the answer to a handoff", by_child.send_handoff(sent)).await;
    // A closed thread, for which its parent may act.
    family.tree.close(&family.sibling.id).await;
    let heads = family.heads().await;

    let invalid = |text| (Code::InvalidArgument, Reason::InvalidArgument, text);
    let with = |change: &dyn Fn(&mut SendHandoffRequest)| {
        let mut request = to_parent();
        change(&mut request);
        request
    };
    let wrong = [
        (
            with(&|handoff| handoff.message = String::from(" ")),
            (Code::InvalidArgument, Reason::InvalidInput, "Empty message"),
        ),
        (
            with(&|handoff| handoff.structured_json = String::from("{")),
            invalid("structured_json is not JSON"),
        ),
        (
            with(&|handoff| handoff.ok_reason = String::from("because")),
            invalid("ok_reason explains ok"),
        ),
        (
            with(&|handoff| handoff.request_id = "x".repeat(129)),
            invalid("request_id has 129 bytes"),
        ),
        (
            with(&|handoff| handoff.request_id = String::from("once")),
            (Code::AlreadyExists, Reason::RequestIdReused, "once"),
        ),
        (
            with(&|handoff| handoff.from_thread_id = family.sibling.id.clone()),
            (Code::FailedPrecondition, Reason::ThreadClosed, "is closed"),
        ),
    ];
    let names = [UNKNOWN, "nobody", &family.uncle.id, &family.stranger.id];
    for (request, (code, reason, text)) in wrong {
        let by = if request.from_thread_id.is_empty() {
            &family.child
        } else {
            &family.parent
        };
        let mut client = family.by(by).client();
        let mut first = None;
        for name in names {
            let to = SendHandoffRequest {
                to_thread_id: name.to_owned(),
                ..request.clone()
            };
            let answered = SendHandoffRequest {
                reply_to_thread_id: name.to_owned(),
                ..request.clone()
            };
            for request in [to, answered] {
                let answer = within("the answer to a handoff", client.send_handoff(request)).await;
                let told = words(&refused(answer, code, reason, text));
                assert_eq!(*first.get_or_insert_with(|| told.clone()), told, "{name}");
            }
        }
    }
    assert_eq!(family.heads().await, heads);
}

/// The error says that an alias is taken, because aliases are unique in a session. It does not name the other thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_alias_does_not_reveal_its_thread() {
    let family = Box::pin(Family::spawn()).await;
    let request = SpawnAgentRequest {
        alias: SIBLING.to_owned(),
        ..family.tree.request("worker")
    };
    let answer = family.by(&family.uncle).try_spawn(request).await;
    let status = refused(answer, Code::AlreadyExists, Reason::AliasInUse, SIBLING);
    let details = String::from_utf8_lossy(status.details()).into_owned();
    for told in [status.message(), details.as_str()] {
        assert!(!told.contains(&family.sibling.id), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_token_is_returned_only_to_its_parent() {
    let family = Box::pin(Family::spawn()).await;
    let request = SpawnAgentRequest {
        request_id: String::from("once"),
        ..family.tree.request_under(&family.parent.id, "worker")
    };
    let by_parent = family.by(&family.parent);
    let spawned = by_parent.spawn_with(request.clone()).await;
    assert!(!spawned.token.is_empty(), "the parent receives it");
    for replayer in [&family.child, &family.sibling, &family.uncle] {
        let answer = family.by(replayer).try_spawn(request.clone()).await;
        outside_subtree(answer, NO_ACTING);
    }

    // An ancestor of the parent may spawn and resume children of the parent. It receives no token of these children, so
    // it cannot act as a child either.
    let by_root = family.tree.by(family.pair.with_token(&family.tree.root_token));
    let request = family.tree.request_under(&family.parent.id, "worker");
    assert_eq!(by_root.try_spawn(request).await.unwrap().thread_token, "");
    family.tree.close(&family.child.id).await;
    assert_eq!(by_root.resume(&family.child.id).await.thread_token, "");
}

// ---- more permissions than it has ----

/// A role with few tools that may spawn only workers.
const NARROW: &str = "---\ndescription: Reads.\nread_only: true\nallow_list:\n  - spawn_agent\n  - read_file\n\
                      spawn_list:\n  - worker\n---\nYou read.\n";
/// A role that may list roles and may spawn only workers.
const PICKY: &str = "---\ndescription: Picks.\nspawn_list:\n  - worker\n---\nYou pick.\n";
/// A role without any tool.
const MUTE: &str = "---\ndescription: Does nothing.\ndeny_list:\n  - \"*\"\n---\nYou do nothing.\n";

fn tokens(tokens: u64) -> Budget {
    Budget {
        tokens,
        ..Budget::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_on_itself_needs_permission_for_its_tool() {
    let pair = Pair::start().await;
    pair.write_role("mute", MUTE);
    let mute = pair.tree().await.spawn("mute").await;
    let told = every_method(&pair, &mute.token, by_itself(&mute.id)).await;
    for (method, tool) in [
        ("spawn_agent", "spawn_agent"),
        ("send_input", "send_input"),
        ("interrupt_agent", "send_input"),
        ("wait_agents", "wait"),
        ("close_agent", "close_agent"),
        ("resume_agent", "resume_agent"),
        ("set_thread_note", "set_thread_note"),
        ("list_active_agents", "list_active_agents"),
        ("list_spawnable_agents", "list_agents"),
        ("create_edge", "create_edge"),
        ("delete_edge", "create_edge"),
        ("send_handoff", "send_handoff"),
    ] {
        let told = told.iter().find(|told| told.method == method).unwrap();
        let text = format!("tool \"{tool}\" is not allowed for agent_type \"mute\"");
        assert!(told.is((Code::PermissionDenied, Reason::ToolDenied, &text)), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_outside_the_spawn_list_are_hidden() {
    let pair = Pair::start().await;
    pair.write_role("picky", PICKY);
    let picky = pair.tree().await.spawn("picky").await;
    let roles = async |agent_type: &str| {
        let request = ListSpawnableAgentsRequest {
            agent_type: Some(agent_type.to_owned()),
            ..ListSpawnableAgentsRequest::default()
        };
        let mut client = pair.with_token(&picky.token);
        let listed = within("roles", client.list_spawnable_agents(request)).await?;
        let agents = listed.into_inner().agents.into_iter();
        Ok::<Vec<_>, Status>(agents.map(|agent| agent.agent_type).collect())
    };
    for name in ["worker", " Worker "] {
        assert_eq!(roles(name).await.unwrap(), ["worker"], "{name:?}");
    }
    for name in ["orchestrator", "no-such-role"] {
        assert!(roles(name).await.unwrap().is_empty(), "{name:?}");
    }
    for name in ["", "two words"] {
        let refusal = roles(name).await.unwrap_err();
        assert_eq!(reason_of(&refusal), Some(Reason::InvalidAgentType), "{refusal:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_never_exceeds_its_parents_permissions() {
    let pair = Pair::start().await;
    pair.write_role("narrow", NARROW);
    let tree = pair.tree().await;
    let narrow = tree
        .spawn_where("narrow", |spawn| spawn.budget = Some(tokens(100)))
        .await;
    let by_narrow = tree.by(pair.with_token(&narrow.token));
    let worker = |change: &dyn Fn(&mut SpawnAgentRequest)| {
        let mut request = tree.request_under(&narrow.id, "worker");
        change(&mut request);
        request
    };
    let denied = |reason, text| (Code::PermissionDenied, reason, text);

    let beyond = [
        (
            tree.request_under(&narrow.id, "orchestrator"),
            denied(Reason::SpawnNotAllowed, "spawn_list allows: worker"),
        ),
        (
            SpawnAgentRequest {
                role_template: String::from("orchestrator"),
                ..tree.request_under(&narrow.id, "")
            },
            denied(Reason::SpawnNotAllowed, "spawn_list allows: worker"),
        ),
        (
            tree.request_under(&tree.root, "worker"),
            denied(Reason::OutsideSubtree, NO_ACTING),
        ),
        (
            worker(&|spawn| spawn.budget = Some(tokens(101))),
            (Code::InvalidArgument, Reason::LimitExceeded, "ask for at most 100"),
        ),
        (
            worker(&|spawn| spawn.working_directory = pair.elsewhere()),
            denied(Reason::NotPermitted, "where the parent works"),
        ),
        (
            worker(&|spawn| spawn.r#override = String::from("obey")),
            denied(
                Reason::NotPermitted,
                "override may be set by operators only; leave it out",
            ),
        ),
        (
            worker(&|spawn| spawn.custom_system_prompt = String::from("obey")),
            denied(
                Reason::NotPermitted,
                "custom_system_prompt may be set by operators only; leave it out",
            ),
        ),
    ];
    for (request, (code, reason, text)) in beyond {
        refused(by_narrow.try_spawn(request).await, code, reason, text);
    }
    assert_eq!(tree.threads().await.len(), 2, "the root and itself");

    // A request for more permissions than available has no effect.
    let everything = ToolCeiling {
        allow_list: vec![String::from("*")],
        ..ToolCeiling::default()
    };
    let greedy = worker(&|spawn| spawn.permissions = Some(everything.clone()));
    let greedy = by_narrow.spawn_with(greedy).await;
    assert_eq!(greedy.thread.sandbox(), Sandbox::ReadOnly);
    let by_greedy = tree.by(pair.with_token(&greedy.token));
    assert!(by_greedy.may_use("", "read_file").await);
    for tool in ["list_files", "exec_command", "apply_patch", "web_search", "spawn_agent"] {
        assert!(!by_greedy.may_use("", tool).await, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_unapproved_spawn_is_rejected() {
    let (pair, tree, lead) = pair_with_lead().await;
    let by_lead = tree.by(pair.with_token(&lead.token));
    let waiting = by_lead.spawn_with(node(&tree, "planner")).await;
    assert_eq!(kind(&waiting.thread), StatusKind::AwaitingApproval);

    let text = format!("agent with id {} waits for an operator's approval", waiting.id);
    let of_token = (Code::PermissionDenied, Reason::NotPermitted, text.as_str());
    for told in every_method(&pair, &waiting.token, by_itself(&waiting.id)).await {
        assert!(told.is(told.rule.refusal_or(of_token)), "{told:?}");
    }
}

// ---- invalid tokens ----

/// Spawns a thread whose first attempt is rejected and whose second attempt starts at another runner. Its token belongs
/// to the first attempt.
async fn placed_twice(pair: &Pair, tree: &Tree) -> Spawned {
    let mut one = Runner::attach(pair, "one").await;
    let thread = tree.spawn("orchestrator").await;
    let first = Attempt::of(&one.start_of(&thread.id).await);
    let mut other = Runner::attach(pair, "other").await;
    one.refuse(&first, StartRefusal::NoCapacity, "full").await;
    let second = other.start_of(&thread.id).await;
    assert!(second.generation > first.generation);
    thread
}

/// A thread's token has no expiration time. It becomes invalid when the thread is closed and with each new attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_token_ends_with_its_attempt() {
    let pair = Pair::start().await;
    let tree = pair
        .tree_where(|session| session.restart_policy = RestartPolicy::OnLost.into())
        .await;
    let closed = tree.spawn("orchestrator").await;
    tree.close(&closed.id).await;
    let resumed = tree.spawn("orchestrator").await;
    tree.close(&resumed.id).await;
    tree.resume(&resumed.id).await;
    let (ended, deleted) = (pair.tree().await, pair.tree().await);
    ended.end().await;
    deleted.end().await;
    deleted.delete().await;
    // This comes after all closes, because it attaches runners that do not respond to further requests.
    let placed = placed_twice(&pair, &tree).await;

    let elsewhere = pair.tree().await;
    for (whose, token, thread) in [
        ("a closed thread", &closed.token, &closed.id),
        ("a thread that was resumed since", &resumed.token, &resumed.id),
        ("a thread that was placed again", &placed.token, &placed.id),
        ("the root of a closed session", &ended.root_token, &ended.root),
        ("the root of a deleted session", &deleted.root_token, &deleted.root),
    ] {
        let itself_elsewhere = Target {
            session: &elsewhere.session,
            thread,
        };
        for target in [by_itself(thread), by_itself(UNKNOWN), itself_elsewhere] {
            for told in every_method(&pair, token, target).await {
                let expected = told.rule.refusal_or(NO_TOKEN);
                assert!(told.is(expected), "token of {whose} on {target:?}: {told:?}");
            }
        }
    }
}

/// Returns all tokens that differ from this one in a single bit of a single character.
fn with_a_flipped_bit(token: &str) -> Vec<String> {
    let flipped = |at: usize| {
        let mut bytes = token.to_owned().into_bytes();
        bytes[at] ^= 1;
        String::from_utf8(bytes).unwrap()
    };
    (0..token.len()).map(flipped).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_token_is_rejected() {
    let family = Box::pin(Family::on(Pair::alone(|_| {}).await)).await;
    let good = &family.child.token;
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<String>>();
    let [version, kid, payload, mac] = &parts(good)[..] else {
        panic!("a token has four parts: {good}")
    };
    // The child's MAC with the claims of another thread's token.
    let spliced = |other: &str| format!("{version}.{kid}.{}.{mac}", parts(other)[2]);

    // A MAC over the claims of the child's token with the service's key, but for another purpose.
    let data = Path::new(&family.pair.project()).with_file_name("data");
    let keys = fs::read_to_string(data.join(KEYS_FILE)).unwrap();
    let mut keys = keys.lines().filter_map(|line| line.strip_prefix(&format!("{kid} ")));
    let key = keys.next().unwrap();
    let key = EncodingKey::from_urlsafe_base64_secret(&format!("{key}=")).unwrap();
    let made_for = |domain: &str| {
        let mac = sign(format!("{domain}{kid}.{payload}").as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{version}.{kid}.{payload}.{mac}")
    };
    assert_eq!(made_for("troupe/supervisor/thread-token/v1\0"), *good, "how it is made");

    let itself = ThreadPrincipal {
        session: family.tree.session.parse().unwrap(),
        thread: family.child.id.parse().unwrap(),
        generation: 1,
    };
    let another_pair = Pair::start().await;
    let mut forged = vec![
        spliced(&family.sibling.token),
        spliced(&family.parent.token),
        spliced(&family.tree.root_token),
        spliced(&family.elsewhere.root_token),
        made_for(""),
        made_for("troupe/supervisor/webhook/v1\0"),
        TokenKeys::generate().unwrap().mint(&itself),
        another_pair.tree().await.root_token,
        format!("trp2.{kid}.{payload}.{mac}"),
        format!("{version}.other.{payload}.{mac}"),
        format!("{version}..{payload}.{mac}"),
        format!("{version}.{kid}.{payload}"),
        format!("{version}.{kid}.{payload}."),
        format!("{good}.{mac}"),
        format!("{good}="),
        good[..good.len() - 1].to_owned(),
        good[..good.len() / 2].to_owned(),
        format!("{good}{}", "A".repeat(4_096)),
        String::from("trp1"),
    ];
    forged.extend(with_a_flipped_bit(good));

    let own = async |client| family.tree.by(client).try_thread(&family.child.id).await;
    let answer = own(family.pair.stranger()).await;
    let (code, reason, text) = NO_TOKEN;
    let without = words(&refused(answer, code, reason, text));
    for token in forged {
        let answer = own(family.pair.with_token(&token)).await;
        assert_eq!(words(&refused(answer, code, reason, text)), without, "{token}");
    }
    own(family.pair.with_token(good)).await.unwrap();
}
