//! ListMembers, DrainMember and MoveSession: the supervisors that share the log.

use supervisor_log::store::{Member, MemberState};
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{call::Call, parse, service::SupervisorService};
use crate::cluster::Cluster;

pub(super) async fn list_members(call: Call<'_>, _: pb::ListMembersRequest) -> Result<pb::ListMembersResponse, Status> {
    let database = call.service.directory.store().database().await;
    let database = database.map_err(crate::engine::Failure::from)?;
    let members = match &call.service.cluster {
        Some(cluster) => {
            let own = cluster.id();
            let members = cluster.members();
            members.iter().map(|member| shown(member, member.id == own)).collect()
        }
        None => vec![pb::Member {
            release: String::from(env!("CARGO_PKG_VERSION")),
            state: pb::MemberState::Active.into(),
            sessions: call.service.directory.loaded() as u64,
            runners: call.service.runners.attached() as u64,
            answered: true,
            ..pb::Member::default()
        }],
    };
    Ok(pb::ListMembersResponse {
        members,
        database: Some(pb::LogDatabase {
            engine: database.engine,
            synchronous_standbys: database.synchronous_standbys,
        }),
    })
}

fn shown(member: &Member, answered: bool) -> pb::Member {
    let state = match member.last.state {
        MemberState::Active => pb::MemberState::Active,
        MemberState::Leaving => pb::MemberState::Leaving,
    };
    pb::Member {
        member_id: member.id.to_string(),
        name: member.info.name.clone(),
        address: member.info.address.clone(),
        release: member.info.release.clone(),
        state: state.into(),
        sessions: member.last.sessions,
        runners: member.last.runners,
        answered,
    }
}

pub(super) async fn drain_member(
    call: Call<'_>,
    request: pb::DrainMemberRequest,
) -> Result<pb::DrainMemberResponse, Status> {
    let name = request.name;
    parse::line("name", &name, parse::NAME_BYTES)?;
    let cluster = shared(call.service)?;
    let member = named(cluster, &name)?;
    if member.id != cluster.id() {
        return cluster.drain_other(member.id, &name).await;
    }
    match cluster.drain().await {
        Some(sessions) => Ok(pb::DrainMemberResponse { sessions }),
        None => Err(alone()),
    }
}

pub(super) async fn move_session(
    call: Call<'_>,
    request: pb::MoveSessionRequest,
) -> Result<pb::MoveSessionResponse, Status> {
    let session = parse::session_id(&request.session_id)?;
    parse::line("name", &request.name, parse::NAME_BYTES)?;
    let cluster = shared(call.service)?;
    cluster.refresh().await;
    let target = match request.name.as_str() {
        "" => cluster.other_for(session).ok_or_else(alone)?,
        name => active(cluster, name)?.id,
    };
    // If another supervisor owns the session, this fails and the call is forwarded.
    call.service.directory.session(session).await?;
    if target != cluster.id() {
        cluster.hand_over(session, target).await?;
    }
    let members = cluster.members();
    let member = members.iter().find(|member| member.id == target);
    Ok(pb::MoveSessionResponse {
        name: member.map(|member| member.info.name.clone()).unwrap_or_default(),
    })
}

fn shared(service: &SupervisorService) -> Result<&Cluster, Status> {
    service.cluster.as_ref().ok_or_else(|| {
        Fault::new(
            Code::FailedPrecondition,
            Reason::IllegalTransition,
            "the log is a file, which one supervisor uses; several supervisors need --store with a PostgreSQL URL",
        )
        .precondition("store", "the log must be in PostgreSQL")
        .into()
    })
}

/// Returns the member with this name, in any state.
fn named(cluster: &Cluster, name: &str) -> Result<Member, Status> {
    let members = cluster.members();
    let found = members.iter().find(|member| member.info.name == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = members.iter().map(|member| member.info.name.as_str()).collect();
        let text = format!(
            "no supervisor has the name \"{name}\"; the names are {}",
            names.join(", ")
        );
        Fault::new(Code::NotFound, Reason::NotFound, text.clone())
            .with("kind", "member")
            .with("id", name)
            .resource("member", name, &text)
            .into()
    })
}

/// Returns the member with this name. Fails if the member is not active and therefore takes over no sessions.
fn active(cluster: &Cluster, name: &str) -> Result<Member, Status> {
    let member = named(cluster, name)?;
    if member.last.state == MemberState::Active {
        return Ok(member);
    }
    Err(Fault::new(
        Code::FailedPrecondition,
        Reason::IllegalTransition,
        format!(
            "the supervisor \"{name}\" takes over no sessions, because it is drained; start it again, or choose another"
        ),
    )
    .precondition(name, "the supervisor must be active")
    .into())
}

/// Returns the error of a move without another active supervisor.
fn alone() -> Status {
    Fault::new(
        Code::FailedPrecondition,
        Reason::IllegalTransition,
        "no other supervisor is active; start one with the same --store first",
    )
    .precondition("members", "another supervisor must be active")
    .into()
}
