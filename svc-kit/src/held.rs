//! Answers that keep something until they are sent: the head of an answer is ready long before its client has read the
//! rest of it, and all the while it takes memory.

use http_body_util::BodyExt as _;
use tonic::body::Body;

/// The same answer, which keeps `kept` until its body was sent or is given up.
#[must_use]
pub fn hold<T: Send + 'static>(answer: http::Response<Body>, kept: T) -> http::Response<Body> {
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            // That the closure names it is what keeps it.
            let _ = &kept;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::Full;
    use prost::bytes::Bytes;
    use tonic::Status;

    use super::*;

    #[tokio::test]
    async fn what_an_answer_keeps_goes_with_its_body() {
        let kept = Arc::new(());
        let answer = |text: &'static str| {
            let body = Body::new(Full::new(Bytes::from(text)));
            hold(http::Response::new(body), Arc::clone(&kept))
        };
        let read = answer("x");
        assert_eq!(Arc::strong_count(&kept), 2);
        assert_eq!(read.into_body().collect().await.unwrap().to_bytes(), "x");
        assert_eq!(Arc::strong_count(&kept), 1);
        let given_up = answer("x");
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(given_up);
        assert_eq!(Arc::strong_count(&kept), 1);
        // There is nothing to be read of a refusal.
        drop(hold(Status::aborted("x").into_http(), Arc::clone(&kept)));
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
