//! The event codec: encoded events decode to equal values, and invalid bytes are rejected without guesses or panics.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
    mem::discriminant,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::{Index, select},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use prost::Message as _;
use supervisor_core::{
    content::ContentRef,
    event::{
        ApprovalDecision, ApprovalKind, Artifact, BlockKind, BlockRef, CallDetails, CloseCause, ConditionKind, Dialect,
        Edge, EdgeKind, Event, EventMetadata, Expectation, Fence, Handoff, OutputDigests, PromptExtent, Recorded,
        Resumed, Role, Scope, SessionEvent, SettingsChange, Spawned, TemplateSource, ThreadEvent, ValueOrigin,
    },
    group::{GroupLimits, GroupOutcome, GroupSpec, ItemOutcome, ItemRef, Join, OnFailure},
    ids::{
        ApprovalId, ArtifactId, Digest, EdgeId, Generation, GroupId, HandoffId, InputNumber, ReportSequence, RunnerId,
        Sequence, SessionId, ThreadId, Turn,
    },
    principal::Actor,
    settings::{
        ApprovalTimeoutAction, Budget, ClosePolicy, Currency, EdgeManagement, Limits, Mode, NotificationKind,
        Orchestration, PromptLog, RestartPolicy, Sandbox, Settings, SlotRelease, StallRule, TranscriptLog, Usage,
        WakePolicy, Webhook,
    },
    status::{Settled, StatusKind},
    time::UnixMillis,
};
use supervisor_log::{
    codec::{
        DecodeError, EncodeError, WireEnum, decode_record, encode_record, event_to_pb,
        parts::{budget_from_request, duration_from_pb, duration_to_pb, time_from_pb, time_to_pb},
        settings::settings_to_pb,
    },
    store::limits::MAX_RECORD_BYTES,
};
use tool_policy::{Inheritance, Layer, MatchMode, Policy};
use troupe_proto::{FILE_DESCRIPTOR_SET, common::v1 as common, store::v1 as store, supervisor::v1 as pb};
use uuid::Uuid;

use crate::samples::{self, at, opened, root, session, thread};

// ---- what a log may hold: every kind with every distinction that the domain makes ----

/// Returns any value of an enumeration that the API has too.
fn any_of<E: WireEnum + Debug + 'static>() -> impl Strategy<Value = E> {
    let values = (1..100).filter_map(|number| E::from_number(number).ok());
    select(values.collect::<Vec<_>>())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), any::<String>(), "[a-z:\\n\\x00é]{1,12}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..4)
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn thread_id() -> impl Strategy<Value = ThreadId> {
    uuid().prop_map(ThreadId::from_uuid)
}

fn session_id() -> impl Strategy<Value = SessionId> {
    uuid().prop_map(SessionId::from_uuid)
}

