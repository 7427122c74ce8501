//! Converts the responses of `turnstream::ui` to axum's.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::Stream;

/// The body of a response of `turnstream::ui`.
pub(crate) trait ToBody {
    fn to_body(self) -> Body;
}

impl ToBody for String {
    fn to_body(self) -> Body {
        self.into()
    }
}

impl<S, E> ToBody for turnstream::ui::ResponseBody<S, E>
where
    Self: Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    fn to_body(self) -> Body {
        Body::from_stream(self)
    }
}

/// Converts a response of `turnstream::ui`.
pub(crate) fn to_axum<B: ToBody>(response: turnstream::ui::Response<B>) -> Response {
    let builder = Response::builder().status(response.status);
    let builder = response
        .headers
        .into_iter()
        .fold(builder, |builder, (name, value)| builder.header(name, value));
    let built = builder.body(response.body.to_body());
    built.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
