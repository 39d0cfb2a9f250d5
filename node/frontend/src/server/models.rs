//! `/v1/models` in the shape of the dialect that asks.

use super::{App, dialect_of, finish, json_response};
use crate::cluster::ServedModel;
use crate::error::{ApiError, Dialect};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use model::Date;
use serde_json::{Value, json};
use std::sync::Arc;

/// A model by its name or an alias.
pub(super) fn find<'a>(models: &'a [ServedModel], name: &str) -> Option<&'a ServedModel> {
    let named = models.iter().find(|m| m.name == name);
    named.or_else(|| models.iter().find(|m| m.aliases.iter().any(|alias| alias == name)))
}

pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let dialect = dialect_of(&uri, &headers);
    if let Err(error) = app.keys.admit(&headers) {
        let id = app.request();
        return finish(&id, error.response(dialect, &id.to_string()));
    }
    let models = app.cluster.models();
    let data: Vec<Value> = models.iter().map(|model| entry(model, dialect)).collect();
    let list = match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": data }),
        Dialect::Anthropic => json!({
            "data": data,
            "has_more": false,
            "first_id": models.first().map(|m| m.name.as_str()),
            "last_id": models.last().map(|m| m.name.as_str()),
        }),
    };
    finish(&app.request(), json_response(&list))
}

pub(super) async fn one(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let dialect = dialect_of(&uri, &headers);
    let models = app.cluster.models();
    let request = app.request();
    if let Err(error) = app.keys.admit(&headers) {
        return finish(&request, error.response(dialect, &request.to_string()));
    }
    // What is not UTF-8 names no model.
    let id = id.map_or_else(|_| uri.path().to_owned(), |Path(id)| id);
    let response = match find(&models, &id) {
        Some(model) => json_response(&entry(model, dialect)),
        None => {
            let names: Vec<String> = models.iter().map(|m| m.name.clone()).collect();
            ApiError::no_model(&id, &names).response(dialect, &request.to_string())
        }
    };
    finish(&request, response)
}

fn entry(model: &ServedModel, dialect: Dialect) -> Value {
    match dialect {
        Dialect::OpenAi => json!({
            "id": model.name,
            "object": "model",
            "created": model.created,
            "owned_by": "dynamo-node",
            "max_model_len": model.context,
        }),
        Dialect::Anthropic => json!({
            "type": "model",
            "id": model.name,
            "display_name": model.name,
            "created_at": utc(model.created),
            "max_input_tokens": model.context,
        }),
    }
}

/// Seconds since the Unix epoch as `2026-11-29T12:00:00Z`.
fn utc(seconds: u64) -> String {
    let Date { year, month, day } = Date::of_unix(seconds);
    let rest = seconds % 86_400;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests;
