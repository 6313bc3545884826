//! Groups: creation, reads, and changes. The items run in [`use_cases::groups`](crate::use_cases::groups).

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use supervisor_log::{
    codec::{group::spec_to_pb, parts::budget_to_pb},
    store::Content,
};
use tokio::time::Instant;
use tonic::Status;
use troupe_proto::{store::v1::GroupPlan, supervisor::v1 as pb};

use super::{
    call::Call,
    page::Page,
    parse,
    results::DOCUMENTS_BYTES,
    spawn::{arguments, check_texts, operators_only},
    wait::wait_time,
};
use crate::{
    convert::{self, status::refused},
    domain::{
        command::{Command, NewGroup},
        decide::group::{authorize, check, most_spent},
        group::{GroupLimits, GroupLimitsChange, GroupSpec, Join},
        ids::{GroupId, ThreadId},
        principal::Caller,
        rejection::Rejection,
        rules::authority,
        state::{
            group::{Group, ItemState},
            session::Session,
        },
    },
    engine::{Done, Handle, read_message},
    results::ResultReader,
    use_cases::{group_plan, spawn::SpawnArguments},
};

/// Maximum number of items that run at a time.
pub(crate) const MAX_CONCURRENCY: u32 = 1_000;
/// Number of items that run at a time if the request specifies none.
pub(crate) const DEFAULT_CONCURRENCY: u32 = 8;
/// Maximum number of retries of an item.
pub(crate) const MAX_RETRIES: u32 = 10;
/// The number of items above which an operator must approve a group that a thread creates.
pub(crate) const APPROVAL_ABOVE: u32 = 50;

pub(super) async fn create_group(
    call: Call<'_>,
    mut request: pb::CreateGroupRequest,
) -> Result<pb::CreateGroupResponse, Status> {
    let named: Option<ThreadId> = parse::optional_id("parent_thread_id", &request.parent_thread_id)?;
    let handle = call.session_for(&request.session_id, named).await?;
    let parent = call.thread_or_own(&handle, named)?;
    authority::authorize(&handle.state(), &call.caller, call.method, parent).map_err(refused)?;

    let limits = limits(&request)?;
    let join = join(&request)?;
    let approval_above = approval_above(&call.caller, request.approval_above);
    let name = request.name.trim().to_owned();
    parse::line("name", &name, parse::NAME_BYTES)?;
    if request.retries > MAX_RETRIES {
        let text = format!("retries is {}; at most {MAX_RETRIES} are allowed", request.retries);
        return Err(parse::bad("retries", text));
    }
    let template = request.template.take().unwrap_or_default();
    operators_only(&call, &template)?;
    let plan = GroupPlan {
        template: Some(template),
        items: std::mem::take(&mut request.items),
        traceparent: call.trace.to_string(),
    };
    let item_count = item_count(&plan, call.service.config.max_group_items)?;
    let first = checked_plan(parent, &plan)?;
    let (item_budget, role) = (first.budget, first.role.wanted().name().to_owned());
    let prepared = call
        .service
        .spawner
        .prepare(&call.spawn_caller(), &handle.state(), &first)
        .await;
    let warnings = prepared.map_err(|failed| failed.into_status())?.warnings;

    let content = Content::new(Bytes::from(plan.encode_to_vec()));
    let clock = call.service.clock();
    let spec = GroupSpec {
        id: clock.new_id(),
        name,
        creator: call.caller.actor(),
        plan: content.reference(String::new()),
        item_count,
        join,
        on_failure: parse::choice("on_failure", request.on_failure)?,
        item_deadline: parse::span("item_deadline", request.item_deadline)?,
        retries: request.retries,
        budget: parse::budget(request.budget)?,
        limits,
    };
    let highest_usage = Some(budget_to_pb(most_spent(&spec, &item_budget)));
    let new = NewGroup {
        caller: call.caller.clone(),
        parent,
        spec: Arc::new(spec),
        item_budget,
        role,
        approval_above,
        approval: clock.new_id(),
    };
    if request.dry_run {
        let state = handle.state();
        check(&state, &new).map_err(refused)?;
        return Ok(pb::CreateGroupResponse {
            group: Some(pb::Group {
                session_id: state.id.to_string(),
                parent_thread_id: parent.to_string(),
                spec: Some(pb::GroupSpec {
                    group_id: String::new(),
                    plan: None,
                    ..spec_to_pb(&new.spec)
                }),
                pending: item_count,
                ..pb::Group::default()
            }),
            highest_usage,
            warnings,
        });
    }
    let command = Command::CreateGroup(Box::new(new));
    let done = call.execute(&handle, command, vec![content]).await?;
    Ok(pb::CreateGroupResponse {
        group: Some(shown(&done)?),
        highest_usage,
        warnings,
    })
}

