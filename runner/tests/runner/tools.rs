//! The supervisor's tools, as far as a spawn needs them: the generated trait has every method, this one has one.

use std::convert::Infallible;

use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Context, Poll, Service, http},
    server::{Grpc, NamedService, UnaryService},
};
use tonic_prost::ProstCodec;
use troupe_proto::{
    fault::Fault,
    reason::Reason,
    supervisor::v1::{SpawnAgentRequest, SpawnAgentResponse, Thread},
};

/// The id of every agent that is spawned.
pub(crate) const SPAWNED: &str = "0190a5a4-1111-7000-8000-000000000001";

/// Spawns explorers for whoever has the thread's token; refuses everything else.
#[derive(Clone)]
pub(crate) struct Tools;

impl NamedService for Tools {
    const NAME: &'static str = "troupe.supervisor.v1.AgentSupervisorService";
}

impl Service<http::Request<Body>> for Tools {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<SpawnAgentResponse, SpawnAgentRequest>::default();
            Ok(Grpc::new(codec).unary(Spawn, request).await)
        })
    }
}

struct Spawn;

impl UnaryService<SpawnAgentRequest> for Spawn {
    type Response = SpawnAgentResponse;
    type Future = BoxFuture<Response<SpawnAgentResponse>, Status>;

    fn call(&mut self, request: Request<SpawnAgentRequest>) -> Self::Future {
        Box::pin(async move { spawn(&request) })
    }
}

fn spawn(request: &Request<SpawnAgentRequest>) -> Result<Response<SpawnAgentResponse>, Status> {
    if request
        .metadata()
        .get("authorization")
        .is_none_or(|token| token != "Bearer thread-token")
    {
        return Err(Fault::new(Code::Unauthenticated, Reason::Unauthenticated, "who are you?").into());
    }
    let wanted = request.get_ref();
    if wanted.agent_type != "explorer" || wanted.request_id.is_empty() {
        let text = format!("agent_type {:?} may not be spawned", wanted.agent_type);
        return Err(Fault::new(Code::PermissionDenied, Reason::SpawnNotAllowed, text).into());
    }
    Ok(Response::new(SpawnAgentResponse {
        thread: Some(Thread {
            thread_id: SPAWNED.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }))
}
