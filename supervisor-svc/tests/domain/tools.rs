//! Tool calls: the decisions of policy, sandbox, mode and operators, and the recorded events.

use supervisor_core::{
    command::Command,
    content::ContentRef,
    event::{CallDetails, ConditionKind, Event, ThreadEvent},
    ids::{ApprovalId, Digest, ThreadId},
    rules::authorize::{ToolCall, ToolVerdict, decide},
    settings::{Mode, Sandbox, Settings},
    status::StatusKind,
};
use tool_policy::NativeTools;

use crate::world::{NOTHING, World, client_root, close, deny, operator, settings};

/// Returns a world with one running thread that works in `/project`.
fn world(mode: Mode, sandbox: Sandbox, approve_tools: &[&str]) -> (World, ThreadId) {
    let settings = Settings {
        mode,
        approve_tools: approve_tools.iter().map(|&pattern| pattern.to_owned()).collect(),
        ..settings()
    };
    world_of(settings, sandbox, "")
}

/// Like [`world`], with these settings and a separate working directory of the thread.
fn world_of(settings: Settings, sandbox: Sandbox, working_directory: &str) -> (World, ThreadId) {
    let mut root = client_root();
    root.sandbox = Sandbox::FullAccess;
    let mut world = World::open(settings, root);
    let id = world.spawn_with(world.root(), |spawn| {
        spawn.spawned.sandbox = sandbox;
        spawn.spawned.working_directory = working_directory.into();
        spawn.role_layers = [deny("role", &["list_files"])].into();
    });
    world.begin(id);
    (world, id)
}

fn approval() -> ApprovalId {
    "018f3c5a-0000-8000-8000-000000000001".parse().unwrap()
}

fn request_approval(thread: ThreadId) -> Command {
    let digest = Digest::of(b"make");
    let content = ContentRef {
        digest,
        size: 4,
        preview: String::new(),
    };
    Command::RequestToolApproval {
        thread,
        approval: approval(),
        subject: String::from("Tool call: exec_command make"),
        call: CallDetails { digest, content },
    }
}

fn call<'a>(tool: &'a str, paths: &'a [String], confined: bool) -> ToolCall<'a> {
    ToolCall {
        tool,
        native: NativeTools::UNKNOWN,
        paths,
        confined,
        docs_only: false,
        approval: approval(),
    }
}

/// Decides a call of a tool by its name in Claude Code.
fn decide_for_claude(world: &World, id: ThreadId, tool: &str) -> ToolVerdict {
    let call = ToolCall {
        native: NativeTools::CLAUDE,
        ..call(tool, &[], false)
    };
    decide(&world.session, world.thread(id), &call)
}