fn limits(request: &pb::CreateGroupRequest) -> Result<GroupLimits, Status> {
    let max_concurrency = match request.max_concurrency {
        0 => DEFAULT_CONCURRENCY,
        given => given,
    };
    check_concurrency(max_concurrency)?;
    Ok(GroupLimits {
        max_concurrency,
        tolerated_failures: request.tolerated_failures,
        paused: false,
    })
}

fn check_concurrency(max_concurrency: u32) -> Result<(), Status> {
    if (1..=MAX_CONCURRENCY).contains(&max_concurrency) {
        return Ok(());
    }
    let text = format!("max_concurrency is {max_concurrency}; 1 to {MAX_CONCURRENCY} are allowed");
    Err(parse::bad("max_concurrency", text))
}

fn join(request: &pb::CreateGroupRequest) -> Result<Join, Status> {
    let unknown = || parse::bad("join", format!("join {} is unknown", request.join));
    let join = pb::GroupJoin::try_from(request.join).map_err(|_| unknown())?;
    let items = request.items.len();
    match join {
        pb::GroupJoin::Quorum if request.quorum == 0 || request.quorum as usize > items => {
            let text = format!(
                "quorum is {}; 1 to {items} are possible, because the group has {items} items",
                request.quorum
            );
            Err(parse::bad("quorum", text))
        }
        pb::GroupJoin::Quorum => Ok(Join::Quorum(request.quorum)),
        _ if request.quorum > 0 => Err(parse::bad("quorum", "quorum needs the join GROUP_JOIN_QUORUM")),
        pb::GroupJoin::Unspecified | pb::GroupJoin::All => Ok(Join::All),
        pb::GroupJoin::Any => Ok(Join::Quorum(1)),
    }
}

/// Returns the number of items above which an operator must approve the group. A thread can only lower it.
fn approval_above(caller: &Caller, given: Option<u32>) -> Option<u32> {
    match caller {
        Caller::Operator { .. } => given,
        Caller::Thread { .. } => Some(given.map_or(APPROVAL_ABOVE, |given| given.min(APPROVAL_ABOVE))),
    }
}

fn item_count(plan: &GroupPlan, max: u32) -> Result<u32, Status> {
    match u32::try_from(plan.items.len()) {
        Ok(0) => Err(parse::bad("items", "a group needs at least one item")),
        Ok(count) if count <= max => Ok(count),
        _ => {
            let text = format!(
                "{} items; at most {max} are allowed; split the group, or raise --max-group-items",
                plan.items.len()
            );
            Err(parse::bad("items", text))
        }
    }
}

/// Checks the plan, and returns the arguments of its first item. The texts are the only difference between the items.
fn checked_plan(parent: ThreadId, plan: &GroupPlan) -> Result<SpawnArguments, Status> {
    group_plan::check(plan).map_err(|(field, problem)| parse::bad(field, problem))?;
    let at = |index: u32| {
        move |status: Status| {
            let text = format!("item {index}: {}", status.message());
            parse::bad("items", text)
        }
    };
    let request = |index: u32| group_plan::request(plan, index).map_err(|problem| parse::bad("items", problem));
    let first = arguments(parent, request(0)?).map_err(at(0))?;
    for (index, _) in (0_u32..).zip(&plan.items).skip(1) {
        let request = request(index)?;
        check_texts(&request).map_err(at(index))?;
        let around = |items| pb::Input {
            items,
            ..pb::Input::default()
        };
        parse::input(request.message, request.items, around).map_err(at(index))?;
    }
    Ok(first)
}

pub(super) async fn get_group(call: Call<'_>, request: pb::GetGroupRequest) -> Result<pb::GetGroupResponse, Status> {
    let handle = call.own_or_named(&request.session_id).await?;
    let state = handle.state();
    let id = match (request.group_id.as_str(), request.name.as_str()) {
        ("", "") => return Err(parse::bad("group_id", "give group_id or name")),
        ("", name) => {
            let named = state.group_by_name(name);
            let missing = || Rejection::Missing {
                what: "group",
                id: name.to_owned(),
            };
            named.map(|group| group.spec.id).ok_or_else(missing).map_err(refused)?
        }
        (id, _) => parse::id("group_id", id)?,
    };
    authorize(&state, &call.caller, "GetGroup", id).map_err(refused)?;
    let state = match request.wait {
        None => state,
        Some(wait) => {
            let until = Instant::now() + wait_time(Some(wait), call.deadline)?;
            let has_ended = |session: &Session| session.group(id).is_none_or(|group| group.has_ended());
            let waited = call.service.until_at(&handle, until, has_ended).await?;
            waited.unwrap_or_else(|| handle.state())
        }
    };
    Ok(pb::GetGroupResponse {
        group: state.group(id).map(|group| convert::group::group(&state, group)),
    })
}

