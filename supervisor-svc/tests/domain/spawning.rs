//! SpawnAgent: the checks in the order of CONTRACT.md §3.1 with their texts, and the properties of the child.

use supervisor_core::{
    command::{Command, Spawn},
    decide::spawn::{Wanted, WantedRole, admit},
    event::Spawned,
    ids::{Generation, ThreadId},
    principal::Caller,
    rules::limits,
    settings::{Limits, OnLimit, Sandbox},
    status::StatusKind,
};

use crate::world::{
    NO_SLOT_OF_ONE, OUTSIDE, PAUSED, STALE_TOKEN, TOO_DEEP, World, close, deny, is_closed, is_closing, no_tool,
    not_found, operator, role_of, run_root, settings, spawning, thread_id,
};

/// The possible faults of a spawn, in the order in which they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    StaleToken,
    OutsideSubtree,
    NoTool,
    Closing,
    Paused,
    TooDeep,
    NotInSpawnList,
    AliasTaken,
    TooManyEver,
    TooManyOpen,
    NoSlot,
    BadPattern,
}

const FAULTS: [Fault; 12] = [
    Fault::StaleToken,
    Fault::OutsideSubtree,
    Fault::NoTool,
    Fault::Closing,
    Fault::Paused,
    Fault::TooDeep,
    Fault::NotInSpawnList,
    Fault::AliasTaken,
    Fault::TooManyEver,
    Fault::TooManyOpen,
    Fault::NoSlot,
    Fault::BadPattern,
];

/// Number of faults that are detected before the call to the registry.
const BEFORE_THE_REGISTRY: usize = 8;

/// Returns a session, a thread, and a spawn by that thread that has these faults.
fn faulty(faults: &[Fault]) -> (World, ThreadId, Spawn) {
    let has = |fault| faults.contains(&fault);
    let bound = |fault, tight, wide| if has(fault) { tight } else { wide };
    let limits = Limits {
        max_depth: bound(Fault::TooDeep, 1, 2),
        max_threads: bound(Fault::NoSlot, 1, 12),
        max_open_threads: bound(Fault::TooManyOpen, 2, 100),
        max_total_threads: bound(Fault::TooManyEver, 2, 100),
    };
    let (mut world, root) = World::with_settings(|settings| settings.limits = limits);
    let lead = world.spawn_with(root, |lead| {
        lead.spawned.alias = String::from("Fox");
        if has(Fault::NotInSpawnList) {
            role_of(lead).spawn_list = vec![String::from("scout"), String::from("critic")];
        }
        if has(Fault::NoTool) {
            lead.role_layers = [deny("role \"worker\"", &["spawn_*"])].into();
        }
    });
    if has(Fault::Closing) {
        world.run(&close(operator(), lead));
    }
    if has(Fault::Paused) {
        world.pause(true);
    }

    let mut spawn = world.wanted(if has(Fault::OutsideSubtree) { root } else { lead });
    spawn.caller = Caller::Thread {
        id: lead,
        generation: Generation::new(bound(Fault::StaleToken, 2, 1)),
    };
    role_of(&mut spawn).agent_type = String::from("helper");
    if has(Fault::AliasTaken) {
        spawn.spawned.alias = String::from("fOX");
    }
    if has(Fault::BadPattern) {
        spawn.role_layers = [deny("role \"helper\"", &[""])].into();
    }
    (world, lead, spawn)
}

fn text_of(fault: Fault, lead: ThreadId) -> String {
    match fault {
        Fault::StaleToken => String::from(STALE_TOKEN),
        Fault::OutsideSubtree => String::from(OUTSIDE),
        Fault::NoTool => no_tool("spawn_agent"),
        Fault::Closing => is_closing(lead),
        Fault::Paused => String::from(PAUSED),
        Fault::TooDeep => String::from(TOO_DEEP),
        Fault::NotInSpawnList => {
            String::from("agent_type \"worker\" may not spawn \"helper\"; its spawn_list allows: scout, critic")
        }
        Fault::AliasTaken => format!("alias \"fOX\" is already in use by agent {lead}; choose another"),
        Fault::TooManyEver => String::from("total agent thread limit reached (max 2); open a new session"),
        Fault::TooManyOpen => String::from("open agent thread limit reached (max 2); close agents that are done"),
        Fault::NoSlot => String::from(NO_SLOT_OF_ONE),
        Fault::BadPattern => String::from(
            "tool policy: deny_list of role \"helper\": a tool pattern is empty (\"\"); remove it or name a tool",
        ),
    }
}