#[test]
fn sandbox_and_mode_limit_writes_of_calls() {
    use Mode::{Implementation, Planning};
    use Sandbox::{FullAccess, ReadOnly, WorkspaceWrite};
    let (docs, source, outside) = ("/project/docs/a.md", "/project/src/a.rs", "/etc/passwd");
    for (mode, sandbox, tool, paths, confined, allowed) in [
        (Implementation, WorkspaceWrite, "apply_patch", &[][..], false, false),
        (Implementation, WorkspaceWrite, "apply_patch", &[source], false, true),
        (Implementation, WorkspaceWrite, "apply_patch", &[], true, true),
        (Implementation, WorkspaceWrite, "apply_patch", &[outside], true, false),
        (Implementation, FullAccess, "apply_patch", &[], false, true),
        (Implementation, WorkspaceWrite, "apply_patch", &[outside], false, false),
        (
            Implementation,
            WorkspaceWrite,
            "apply_patch",
            &[source, outside],
            false,
            false,
        ),
        (Implementation, FullAccess, "apply_patch", &[outside], false, true),
        (Implementation, WorkspaceWrite, "exec_command", &[], false, true),
        (Implementation, WorkspaceWrite, "web_search", &[], false, true),
        (Implementation, WorkspaceWrite, "mcp__a__b", &[], false, true),
        (Implementation, ReadOnly, "read_file", &[], false, true),
        (Implementation, ReadOnly, "wait", &[], false, true),
        (Implementation, ReadOnly, "apply_patch", &[source], false, false),
        (Implementation, ReadOnly, "apply_patch", &[source], true, true),
        (Implementation, ReadOnly, "exec_command", &[], false, false),
        (Implementation, ReadOnly, "exec_command", &[], true, true),
        (Implementation, ReadOnly, "web_search", &[], true, false),
        (Implementation, ReadOnly, "mcp__a__b", &[], false, false),
        (Planning, WorkspaceWrite, "read_file", &[], false, true),
        (Planning, WorkspaceWrite, "apply_patch", &[docs], false, true),
        (Planning, WorkspaceWrite, "apply_patch", &[docs, source], false, false),
        (Planning, WorkspaceWrite, "apply_patch", &[], false, false),
        (Planning, WorkspaceWrite, "apply_patch", &[], true, false),
        (Planning, FullAccess, "apply_patch", &[source], false, false),
        (Planning, WorkspaceWrite, "exec_command", &[], false, false),
        (Planning, WorkspaceWrite, "exec_command", &[], true, false),
        (Planning, ReadOnly, "exec_command", &[], true, true),
        (Planning, WorkspaceWrite, "mcp__a__b", &[], false, false),
        (Planning, WorkspaceWrite, "web_search", &[], false, true),
        // The policy takes precedence over all other conditions.
        (Implementation, FullAccess, "list_files", &[], true, false),
    ] {
        let (world, id) = world(mode, sandbox, &[]);
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        let verdict = decide(&world.session, world.thread(id), &call(tool, &paths, confined));
        assert_eq!(
            verdict == ToolVerdict::Allowed,
            allowed,
            "{tool} {paths:?} in {mode:?} under {sandbox:?}, confined {confined}: {verdict:?}"
        );
    }
}

#[test]
fn program_confined_to_docs_may_run_commands_in_planning() {
    let docs_only = |tool, paths| ToolCall {
        docs_only: true,
        ..call(tool, paths, true)
    };
    let inside = [String::from("/project/docs/a.md")];
    let outside = [String::from("/project/src/a.rs")];
    for sandbox in [Sandbox::WorkspaceWrite, Sandbox::FullAccess] {
        let (world, id) = world(Mode::Planning, sandbox, &[]);
        for (tool, paths, allowed) in [
            ("exec_command", &[][..], true),
            ("mcp__a__b", &[], true),
            ("apply_patch", &[], true),
            ("apply_patch", &inside, true),
            ("apply_patch", &outside, false),
        ] {
            let verdict = decide(&world.session, world.thread(id), &docs_only(tool, paths));
            assert_eq!(
                verdict == ToolVerdict::Allowed,
                allowed,
                "{tool} {paths:?} under {sandbox:?}: {verdict:?}"
            );
        }
    }
}

#[test]
fn docs_directory_is_the_one_of_the_repository() {
    for (cwd, directory, path, allowed) in [
        ("/project", "/project/sub", "/project/docs/a.md", true),
        ("/project", "/project/sub", "/project/sub/docs/a.md", false),
        ("/project", "/elsewhere", "/elsewhere/docs/a.md", false),
        ("", "", "/docs/a.md", false),
        ("", "/elsewhere", "/elsewhere/docs/a.md", false),
    ] {
        let settings = Settings {
            mode: Mode::Planning,
            cwd: cwd.to_owned(),
            ..settings()
        };
        let (world, id) = world_of(settings, Sandbox::FullAccess, directory);
        let paths = [path.to_owned()];
        let verdict = decide(&world.session, world.thread(id), &call("apply_patch", &paths, false));
        let judged = verdict == ToolVerdict::Allowed;
        assert_eq!(judged, allowed, "{path} from {directory:?} in {cwd:?}: {verdict:?}");
    }
}

#[test]
fn native_tool_name_is_decided_as_canonical_tool() {
    let (world, id) = world(Mode::Planning, Sandbox::WorkspaceWrite, &[]);
    let decided = |tool| decide_for_claude(&world, id, tool);
    assert_eq!(decided("Read"), ToolVerdict::Allowed);
    assert_eq!(
        decided("Edit"),
        ToolVerdict::Denied(String::from("write restricted to docs/ in PLANNING mode"))
    );
    assert!(matches!(decided("Bash"), ToolVerdict::Denied(_)));
}

