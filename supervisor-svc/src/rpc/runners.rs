//! ListRunners: the runners that the supervisor knows.

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page, service::SupervisorService};

pub(super) async fn list_runners(
    service: &SupervisorService,
    request: Request<pb::ListRunnersRequest>,
) -> Result<pb::ListRunnersResponse, Status> {
    let (call, mut request) = Call::open(request)?;
    let page: Page<String> = Page::of(&mut request, &call.scope)?;
    let runners = service.runners.list().into_iter();
    let entries = runners.map(|runner| (runner.runner_id.clone(), runner));
    let (runners, next_page_token) = page.cut(entries, |runner| runner, None);
    Ok(pb::ListRunnersResponse {
        runners,
        next_page_token,
    })
}
