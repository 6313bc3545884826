//! RouteAgent.

use troupe_proto::registry::v1::{RouteAgentRequest, RouteAgentResponse, RouteScore};

use crate::{
    domain::{
        error::RegistryError,
        route::{self, Candidate, Question},
    },
    grpc::{
        bounds,
        call::Call,
        describe,
        page::{self, PAGE_BYTES},
    },
};

/// Maximum number of scores in a response.
pub(super) const MAX_SCORES: usize = 100;

pub(super) fn route(call: &Call, request: RouteAgentRequest) -> Result<RouteAgentResponse, RegistryError> {
    let text = bounds::text("text", request.text, bounds::TEXT_BYTES)?;
    let explicit = bounds::non_blank("explicit_agent", &request.explicit_agent, bounds::NAME_BYTES)?;
    let only = describe::names(request.agent_types)?;
    let view = call.view(&bounds::workspace(request.cwd, request.workspace_digest)?)?;
    // An invalid template cannot be spawned, so it is not a routing target.
    let candidates: Vec<Candidate<'_>> = view
        .catalog
        .agent_types()
        .filter(|entry| only.is_empty() || describe::is_one_of(&entry.file.name, &only))
        .filter_map(|entry| {
            let template = entry.template().ok()?;
            Some(Candidate {
                name: entry.file.name.as_str(),
                keywords: &template.keywords,
            })
        })
        .collect();
    let question = Question {
        text: &text,
        explicit: explicit.as_deref(),
        auto_route: call.auto_route || request.auto_route,
    };
    let routed = route::route(&candidates, question);
    let scores = routed.scores.into_iter().take(MAX_SCORES).map(|score| RouteScore {
        agent_type: score.agent_type,
        score: score.points,
        keywords: score.keywords,
    });
    Ok(RouteAgentResponse {
        agent_type: routed.agent_type.unwrap_or_default(),
        reason: routed.reason,
        // The length of keywords is not limited, so the scores could exceed the message size limit.
        scores: page::within_bound(PAGE_BYTES, scores),
    })
}
