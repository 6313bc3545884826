//! ListRunners: the runners that the supervisor knows.

use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page};

pub(super) async fn list_runners(
    call: Call<'_>,
    mut request: pb::ListRunnersRequest,
) -> Result<pb::ListRunnersResponse, Status> {
    let page: Page<String> = Page::of(&mut request, &call.scope)?;
    let runners = call.service.runners.list().into_iter();
    let entries = runners.map(|runner| (runner.runner_id.clone(), runner));
    let (runners, next_page_token) = page.cut(entries, |runner| runner, None);
    Ok(pb::ListRunnersResponse {
        runners,
        next_page_token,
    })
}