#[test]
fn first_failing_check_decides_the_error() {
    for (position, fault) in FAULTS.into_iter().enumerate() {
        // The spawn has this fault and all that are reported after it.
        let (mut world, lead, spawn) = faulty(&FAULTS[position..]);
        let expected = text_of(fault, lead);
        let wanted = Wanted {
            caller: &spawn.caller,
            parent: spawn.spawned.parent.unwrap(),
            role: WantedRole::AgentType(&spawn.spawned.role.agent_type),
            alias: &spawn.spawned.alias,
        };
        let admitted = admit(&world.session, &wanted).map(|parent| parent.id);
        if position < BEFORE_THE_REGISTRY {
            assert_eq!(admitted.unwrap_err().to_string(), expected);
        } else {
            assert_eq!(
                admitted,
                Ok(lead),
                "{fault:?} is detected after the call to the registry"
            );
        }
        assert_eq!(world.rejection(&spawning(spawn)), expected);
    }
    let (mut world, lead, spawn) = faulty(&[]);
    let child = spawn.id;
    assert_eq!(world.run(&spawning(spawn)), ["ThreadSpawned"]);
    assert_eq!(world.thread(child).spawned.parent, Some(lead));
}

#[test]
fn each_check_has_its_own_error() {
    for fault in FAULTS {
        let (mut world, lead, spawn) = faulty(&[fault]);
        assert_eq!(world.rejection(&spawning(spawn)), text_of(fault, lead));
    }
}

#[test]
fn operator_error_names_unknown_parent() {
    let (mut world, closed) = World::with_thread_in(StatusKind::Shutdown);
    let missing = thread_id(999);
    for (parent, rejection) in [(closed, is_closed(closed)), (missing, not_found(missing))] {
        let spawn = spawning(world.wanted(parent));
        assert_eq!(world.rejection(&spawn), rejection);
    }
}

#[test]
fn spawn_at_depth_limit_is_rejected_and_not_offered() {
    let (mut world, root) = World::with_slots(2);
    let lead = world.spawn(root);
    let helper = world.spawn(lead);
    assert!(!limits::may_spawn(&world.session, world.thread(helper)));
    assert!(limits::may_spawn(&world.session, world.thread(lead)));
    for (parent, rejection) in [(helper, TOO_DEEP), (lead, "agent thread limit reached (max 2)")] {
        let spawn = spawning(world.wanted_by(parent));
        assert_eq!(world.rejection(&spawn), rejection);
    }
}

#[test]
fn spawn_is_rejected_at_max_depth_zero() {
    let (mut world, root) = World::with_settings(|settings| settings.limits.max_depth = 0);
    let spawn = world.wanted(root);
    assert_eq!(world.rejection(&spawning(spawn)), TOO_DEEP);
}

/// Returns a session with a thread that may spawn only these roles.
fn gated(spawn_list: &[&str]) -> (World, ThreadId) {
    let (mut world, root) = World::with_settings(|settings| settings.limits.max_depth = 3);
    let lead = world.spawn_with(root, |lead| {
        role_of(lead).agent_type = String::from("lead");
        role_of(lead).spawn_list = spawn_list.iter().map(|name| (*name).to_owned()).collect();
    });
    (world, lead)
}

fn by(caller: Caller, agent_type: &str, mut spawn: Spawn) -> Command {
    spawn.caller = caller;
    role_of(&mut spawn).agent_type = agent_type.to_owned();
    spawning(spawn)
}

#[test]
fn spawn_list_restricts_threads_but_not_operators() {
    let (mut world, lead) = gated(&["code-scout"]);
    let caller = world.caller(lead);
    for (caller, agent_type, rejection) in [
        (operator(), "critic", None),
        (caller.clone(), "code-scout", None),
        (caller.clone(), "code_scout", None),
        (
            caller,
            "critic",
            Some("agent_type \"lead\" may not spawn \"critic\"; its spawn_list allows: code-scout"),
        ),
    ] {
        let command = by(caller, agent_type, world.wanted(lead));
        match rejection {
            None => assert_eq!(world.run(&command), ["ThreadSpawned"]),
            Some(rejection) => assert_eq!(world.rejection(&command), rejection),
        }
    }
}

