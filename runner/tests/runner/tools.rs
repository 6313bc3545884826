//! A fake of the supervisor's tools. The generated service trait has every method, but this fake has only four.

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
    supervisor::v1::{
        CreateEdgeRequest, CreateEdgeResponse, DescribeToolsRequest, DescribeToolsResponse, Handoff,
        SendHandoffRequest, SendHandoffResponse, SpawnAgentRequest, SpawnAgentResponse, Thread,
    },
};

/// The id of every agent that is spawned.
pub(crate) const SPAWNED: &str = "0190a5a4-1111-7000-8000-000000000001";

/// A fake for callers with the thread's token: describes no tools, spawns explorers, accepts handoffs to them, and lets
/// every edge wait for an operator. Rejects every other call.
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
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            Ok(match method.as_str() {
                "DescribeTools" => {
                    let codec = ProstCodec::<DescribeToolsResponse, DescribeToolsRequest>::default();
                    Grpc::new(codec).unary(Method(describe), request).await
                }
                "SpawnAgent" => {
                    let codec = ProstCodec::<SpawnAgentResponse, SpawnAgentRequest>::default();
                    Grpc::new(codec).unary(Method(spawn), request).await
                }
                "SendHandoff" => {
                    let codec = ProstCodec::<SendHandoffResponse, SendHandoffRequest>::default();
                    Grpc::new(codec).unary(Method(hand_over), request).await
                }
                "CreateEdge" => {
                    let codec = ProstCodec::<CreateEdgeResponse, CreateEdgeRequest>::default();
                    Grpc::new(codec).unary(Method(connect), request).await
                }
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

/// The handler of a unary method.
struct Method<Q, A>(fn(Q) -> Result<A, Status>);

impl<Q, A> UnaryService<Q> for Method<Q, A>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    type Response = A;
    type Future = BoxFuture<Response<A>, Status>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let method = self.0;
        Box::pin(async move {
            if request
                .metadata()
                .get("authorization")
                .is_none_or(|token| token != "Bearer thread-token")
            {
                return Err(Fault::new(Code::Unauthenticated, Reason::Unauthenticated, "who are you?").into());
            }
            method(request.into_inner()).map(Response::new)
        })
    }
}

fn describe(_: DescribeToolsRequest) -> Result<DescribeToolsResponse, Status> {
    Ok(DescribeToolsResponse::default())
}

fn spawn(wanted: SpawnAgentRequest) -> Result<SpawnAgentResponse, Status> {
    if wanted.agent_type != "explorer" || wanted.request_id.is_empty() {
        let text = format!("agent_type {:?} may not be spawned", wanted.agent_type);
        return Err(Fault::new(Code::PermissionDenied, Reason::SpawnNotAllowed, text).into());
    }
    Ok(SpawnAgentResponse {
        thread: Some(Thread {
            thread_id: SPAWNED.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn hand_over(wanted: SendHandoffRequest) -> Result<SendHandoffResponse, Status> {
    if wanted.to_thread_id != SPAWNED || wanted.message.is_empty() {
        let text = format!("no edge to {}", wanted.to_thread_id);
        return Err(Fault::new(Code::FailedPrecondition, Reason::IllegalTransition, text).into());
    }
    Ok(SendHandoffResponse {
        handoff: Some(Handoff {
            handoff_id: "0190a5a4-2222-7000-8000-000000000001".to_owned(),
            ..Default::default()
        }),
    })
}

fn connect(wanted: CreateEdgeRequest) -> Result<CreateEdgeResponse, Status> {
    if wanted.to_thread_id != SPAWNED {
        return Err(Status::not_found(wanted.to_thread_id));
    }
    Ok(CreateEdgeResponse {
        edge: None,
        approval_id: "0190a5a4-3333-7000-8000-000000000001".to_owned(),
    })
}