/// A pattern may name a tool by the program's own name or by its canonical name, as in a role.
#[test]
fn either_tool_name_requires_approval() {
    for pattern in ["Bash", "exec_command", "Ba*", "exec_*"] {
        let (world, id) = world(Mode::Implementation, Sandbox::WorkspaceWrite, &[pattern]);
        let decided = |tool| decide_for_claude(&world, id, tool);
        assert_eq!(decided("Bash"), ToolVerdict::NeedsApproval, "{pattern}");
        assert_eq!(decided("Read"), ToolVerdict::Allowed, "{pattern}");
    }
}

/// The thread's role has a list, so an unknown tool name might stand for a tool that the list denies.
#[test]
fn unknown_tool_must_be_allowed_by_name() {
    let (world, id) = world(Mode::Implementation, Sandbox::FullAccess, &[]);
    for (tool, allowed) in [("read_file", true), ("mcp__files__read", true), ("shell", false)] {
        let verdict = decide(&world.session, world.thread(id), &call(tool, &[], false));
        assert_eq!(verdict == ToolVerdict::Allowed, allowed, "{tool}: {verdict:?}");
    }
}

#[test]
fn changed_mode_applies_to_next_call() {
    let (mut world, id) = world(Mode::Implementation, Sandbox::WorkspaceWrite, &[]);
    let paths = [String::from("/project/src/a.rs")];
    let verdict = |world: &World| decide(&world.session, world.thread(id), &call("apply_patch", &paths, false));
    assert_eq!(verdict(&world), ToolVerdict::Allowed);
    world.update(|change| change.mode = Some(Mode::Planning));
    assert!(matches!(verdict(&world), ToolVerdict::Denied(_)));
}

#[test]
fn call_requests_approval_once_and_waits() {
    let (mut world, id) = world(Mode::Implementation, Sandbox::WorkspaceWrite, &["exec_*"]);
    let verdict = |world: &World, tool| decide(&world.session, world.thread(id), &call(tool, &[], false));
    assert_eq!(verdict(&world, "read_file"), ToolVerdict::Allowed);
    assert_eq!(verdict(&world, "exec_command"), ToolVerdict::NeedsApproval);

    let ask = request_approval(id);
    assert_eq!(world.run(&ask), ["ApprovalRequested", "ConditionChanged"]);
    assert!(world.has_condition(id, ConditionKind::AwaitingToolApproval));
    assert_eq!(verdict(&world, "exec_command"), ToolVerdict::Waiting);
    assert_eq!(world.run(&ask), NOTHING, "one call asks once");
    assert_eq!(world.status(id), StatusKind::Running, "it keeps its slot");
}

#[test]
fn denial_contains_the_given_reason() {
    for (reason, text) in [
        ("", "an operator denied the call"),
        ("too late", "an operator denied the call: too late"),
    ] {
        let (mut world, id) = world(Mode::Implementation, Sandbox::WorkspaceWrite, &["exec_*"]);
        world.run(&request_approval(id));
        world.run(&Command::ResolveApproval {
            approval: approval(),
            grant: false,
            by: operator().actor(),
            reason: reason.to_owned(),
        });
        let verdict = decide(&world.session, world.thread(id), &call("exec_command", &[], false));
        assert_eq!(verdict, ToolVerdict::Denied(text.to_owned()));
    }
}

#[test]
fn refusals_are_recorded_while_the_thread_is_open() {
    let (mut world, id) = world(Mode::Implementation, Sandbox::ReadOnly, &[]);
    let denied = Command::DenyTool {
        thread: id,
        tool: String::from("apply_patch"),
        reason: String::from("the thread is READ_ONLY; it may not write"),
        count: 3,
    };
    assert_eq!(world.run(&denied), ["ToolDenied"]);
    assert!(matches!(
        world.log.last().map(|recorded| &recorded.event),
        Some(Event::Thread(_, ThreadEvent::ToolDenied { count: 3, .. }))
    ));
    world.run(&close(operator(), id));
    assert_eq!(world.run(&denied), NOTHING, "a fenced thread records only its end");
}