fn digests() -> impl Strategy<Value = Box<OutputDigests>> {
    (option::of(digest()), option::of(digest())).prop_map(|(output, diff)| Box::new(OutputDigests { output, diff }))
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

fn time() -> impl Strategy<Value = UnixMillis> {
    prop_oneof![Just(0), any::<u64>()].prop_map(UnixMillis::new)
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0..=i64::MAX.unsigned_abs(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    any::<u32>().prop_map(Turn::new)
}

fn generation() -> impl Strategy<Value = Generation> {
    any::<u32>().prop_map(Generation::new)
}

fn input_number() -> impl Strategy<Value = InputNumber> {
    any::<u32>().prop_map(InputNumber::new)
}

fn report() -> impl Strategy<Value = ReportSequence> {
    any::<u64>().prop_map(ReportSequence::new)
}

fn sequence() -> impl Strategy<Value = Sequence> {
    prop_oneof![Just(0), any::<u64>()].prop_map(Sequence::new)
}

fn actor() -> impl Strategy<Value = Actor> {
    prop_oneof![
        text().prop_map(Actor::Operator),
        thread_id().prop_map(Actor::Thread),
        text().prop_map(|name| Actor::Runner(RunnerId::new(name))),
        Just(Actor::Service),
    ]
}

fn content() -> impl Strategy<Value = ContentRef> {
    (digest(), any::<u64>(), text()).prop_map(|(digest, size, preview)| ContentRef { digest, size, preview })
}

fn limits() -> impl Strategy<Value = Limits> {
    any::<[u32; 4]>().prop_map(|[max_depth, max_threads, max_open_threads, max_total_threads]| Limits {
        max_depth,
        max_threads,
        max_open_threads,
        max_total_threads,
    })
}

fn budget() -> impl Strategy<Value = Budget> {
    (
        option::of(prop_oneof![Just(0), any::<u64>()]),
        option::of(prop_oneof![Just(0), any::<u32>()]),
        option::of(span()),
        option::of(prop_oneof![Just(0), any::<u64>()]),
    )
        .prop_map(|(tokens, turns, wall_time, cost)| Budget {
            tokens,
            turns,
            wall_time,
            cost,
        })
}

fn usage() -> impl Strategy<Value = Usage> {
    (any::<[u64; 5]>(), any::<u32>(), span()).prop_map(
        |([input_tokens, cached_input_tokens, output_tokens, cost, unpriced_tokens], turns, wall_time)| Usage {
            cost,
            unpriced_tokens,
            input_tokens,
            cached_input_tokens,
            output_tokens,
            turns,
            wall_time,
        },
    )
}

/// A layer as it stands in the settings: not compiled, so anything may be in it.
fn raw_layer() -> impl Strategy<Value = Layer> {
    (text(), any_of::<MatchMode>(), texts(), texts()).prop_map(|(origin, mode, allow, deny)| Layer {
        origin,
        mode,
        allow,
        deny,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let patterns = || vec("[a-z_]{1,8}[*?]?", 0..3);
    let layer = (text(), any_of::<MatchMode>(), patterns(), patterns()).prop_map(|(origin, mode, allow, deny)| Layer {
        origin,
        mode,
        allow,
        deny,
    });
    vec(layer, 0..3).prop_map(|layers| Policy::compile(layers).unwrap())
}

fn webhook() -> impl Strategy<Value = Webhook> {
    (text(), vec(any_of::<NotificationKind>(), 0..4), text()).prop_map(|(url, kinds, secret)| Webhook {
        url,
        kinds,
        secret,
    })
}

fn settings() -> BoxedStrategy<Settings> {
    (
        (
            text(),
            text(),
            limits(),
            any_of::<SlotRelease>(),
            budget(),
            any_of::<Mode>(),
            any_of::<Orchestration>(),
        ),
        (
            any::<bool>(),
            any_of::<PromptLog>(),
            any_of::<RestartPolicy>(),
            any_of::<Inheritance>(),
            option::of(content()),
            option::of(span()),
            any_of::<TranscriptLog>(),
            span(),
            any_of::<ApprovalTimeoutAction>(),
        ),
        (
            option::of(raw_layer()),
            vec(webhook(), 0..3),
            btree_map(text(), text(), 0..4),
            vec(text(), 0..3),
            btree_map(text(), text(), 0..4),
            (any::<u32>(), span()).prop_map(|(repeats, silence)| StallRule { repeats, silence }),
            any_of::<EdgeManagement>(),
            vec(text(), 0..3),
            "[A-Z]{3}".prop_map(|code| Currency::parse(&code).unwrap()),
        ),
    )
        .prop_map(|(first, second, third)| Settings {
            cwd: first.0,
            workspace_digest: first.1,
            workspace: second.4,
            limits: first.2,
            slot_release: first.3,
            budget: first.4,
            mode: first.5,
            orchestration: first.6,
            edge_management: third.6,
            orchestrators: third.7,
            approve_orchestrators: second.0,
            prompt_log: second.1,
            transcript: second.6,
            approval_timeout: second.7,
            on_approval_timeout: second.8,
            restart_policy: second.2,
            policy_inheritance: second.3,
            tool_ceiling: third.0,
            webhooks: third.1,
            labels: third.2,
            approve_tools: third.3,
            runner_labels: third.4,
            stall: third.5,
            retention: second.5,
            currency: third.8,
        })
        .boxed()
}

fn change() -> BoxedStrategy<SettingsChange> {
    (
        option::of(any_of::<Mode>()),
        option::of(limits()),
        option::of(budget()),
        option::of(any::<bool>()),
        option::of(any_of::<Orchestration>()),
        option::of(vec(webhook(), 0..3)),
        option::of(any_of::<EdgeManagement>()),
        option::of(vec(text(), 0..3)),
    )
        .prop_map(
            |(mode, limits, budget, paused, orchestration, webhooks, edge_management, orchestrators)| SettingsChange {
                mode,
                limits,
                budget,
                paused,
                orchestration,
                edge_management,
                orchestrators,
                webhooks,
            },
        )
        .boxed()
}

fn session_event() -> impl Strategy<Value = SessionEvent> {
    prop_oneof![
        settings().prop_map(|settings| SessionEvent::Opened(Box::new(settings))),
        change().prop_map(|change| SessionEvent::Updated(Box::new(change))),
        Just(SessionEvent::Closed),
    ]
}

fn source() -> impl Strategy<Value = TemplateSource> {
    (any_of::<Scope>(), any_of::<Dialect>(), text(), text(), texts()).prop_map(
        |(scope, dialect, path, digest, shadowed)| TemplateSource {
            scope,
            dialect,
            path,
            digest,
            shadowed,
        },
    )
}

fn origins() -> impl Strategy<Value = BTreeMap<String, ValueOrigin>> {
    btree_map(text(), any_of::<ValueOrigin>(), 0..4)
}

fn spawned() -> BoxedStrategy<Spawned> {
    (
        (
            option::of(thread_id()),
            any::<u32>(),
            any_of::<StatusKind>(),
            any::<bool>(),
        ),
        (text(), text(), text(), text(), text(), text()),
        (text(), text(), text(), text()),
        (
            origins(),
            any_of::<Sandbox>(),
            policy(),
            policy(),
            texts(),
            any_of::<EdgeManagement>(),
        ),
        (
            option::of(source()),
            option::of(content()),
            budget(),
            any_of::<ClosePolicy>(),
            any_of::<WakePolicy>(),
            option::of(content()),
        ),
    )
        .prop_map(|(place, names, work, rights, rest)| Spawned {
            parent: place.0,
            depth: place.1,
            first_status: place.2,
            client_owned: place.3,
            role: Arc::new(Role {
                agent_type: names.0,
                agent_name: names.1,
                agent_description: names.2,
                model: work.1,
                reasoning_effort: work.2,
                provider: work.3,
                origins: rights.0,
                spawn_list: rights.4,
                source: rest.0,
                resolved: rest.1,
            }),
            alias: names.3,
            label: names.4,
            note: names.5.into(),
            working_directory: work.0.into(),
            sandbox: rights.1,
            effective: rights.2,
            grant: rights.3,
            edge_management: rights.5,
            budget: rest.2,
            close_policy: rest.3,
            wake_policy: rest.4,
            input: rest.5,
            result_repairs: Some(2),
            item: Some(item()),
        })
        .boxed()
}

fn item() -> ItemRef {
    ItemRef {
        group: GroupId::from_uuid(Uuid::from_u128(3)),
        item: 7,
    }
}

fn group_event() -> impl Strategy<Value = ThreadEvent> {
    let group = item().group;
    let limits = || {
        (1..9_u32, 0..9_u32, any::<bool>()).prop_map(|(max_concurrency, tolerated_failures, paused)| GroupLimits {
            max_concurrency,
            tolerated_failures,
            paused,
        })
    };
    let join = prop_oneof![Just(Join::All), (1..5_u32).prop_map(Join::Quorum)];
    let spec = (
        limits(),
        join,
        any_of::<OnFailure>(),
        text(),
        actor(),
        content(),
        any::<bool>(),
    );
    let outcome = || {
        prop_oneof![
            Just(GroupOutcome::Succeeded),
            Just(GroupOutcome::Failed),
            Just(GroupOutcome::Cancelled)
        ]
    };
    prop_oneof![
        spec.prop_map(move |(limits, join, on_failure, name, creator, plan, is_bounded)| {
            let spec = GroupSpec {
                id: group,
                name,
                creator,
                plan,
                item_count: 9,
                join,
                on_failure,
                item_deadline: is_bounded.then_some(Duration::from_millis(1_500)),
                retries: 2,
                budget: Budget {
                    tokens: is_bounded.then_some(0),
                    ..Budget::default()
                },
                limits,
            };
            ThreadEvent::GroupCreated {
                spec: Arc::new(spec),
                approval: is_bounded.then_some(ApprovalId::from_uuid(Uuid::from_u128(4))),
            }
        }),
        limits().prop_map(move |limits| ThreadEvent::GroupUpdated { group, limits }),
        (any_of::<ItemOutcome>(), text()).prop_map(|(outcome, reason)| ThreadEvent::GroupItemEnded {
            item: item(),
            outcome,
            reason,
        }),
        (outcome(), text()).prop_map(move |(outcome, reason)| ThreadEvent::GroupEnding { group, outcome, reason }),
        (outcome(), text(), content()).prop_map(move |(outcome, reason, content)| ThreadEvent::GroupEnded {
            group,
            outcome,
            reason,
            table: Box::new(Artifact {
                id: ArtifactId::from_uuid(Uuid::from_u128(5)),
                name: String::from("group-results.json"),
                kind: String::from("group-results"),
                media_type: String::from("application/json"),
                content,
                turn: Turn::ZERO,
            }),
        }),
        Just(ThreadEvent::GroupRetried(group)),
    ]
}

fn settled() -> impl Strategy<Value = Settled> {
    prop_oneof![
        (option::of(text()), option::of(content()))
            .prop_map(|(message, content)| Settled::Completed { message, content }),
        (text(), option::of(content())).prop_map(|(message, content)| Settled::Errored { message, content }),
        text().prop_map(|reason| Settled::Interrupted { reason }),
    ]
}

fn block() -> impl Strategy<Value = BlockRef> {
    (any_of::<BlockKind>(), content()).prop_map(|(kind, content)| BlockRef { kind, content })
}

fn turn_event() -> BoxedStrategy<ThreadEvent> {
    prop_oneof![
        (text(), generation()).prop_map(|(runner, generation)| ThreadEvent::Placed {
            runner: RunnerId::new(runner),
            generation,
        }),
        (input_number(), content(), actor(), any::<bool>(), option::of(0..4_u32)).prop_map(
            |(number, input, from, steers, result_repairs)| ThreadEvent::InputQueued {
                number,
                input,
                from,
                steers,
                result_repairs,
            }
        ),
        (turn(), content()).prop_map(|(turn, result)| ThreadEvent::ResultReported { turn, result }),
        group_event(),
        (
            turn(),
            generation(),
            vec(input_number(), 0..4),
            vec(block(), 0..4),
            option::of(digest()),
            any_of::<PromptExtent>(),
            sequence()
        )
            .prop_map(|(turn, generation, inputs, blocks, whole, extent, mail_up_to)| {
                ThreadEvent::TurnDispatched {
                    turn,
                    generation,
                    inputs,
                    blocks,
                    whole,
                    extent,
                    mail_up_to,
                }
            }),
        (turn(), generation(), report()).prop_map(|(turn, generation, report)| ThreadEvent::TurnStarted {
            turn,
            generation,
            report,
        }),
        (input_number(), turn(), generation(), report()).prop_map(|(number, turn, generation, report)| {
            ThreadEvent::InputDelivered {
                number,
                turn,
                generation,
                report,
            }
        }),
        (turn(), text()).prop_map(|(turn, reason)| ThreadEvent::InterruptRequested { turn, reason }),
        (turn(), generation(), settled(), usage(), digests(), report()).prop_map(
            |(turn, generation, outcome, usage, digests, report)| ThreadEvent::TurnEnded {
                turn,
                generation,
                outcome,
                usage,
                digests,
                result_repair: turn.get().is_multiple_of(2),
                report,
            }
        ),
    ]
    .boxed()
}

fn artifact() -> impl Strategy<Value = Artifact> {
    (uuid(), text(), text(), text(), content(), turn()).prop_map(|(id, name, kind, media_type, content, turn)| {
        Artifact {
            id: ArtifactId::from_uuid(id),
            name,
            kind,
            media_type,
            content,
            turn,
        }
    })
}

fn beside_event() -> BoxedStrategy<ThreadEvent> {
    prop_oneof![
        text().prop_map(ThreadEvent::NoteSet),
        (any_of::<ConditionKind>(), any::<bool>(), text())
            .prop_map(|(kind, active, reason)| ThreadEvent::ConditionChanged { kind, active, reason }),
        (generation(), usage()).prop_map(|(generation, usage)| ThreadEvent::UsageRecorded { generation, usage }),
        budget().prop_map(ThreadEvent::BudgetUpdated),
        (artifact(), generation(), report()).prop_map(|(artifact, generation, report)| {
            ThreadEvent::ArtifactRecorded {
                artifact,
                generation,
                report,
            }
        }),
        (text(), text(), any::<u32>()).prop_map(|(tool, reason, count)| ThreadEvent::ToolDenied {
            tool,
            reason,
            count,
        }),
    ]
    .boxed()
}

fn fence() -> BoxedStrategy<Fence> {
    let cause = prop_oneof![
        Just(CloseCause::Close),
        Just(CloseCause::Session),
        Just(CloseCause::Eviction),
        Just(CloseCause::Intensity),
    ];
    (
        text(),
        cause,
        any_of::<StatusKind>(),
        time(),
        option::of(any_of::<ClosePolicy>()),
    )
        .prop_map(|(reason, cause, status_before, deadline, close_policy)| Fence {
            reason,
            cause,
            status_before,
            deadline,
            close_policy,
        })
        .boxed()
}

fn resumed() -> BoxedStrategy<Resumed> {
    (generation(), settled(), policy(), policy(), any_of::<Sandbox>())
        .prop_map(|(generation, settled, effective, grant, sandbox)| Resumed {
            generation,
            settled,
            effective,
            grant,
            sandbox,
        })
        .boxed()
}

fn edge() -> impl Strategy<Value = Edge> {
    (
        uuid(),
        thread_id(),
        thread_id(),
        any::<bool>(),
        any_of::<EdgeKind>(),
        text(),
    )
        .prop_map(|(id, from, to, bidirectional, kind, label)| Edge {
            id: EdgeId::from_uuid(id),
            from,
            to,
            bidirectional,
            kind,
            label,
        })
}

fn handoff() -> BoxedStrategy<Handoff> {
    (
        (uuid(), thread_id(), thread_id(), content(), option::of(content())),
        (
            vec((text(), text()), 0..3),
            option::of((any::<bool>(), text())),
            any_of::<Expectation>(),
        ),
        (option::of(thread_id()), text()),
    )
        .prop_map(|(who, what, then)| Handoff {
            id: HandoffId::from_uuid(who.0),
            from: who.1,
            to: who.2,
            message: who.3,
            structured: who.4,
            artifacts: what.0,
            verdict: what.1,
            expectation: what.2,
            reply_to: then.0,
            context_ref: then.1,
        })
        .boxed()
}

fn approval_event() -> BoxedStrategy<ThreadEvent> {
    prop_oneof![
        (
            uuid(),
            any_of::<ApprovalKind>(),
            text(),
            option::of(time()),
            option::of(edge()),
            option::of(content())
        )
            .prop_map(|(id, kind, subject, deadline, edge, content)| {
                ThreadEvent::ApprovalRequested {
                    approval: ApprovalId::from_uuid(id),
                    kind,
                    subject,
                    deadline,
                    edge,
                    call: content.map(|content| {
                        Box::new(CallDetails {
                            digest: content.digest,
                            content,
                        })
                    }),
                }
            }),
        (uuid(), any_of::<ApprovalDecision>(), actor(), text()).prop_map(|(id, decision, by, reason)| {
            ThreadEvent::ApprovalResolved {
                approval: ApprovalId::from_uuid(id),
                decision,
                by,
                reason,
            }
        }),
    ]
    .boxed()
}

fn thread_event() -> BoxedStrategy<ThreadEvent> {
    prop_oneof![
        2 => spawned().prop_map(|spawned| ThreadEvent::Spawned(Arc::new(spawned))),
        1 => (text(), text(), text(), text()).prop_map(|(agent_type, agent_name, reason, message)| {
            ThreadEvent::SpawnFailed { agent_type, agent_name, reason, message }
        }),
        1 => Just(ThreadEvent::Admitted),
        7 => turn_event(),
        5 => beside_event(),
        1 => fence().prop_map(ThreadEvent::CloseRequested),
        1 => (any::<bool>(), text()).prop_map(|(forced, reason)| ThreadEvent::Closed { forced, reason }),
        1 => resumed().prop_map(|resumed| ThreadEvent::Resumed(Box::new(resumed))),
        1 => edge().prop_map(ThreadEvent::EdgeCreated),
        1 => uuid().prop_map(|id| ThreadEvent::EdgeDeleted(EdgeId::from_uuid(id))),
        1 => handoff().prop_map(|handoff| ThreadEvent::HandoffSent(Box::new(handoff))),
        1 => sequence().prop_map(ThreadEvent::MailAcknowledged),
        2 => approval_event(),
    ]
    .boxed()
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => session_event().prop_map(Event::Session),
        6 => (thread_id(), thread_event()).prop_map(|(id, event)| Event::Thread(id, event)),
    ]
}

fn recorded() -> impl Strategy<Value = Recorded> {
    let shared = || option::of(text().prop_map(Arc::<str>::from));
    let metadata = (actor(), shared(), shared(), option::of(sequence()), any::<bool>()).prop_map(
        |(actor, request_id, traceparent, cause, contents_left_out)| EventMetadata {
            actor,
            request_id,
            traceparent,
            cause,
            contents_left_out,
        },
    );
    (sequence(), time(), metadata, event()).prop_map(|(sequence, time, metadata, event)| Recorded {
        sequence,
        time,
        metadata,
        event,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn encoded_record_decodes_to_equal_value(session in session_id(), recorded in recorded()) {
        let bytes = encode_record(session, &recorded).unwrap();
        prop_assert_eq!(decode_record(session, &bytes).unwrap(), recorded);
    }

    #[test]
    fn record_omits_fields_of_its_header(session in session_id(), recorded in recorded()) {
        let bytes = encode_record(session, &recorded).unwrap();
        let event = store::Record::decode(bytes).unwrap().event.unwrap();
        let bare = pb::Event { kind: event.kind.clone(), ..pb::Event::default() };
        prop_assert_eq!(event, bare);
    }

    #[test]
    fn times_and_spans_are_exact(time in time(), span in span()) {
        prop_assert_eq!(time_from_pb(time_to_pb(time)), Some(time));
        prop_assert_eq!(duration_from_pb(duration_to_pb(span)), Some(span));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_damaged_record_never_panics(
        session in session_id(),
        recorded in recorded(),
        damage in vec((any::<Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode_record(session, &recorded).unwrap().to_vec();
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let bytes = Bytes::from(bytes);
        for end in 0..=bytes.len() {
            let _ = decode_record(session, &bytes.slice(..end));
        }
    }

    #[test]
    fn noise_never_panics(session in session_id(), bytes in vec(any::<u8>(), 0..512)) {
        let _ = decode_record(session, &bytes.into());
    }
}

#[test]
fn the_strategy_makes_every_kind_that_the_api_has() {
    let descriptors = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let kinds = descriptors
        .file
        .iter()
        .filter(|file| file.package() == "troupe.supervisor.v1")
        .flat_map(|file| &file.message_type)
        .find(|message| message.name() == "Event")
        .unwrap()
        .field
        .iter()
        .filter(|field| field.oneof_index.is_some())
        .count();

    let mut runner = TestRunner::deterministic();
    let strategy = recorded();
    let made: HashSet<_> = (0..4_000)
        .map(|_| {
            let recorded = strategy.new_tree(&mut runner).unwrap().current();
            discriminant(&event_to_pb(session(1), &recorded).kind.unwrap())
        })
        .collect();
    assert_eq!(made.len(), kinds);
}

// ---- rejected records ----

fn note(length: usize) -> Recorded {
    at(1, Event::Thread(thread(2), ThreadEvent::NoteSet("x".repeat(length))))
}

fn stored(recorded: &Recorded) -> store::Record {
    store::Record::decode(encode_record(session(1), recorded).unwrap()).unwrap()
}

fn read(record: &store::Record) -> Result<Recorded, DecodeError> {
    decode_record(session(1), &record.encode_to_vec().into())
}

fn needs_upgrade(result: &Result<Recorded, DecodeError>) -> bool {
    matches!(result, Err(DecodeError::UpgradeRequired { .. }))
}

fn is_malformed(result: &Result<Recorded, DecodeError>) -> bool {
    matches!(result, Err(DecodeError::Malformed { .. }))
}

#[test]
fn a_record_has_at_most_16_kib() {
    let beside = encode_record(session(1), &note(1_000)).unwrap().len() - 1_000;
    let most = MAX_RECORD_BYTES - beside;
    assert_eq!(encode_record(session(1), &note(most)).unwrap().len(), MAX_RECORD_BYTES);
    assert_eq!(
        encode_record(session(1), &note(most + 1)),
        Err(EncodeError::TooLarge {
            bytes: MAX_RECORD_BYTES + 1
        })
    );
}

#[test]
fn newer_record_is_distinct_from_damage() {
    let good = stored(&note(3));
    assert_eq!(read(&good), Ok(note(3)));

    let older = store::Record {
        version: 1,
        ..good.clone()
    };
    assert!(is_malformed(&read(&older)));

    let newer = store::Record {
        version: 3,
        ..good.clone()
    };
    assert!(needs_upgrade(&read(&newer)));
    // Version 3, whose field 2 is a number.
    assert!(needs_upgrade(&decode_record(
        session(1),
        &Bytes::from_static(&[0x08, 3, 0x10, 5])
    )));

    let with_event = |event: Option<pb::Event>| store::Record { event, ..good.clone() };
    assert!(
        needs_upgrade(&read(&with_event(Some(pb::Event::default())))),
        "a kind without a name here"
    );
    assert!(is_malformed(&read(&with_event(None))));

    let condition = |kind| {
        with_event(Some(pb::Event {
            kind: Some(pb::event::Kind::ConditionChanged(pb::ConditionChanged {
                kind,
                active: true,
                reason: String::new(),
            })),
            ..pb::Event::default()
        }))
    };
    assert!(needs_upgrade(&read(&condition(99))));
    assert!(is_malformed(&read(&condition(0))));

    let mut tenant = good.clone();
    tenant.header.as_mut().unwrap().tenant = "other".to_owned();
    assert!(needs_upgrade(&read(&tenant)));

    assert!(is_malformed(&decode_record(session(1), &Bytes::new())));
    assert!(is_malformed(&decode_record(session(9), &good.encode_to_vec().into())));
}

#[test]
fn event_with_wrong_thread_header_is_rejected() {
    let mut homeless = stored(&note(3));
    homeless.header.as_mut().unwrap().thread = Bytes::new();
    assert!(is_malformed(&read(&homeless)));

    let mut housed = stored(&at(1, Event::Session(SessionEvent::Closed)));
    housed.header.as_mut().unwrap().thread = Bytes::copy_from_slice(&[7; 16]);
    assert!(is_malformed(&read(&housed)));
}

#[test]
fn missing_policy_or_budget_is_rejected() {
    let record = stored(&at(1, Event::Thread(thread(2), ThreadEvent::Spawned(Arc::new(root())))));
    let without = |lose: fn(&mut pb::ThreadSpawned)| {
        let mut record = record.clone();
        lose(spawned_in(&mut record));
        read(&record)
    };
    assert!(without(|_| {}).is_ok());
    assert!(is_malformed(&without(|spawned| spawned.tool_policy = None)));
    assert!(is_malformed(&without(|spawned| spawned.budget = None)));
}

fn spawned_in(record: &mut store::Record) -> &mut pb::ThreadSpawned {
    match &mut record.event.as_mut().unwrap().kind {
        Some(pb::event::Kind::ThreadSpawned(spawned)) => spawned,
        other => panic!("another kind: {other:?}"),
    }
}

#[test]
fn equal_policy_and_grant_are_stored_once() {
    let policy = Policy::compile(vec![Layer::nothing("role \"worker\"")]).unwrap();
    let alike = Spawned {
        effective: policy.clone(),
        grant: policy,
        ..root()
    };
    let shown = |spawned: &Spawned| {
        let recorded = at(
            1,
            Event::Thread(thread(2), ThreadEvent::Spawned(Arc::new(spawned.clone()))),
        );
        (stored(&recorded), event_to_pb(session(1), &recorded), recorded)
    };
    let (mut record, event, recorded) = shown(&alike);
    assert_eq!(spawned_in(&mut record).grant, None);
    assert_eq!(read(&record), Ok(recorded));
    let Some(pb::event::Kind::ThreadSpawned(public)) = event.kind else {
        panic!("another kind");
    };
    assert!(public.grant.is_some());
    assert_eq!(public.grant, public.tool_policy, "clients receive both");

    let wider = Spawned {
        grant: Policy::unrestricted(),
        ..alike
    };
    let (mut record, _, recorded) = shown(&wider);
    assert_eq!(spawned_in(&mut record).grant, Some(common::ToolPolicy::default()));
    assert_eq!(read(&record), Ok(recorded));
}

#[test]
fn unspecified_values_have_the_documented_meaning() {
    assert_eq!(ClosePolicy::from_number(0), Ok(ClosePolicy::Terminate));
    assert_eq!(ClosePolicy::given(0), Ok(None));
    assert_eq!(MatchMode::from_number(0), Ok(MatchMode::Glob));
    assert_eq!(EdgeManagement::given(2), Ok(Some(EdgeManagement::SelfOnly)));
    let error = Sandbox::from_number(0).unwrap_err();
    assert_eq!((error.name, error.number), ("Sandbox", 0));
    assert!(Sandbox::from_number(-1).is_err());
    let unbounded = pb::Budget {
        wall_time: Some(prost_types::Duration::default()),
        ..pb::Budget::default()
    };
    assert_eq!(budget_from_request(unbounded), Ok(Budget::default()));
}

#[test]
fn secrets_are_stored_and_never_displayed() {
    let holds = |bytes: &[u8]| bytes.windows(11).any(|part| part == b"do-not-tell");
    let change = SettingsChange {
        webhooks: Some(samples::some_settings().webhooks),
        ..SettingsChange::default()
    };
    for event in [opened(), Event::Session(SessionEvent::Updated(Box::new(change)))] {
        let recorded = at(1, event);
        assert!(holds(&encode_record(session(1), &recorded).unwrap()));
        assert!(!holds(&event_to_pb(session(1), &recorded).encode_to_vec()));
    }
    assert!(!holds(&settings_to_pb(&samples::some_settings()).encode_to_vec()));
}