pub(super) async fn list_group_items(
    call: Call<'_>,
    mut request: pb::ListGroupItemsRequest,
) -> Result<pb::ListGroupItemsResponse, Status> {
    let page: Page<u32> = Page::of(&mut request, &call.scope)?;
    let (handle, id) = named(&call, &request.session_id, &request.group_id).await?;
    let state = handle.state();
    let group = authorize(&state, &call.caller, "ListGroupItems", id).map_err(refused)?;
    let wanted: Vec<ItemState> = request
        .states
        .iter()
        .map(|state| parse::choice("states", *state))
        .collect::<Result<_, _>>()?;
    let store = call.service.directory.store().as_ref();
    let plan: GroupPlan = read_message(store, state.id, &group.spec.plan).await?;
    let has_texts = call.redaction.has_texts();
    let entries = (0_u32..)
        .zip(&group.items)
        .filter(|(_, item)| wanted.is_empty() || wanted.contains(&item.state))
        .map(|(index, item)| (index, (index, item)));
    let show = |(index, item): (u32, &_)| {
        let key = plan.items.get(index as usize).map_or("", |item| item.key.as_str());
        convert::group::item(&state, index, key, item, has_texts)
    };
    let (mut items, next_page_token) = page.cut(entries, show, None);
    let mut reader = ResultReader::new(store, state.id, DOCUMENTS_BYTES);
    for item in &mut items {
        let thread: Option<ThreadId> = item.thread_id.parse().ok();
        let thread = thread.and_then(|thread| state.thread(thread));
        if let Some(result) = thread.and_then(|thread| thread.result.as_ref()) {
            item.result = Some(call.redaction.result(reader.read(result).await?));
        }
    }
    Ok(pb::ListGroupItemsResponse { items, next_page_token })
}

pub(super) async fn update_group(
    call: Call<'_>,
    request: pb::UpdateGroupRequest,
) -> Result<pb::UpdateGroupResponse, Status> {
    let (handle, group) = named(&call, &request.session_id, &request.group_id).await?;
    if let Some(max_concurrency) = request.max_concurrency {
        check_concurrency(max_concurrency)?;
    }
    let command = Command::UpdateGroup {
        caller: call.caller.clone(),
        group,
        change: GroupLimitsChange {
            max_concurrency: request.max_concurrency,
            tolerated_failures: request.tolerated_failures,
            paused: request.paused,
        },
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::UpdateGroupResponse {
        group: Some(shown(&done)?),
    })
}

pub(super) async fn retry_group(
    call: Call<'_>,
    request: pb::RetryGroupRequest,
) -> Result<pb::RetryGroupResponse, Status> {
    let (handle, group) = named(&call, &request.session_id, &request.group_id).await?;
    let command = Command::RetryGroup {
        caller: call.caller.clone(),
        group,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::RetryGroupResponse {
        group: Some(shown(&done)?),
    })
}

pub(super) async fn cancel_group(
    call: Call<'_>,
    request: pb::CancelGroupRequest,
) -> Result<pb::CancelGroupResponse, Status> {
    let (handle, group) = named(&call, &request.session_id, &request.group_id).await?;
    let command = Command::CancelGroup {
        caller: call.caller.clone(),
        group,
        reason: parse::reason(&request.reason, "cancelled")?,
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::CancelGroupResponse {
        group: Some(shown(&done)?),
    })
}

/// Returns the session and the group that a call names.
async fn named(call: &Call<'_>, session_id: &str, group_id: &str) -> Result<(Handle, GroupId), Status> {
    let id = parse::id("group_id", group_id)?;
    Ok((call.own_or_named(session_id).await?, id))
}

/// Returns the group that a command was about.
fn shown(done: &Done) -> Result<pb::Group, Status> {
    let id = done.outcome.other.map(GroupId::from_uuid);
    let group: Option<&Arc<Group>> = id.and_then(|id| done.session.group(id));
    group
        .map(|group| convert::group::group(&done.session, group))
        .ok_or_else(|| Status::internal("the group is not in its session"))
}