#[test]
fn spawn_list_also_binds_children() {
    let (mut world, lead) = gated(&["scout"]);
    let caller = world.caller(lead);
    let scout = by(caller.clone(), "scout", world.wanted(lead));
    world.run(&scout);
    let scout = world.nth(2).id;
    let command = by(caller, "critic", world.wanted(scout));
    assert_eq!(
        world.rejection(&command),
        "agent_type \"lead\" may not spawn \"critic\"; its spawn_list allows: scout"
    );
}

#[test]
fn commit_decides_depth_status_and_permissions() {
    let (mut world, root) = World::with_slots(2);
    let lead = world.spawn_with(root, |lead| {
        lead.spawned.sandbox = Sandbox::WorkspaceWrite;
        lead.role_layers = [deny("role \"lead\"", &["web_search"])].into();
    });

    let mut helper = world.wanted(lead);
    // Values from the caller other than the role are ignored.
    helper.spawned = Spawned {
        depth: 9,
        first_status: StatusKind::Running,
        sandbox: Sandbox::FullAccess,
        ..helper.spawned
    };
    helper.role_layers = [deny("role \"helper\"", &["apply_patch"])].into();
    let helper = world.spawn_as(helper);
    let thread = world.thread(helper);
    assert_eq!(
        (thread.spawned.depth, thread.status.kind()),
        (2, StatusKind::PendingInit)
    );
    assert_eq!(thread.sandbox, Sandbox::WorkspaceWrite);
    for (tool, allowed) in [("wait", true), ("web_search", false), ("apply_patch", false)] {
        assert_eq!(thread.effective.allows(tool), allowed, "{tool}");
        assert_eq!(thread.grant.allows(tool), allowed, "{tool}");
    }
    assert_eq!(world.waiting_inputs(helper), [1]);
    assert_eq!(thread.generation, Generation::new(1));
}

#[test]
fn spawn_without_free_slot_is_rejected_or_queued() {
    let (mut world, root) = World::with_slots(1);
    world.spawn(root);
    let mut spawn = world.wanted(root);
    assert_eq!(world.rejection(&spawning(spawn.clone())), NO_SLOT_OF_ONE);
    spawn.on_limit = OnLimit::Queue;
    let queued = world.spawn_as(spawn);
    assert_eq!(world.status(queued), StatusKind::Queued);
    assert_eq!(world.session.queue_position(queued), Some(1));
    assert_eq!(limits::active(&world.session), 1);
}

#[test]
fn root_holds_no_slot() {
    let mut settings = settings();
    settings.limits.max_threads = 1;
    let mut world = World::open(settings, run_root());
    let root = world.root();
    world.begin(root);
    assert_eq!(limits::active(&world.session), 0);
    let child = world.spawn(root);
    assert_eq!(world.status(child), StatusKind::PendingInit);
}

#[test]
fn registry_rejection_is_one_event_without_thread() {
    let (mut world, root) = World::with_slots(1);
    let command = Command::FailSpawn {
        parent: root,
        agent_type: String::from("worke"),
        agent_name: String::new(),
        reason: String::from("AGENT_TYPE_NOT_FOUND"),
        message: String::from("unknown agent_type \"worke\""),
    };
    assert_eq!(world.run(&command), ["SpawnFailed"]);
    assert_eq!(world.session.total(), 1);
}

#[test]
fn closed_threads_count_toward_total_limit_only() {
    let (mut world, root) = World::with_settings(|settings| {
        settings.limits.max_open_threads = 2;
        settings.limits.max_total_threads = 3;
    });
    for _ in 0..2 {
        let child = world.spawn(root);
        world.close(child);
    }
    let spawn = world.wanted(root);
    assert_eq!(
        world.rejection(&spawning(spawn)),
        "total agent thread limit reached (max 3); open a new session"
    );
}
