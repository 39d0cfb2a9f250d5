//! `/v1/responses/{id}`: kept responses.

use super::{App, finish, json_response};
use crate::error::{ApiError, Dialect, Kind};
use crate::responses::record::Record;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Most items of one page, and how many there are unless said otherwise.
const PAGE: (usize, usize) = (100, 20);

/// How a page of items is asked for.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Page {
    limit: Option<usize>,
    order: Option<String>,
    after: Option<String>,
}

/// What reading may be asked to do, and cannot.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Reading {
    stream: Option<bool>,
}

/// The id in a path.
pub(super) type Id = Result<Path<String>, PathRejection>;

/// What is not UTF-8 names nothing.
pub(super) fn named(id: Id) -> String {
    id.map(|Path(id)| id).unwrap_or_default()
}

/// The response object.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    id: Id,
    reading: Result<Query<Reading>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        if query(reading)?.stream == Some(true) {
            let why = "a kept response is not told again as a stream";
            return Err(ApiError::field("stream", why));
        }
        Ok(app.record(&headers, &named(id)).await?.response.clone())
    };
    respond(&app, found.await)
}

/// Its input items, latest first unless said otherwise.
pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    id: Id,
    page: Result<Query<Page>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let page = query(page)?;
        list(&app.record(&headers, &named(id)).await?.input, &page)
    };
    respond(&app, found.await)
}

pub(super) async fn delete(State(app): State<Arc<App>>, id: Id, headers: HeaderMap) -> Response {
    let id = named(id);
    let gone = async {
        let keeper = app.keeper(&app.keys.admit(&headers)?.id);
        match keeper.forget(&id).await? {
            true => Ok(json!({ "id": id, "object": "response", "deleted": true })),
            false => Err(unknown(&id)),
        }
    };
    respond(&app, gone.await)
}

fn respond(app: &App, answer: Result<Value, ApiError>) -> Response {
    let request = app.request();
    let response = match answer {
        Ok(value) => json_response(&value),
        Err(error) => error.response(Dialect::OpenAi, &request.to_string()),
    };
    finish(&request, response)
}

impl App {
    async fn record(&self, headers: &HeaderMap, id: &str) -> Result<Arc<Record>, ApiError> {
        let tenant = self.keys.admit(headers)?;
        self.keeper(&tenant.id).recall(id).await?.ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> ApiError {
    let message =
        format!("no response `{id}` is kept here: it has expired, was deleted, or was not stored");
    ApiError { param: Some("id".into()), ..ApiError::new(Kind::NotFound, message) }
}

fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| {
        let text = error.body_text();
        let why = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, why)| why);
        match why.split_once(": ") {
            Some((name, why)) if !name.contains(' ') => ApiError::field(name, why),
            _ => ApiError::invalid(text),
        }
    })
}

fn list(items: &[Value], page: &Page) -> Result<Value, ApiError> {
    let (most, usual) = PAGE;
    let limit = page.limit.unwrap_or(usual);
    if !(1..=most).contains(&limit) {
        return Err(ApiError::field("limit", format_args!("must be between 1 and {most}")));
    }
    let mut items: Vec<&Value> = items.iter().collect();
    match page.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::field("order", "one of asc, desc")),
    }
    if let Some(after) = &page.after {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at = at.ok_or_else(|| ApiError::field("after", "no input item has this id"))?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    Ok(json!({
        "object": "list",
        "data": items,
        "has_more": has_more,
        "first_id": id(items.first()),
        "last_id": id(items.last()),
    }))
}
