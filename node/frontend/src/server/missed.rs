//! `/v1/requests/{id}/why-miss`: why a prompt was not cached as far as one would expect.

use super::kept::{Id, named};
use super::{App, finish, json_response};
use crate::error::{ApiError, Dialect, Kind};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::id::RequestId;
use std::sync::Arc;

/// Answers for requests of the caller's tenant that came through this node.
pub(super) async fn why(State(app): State<Arc<App>>, id: Id, headers: HeaderMap) -> Response {
    let (request, id) = (app.request(), named(id));
    let known = app.keys.admit(&headers).and_then(|tenant| {
        let digits = u128::from_str_radix(&id, 16).ok();
        let miss = digits.and_then(|digits| app.misses.of(&tenant.id, &RequestId(digits)));
        miss.map(|miss| miss.to_json()).ok_or_else(|| {
            let message = format!(
                "nothing is known of a request `{id}`: ask the node it was sent to, within the hour, \
                 for the id that the header x-request-id gave"
            );
            ApiError { param: Some("id".into()), ..ApiError::new(Kind::NotFound, message) }
        })
    });
    let response = match known {
        Ok(value) => json_response(&value),
        Err(error) => error.response(Dialect::OpenAi, &request.to_string()),
    };
    finish(&request, response)
}
