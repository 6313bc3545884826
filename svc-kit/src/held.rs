//! Responses that hold a resource until they are sent. The head of a response is ready long before the client has read
//! the body, which occupies memory until then.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

/// Returns the response with `resource` attached until the body is sent or dropped, at most for the given time: a
/// client that does not read must not occupy the resource forever.
#[must_use]
pub fn hold<T: Send + 'static>(answer: http::Response<Body>, resource: T, at_most: Duration) -> http::Response<Body> {
    let keeper = AbortOnDropHandle::new(tokio::spawn(async move {
        sleep(at_most).await;
        drop(resource);
    }));
    keep(answer, keeper)
}

/// Returns the response with `resource` attached until its body is sent or dropped.
pub(crate) fn keep<T: Send + 'static>(answer: http::Response<Body>, resource: T) -> http::Response<Body> {
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            // The closure owns `resource` because the closure's code names it.
            let _ = &resource;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::Full;
    use prost::bytes::Bytes;
    use tokio::{task::yield_now, time::advance};
    use tonic::Status;

    use super::*;

    const AT_MOST: Duration = Duration::from_secs(60);

    async fn is_free(resource: &Arc<()>) {
        while Arc::strong_count(resource) > 1 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resource_is_released_with_body_or_at_timeout() {
        let resource = Arc::new(());
        let answer = |text: &'static str| {
            let body = Body::new(Full::new(Bytes::from(text)));
            hold(http::Response::new(body), Arc::clone(&resource), AT_MOST)
        };
        let read = answer("x");
        assert_eq!(Arc::strong_count(&resource), 2);
        assert_eq!(read.into_body().collect().await.unwrap().to_bytes(), "x");
        is_free(&resource).await;
        drop(answer("x"));
        is_free(&resource).await;
        // A rejection has no body to read.
        drop(hold(Status::aborted("x").into_http(), Arc::clone(&resource), AT_MOST));
        is_free(&resource).await;

        let unread = answer("x");
        yield_now().await;
        advance(AT_MOST - Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&resource), 2);
        advance(Duration::from_secs(2)).await;
        is_free(&resource).await;
        drop(unread);
    }
}
