//! `/openapi.json`: what this surface is, for programs. It describes our own routes and the fields
//! that this node reads; what else the vendors' APIs know is accepted and left out here.

use super::{App, json_response};
use crate::ask::STOP_BYTES_MAX;
use crate::json::DEPTH_MAX;
use crate::limits::{BLOCKS_MAX, MESSAGES_MAX, SCHEMA_BYTES_MAX, TOOLS_MAX};
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) async fn serve(State(app): State<Arc<App>>) -> Response {
    json_response(&document(app.limits.body_bytes))
}

/// The description; `body_bytes` is the largest body.
pub(super) fn document(body_bytes: usize) -> Value {
    let limits = format!(
        "Limits: bodies {body_bytes} bytes (else 413); {DEPTH_MAX} levels of JSON; {MESSAGES_MAX} \
         messages or input items; {BLOCKS_MAX} content blocks in a message; {TOOLS_MAX} tools; \
         {SCHEMA_BYTES_MAX} bytes in a tool's schema; {STOP_BYTES_MAX} bytes in a stop string. \
         What is over a limit is refused with 400, and the error names the field."
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dynamo-node",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": limits,
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "bearer": [] }, { "x-api-key": [] }],
        "paths": paths(),
        "components": { "schemas": schemas(), "securitySchemes": {
            "bearer": { "type": "http", "scheme": "bearer" },
            "x-api-key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
        } },
    })
}

fn paths() -> Value {
    json!({
        "/": { "get": get("root", "Says that a node is here", text()) },
        "/live": { "get": get("live", "Whether the process runs", text()) },
        "/health": { "get": health() },
        "/openapi.json": { "get": get("openapi", "This description", object()) },
        "/tokenize": { "post": post("tokenize", "Text or a conversation to tokens", "Tokenize", reference("Tokens"), "Error") },
        "/detokenize": { "post": post("detokenize", "Tokens to text", "Detokenize", reference("Text"), "Error") },
        "/v1/models": { "get": get("listModels", "The models that are served", object()) },
        "/v1/models/{id}": { "get": model() },
        "/v1/chat/completions": { "post": streaming(post("chat", "Chat Completions", "Chat", object(), "Error")) },
        "/v1/completions": { "post": streaming(post("completions", "Completions", "Completion", object(), "Error")) },
        "/v1/responses": { "post": streaming(post("responses", "Responses", "Responses", object(), "Error")) },
        "/v1/responses/input_tokens": { "post": post("countResponses", "Length of a prompt of Responses", "Responses", reference("Count"), "Error") },
        "/v1/responses/{id}": {
            "get": kept(get("getResponse", "A kept response", object())),
            "delete": kept(get("deleteResponse", "Forgets a kept response", object())),
        },
        "/v1/responses/{id}/input_items": {
            "get": kept(get("listInputItems", "What a kept response was asked", object())),
        },
        "/v1/requests/{id}/why-miss": { "get": named(
            get("whyMiss", "Why a prompt was not cached further", object()),
            "Nothing is known of such a request here",
        ) },
        "/v1/messages": { "post": streaming(post("messages", "Messages", "Messages", object(), "MessagesError")) },
        "/v1/messages/count_tokens": { "post": post("countMessages", "Length of a prompt of Messages", "Messages", reference("Count"), "MessagesError") },
    })
}

fn object() -> Value {
    json!({ "type": "object" })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(of: &Value, most: usize) -> Value {
    json!({ "type": "array", "items": of, "maxItems": most })
}

fn answer(what: &str, kind: &str, schema: &Value) -> Value {
    json!({ "description": what, "content": { kind: { "schema": schema } } })
}

fn get(id: &str, summary: &str, schema: Value) -> Value {
    let kind = if schema == text() { "text/plain" } else { "application/json" };
    json!({
        "operationId": id, "summary": summary,
        "responses": { "200": answer("The answer", kind, &schema) },
    })
}

fn health() -> Value {
    let mut health = get("health", "Whether a request could be served now", object());
    health["responses"]["503"] = answer("Not now, and why", "application/json", &object());
    health
}

fn model() -> Value {
    let model = get("getModel", "One model, by its name or an alias; may hold slashes", object());
    named(model, "No such model")
}

fn kept(operation: Value) -> Value {
    let mut operation = named(operation, "It is not kept: expired, deleted, or never stored");
    let why = "Those who keep it cannot be reached; see Retry-After";
    operation["responses"]["503"] = answer(why, "application/json", &reference("Error"));
    operation
}

/// An operation on what the path names.
fn named(mut operation: Value, absent: &str) -> Value {
    operation["parameters"] =
        json!([{ "name": "id", "in": "path", "required": true, "schema": text() }]);
    operation["responses"]["404"] = answer(absent, "application/json", &reference("Error"));
    operation
}

fn post(id: &str, summary: &str, request: &str, schema: Value, error: &str) -> Value {
    let refusal = |what| answer(what, "application/json", &reference(error));
    json!({
        "operationId": id, "summary": summary,
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": reference(request) } },
        },
        "responses": {
            "200": answer("The answer", "application/json", &schema),
            "400": refusal("The request is wrong; the error names the field"),
            "401": refusal("No key, or none that is good"),
            "404": refusal("The model is not served"),
            "413": refusal("The body is too large"),
            "429": refusal("The tenant's quota is used up; see Retry-After"),
            "503": refusal("No usable node, or (OpenAI's dialects) no room; see Retry-After"),
            "529": refusal("No room (Messages); see Retry-After"),
        },
    })
}

/// The same with a stream of events as the other form of the answer.
fn streaming(mut operation: Value) -> Value {
    operation["responses"]["200"]["content"]["text/event-stream"] = json!({ "schema": text() });
    operation
}

fn schemas() -> Value {
    let content = json!({ "anyOf": [text(), list(&object(), BLOCKS_MAX)] });
    let message = |roles: &[&str]| {
        json!({
            "type": "object", "required": ["role"],
            "properties": { "role": { "enum": roles }, "content": content },
        })
    };
    let chat_messages = list(
        &message(&["system", "developer", "user", "assistant", "tool", "function"]),
        MESSAGES_MAX,
    );
    let tools = list(&object(), TOOLS_MAX);
    let count = json!({ "type": "integer", "minimum": 1 });
    json!({
        "Chat": body(&["messages"], &[
            ("messages", chat_messages.clone()), ("tools", tools.clone()),
            ("tool_choice", json!({})), ("parallel_tool_calls", json!({ "type": "boolean" })),
            ("max_completion_tokens", count.clone()), ("max_tokens", count.clone()),
            ("stop", json!({ "anyOf": [text(), list(&text(), 4)] })),
            ("stream_options", object()), ("response_format", object()),
        ]),
        "Completion": body(&["prompt"], &[
            ("prompt", json!({ "anyOf": [text(), { "type": "array" }] })),
            ("max_tokens", count.clone()),
            ("stop", json!({ "anyOf": [text(), list(&text(), 4)] })),
            ("stream_options", object()),
        ]),
        "Responses": body(&["input"], &[
            ("input", json!({ "anyOf": [text(), list(&object(), MESSAGES_MAX)] })),
            ("instructions", text()), ("tools", tools.clone()), ("tool_choice", json!({})),
            ("parallel_tool_calls", json!({ "type": "boolean" })),
            ("max_output_tokens", count.clone()), ("include", list(&text(), MESSAGES_MAX)),
            ("reasoning", object()), ("text", object()), ("metadata", object()),
        ]),
        "Messages": body(&["messages"], &[
            ("messages", list(&message(&["user", "assistant", "system"]), MESSAGES_MAX)),
            ("system", content.clone()), ("tools", tools.clone()), ("tool_choice", object()),
            ("max_tokens", count), ("stop_sequences", list(&text(), crate::ask::STOP_MAX)),
            ("thinking", object()), ("output_config", object()),
        ]),
        "Tokenize": {
            "type": "object",
            "properties": {
                "model": text(), "prompt": text(), "messages": chat_messages, "tools": tools,
                "add_special_tokens": { "type": "boolean" },
                "add_generation_prompt": { "type": "boolean" },
                "return_token_strs": { "type": "boolean" },
            },
        },
        "Tokens": {
            "type": "object", "required": ["count", "max_model_len", "tokens"],
            "properties": {
                "count": { "type": "integer" }, "max_model_len": { "type": "integer" },
                "tokens": { "type": "array", "items": { "type": "integer" } },
                "token_strs": { "type": ["array", "null"], "items": text() },
            },
        },
        "Detokenize": {
            "type": "object", "required": ["tokens"],
            "properties": {
                "model": text(), "tokens": { "type": "array", "items": { "type": "integer" } },
            },
        },
        "Text": { "type": "object", "required": ["prompt"], "properties": { "prompt": text() } },
        "Count": {
            "type": "object", "required": ["input_tokens"],
            "properties": { "input_tokens": { "type": "integer" } },
        },
        "Error": {
            "type": "object", "required": ["error"],
            "properties": { "error": {
                "type": "object", "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": text(), "type": text(),
                    "param": { "type": ["string", "null"] }, "code": { "type": ["string", "null"] },
                },
            } },
        },
        "MessagesError": {
            "type": "object", "required": ["type", "error", "request_id"],
            "properties": {
                "type": { "const": "error" }, "request_id": text(),
                "error": {
                    "type": "object", "required": ["type", "message"],
                    "properties": { "type": text(), "message": text() },
                },
            },
        },
    })
}

/// A request body: its own fields and those of all dialects.
fn body(required: &[&str], fields: &[(&str, Value)]) -> Value {
    let mut properties = Map::new();
    properties.extend(fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
    let number = |low: f64, high: f64| json!({ "type": "number", "minimum": low, "maximum": high });
    for (name, schema) in [
        (
            "model",
            json!({ "type": "string", "description": "May be left out where one is served" }),
        ),
        ("stream", json!({ "type": "boolean" })),
        ("temperature", number(0.0, 2.0)),
        ("top_p", number(0.0, 1.0)),
        ("top_k", json!({ "type": "integer", "minimum": -1 })),
        ("min_p", number(0.0, 1.0)),
        ("seed", json!({ "type": "integer" })),
        ("nvext", object()),
    ] {
        properties.insert(name.into(), schema);
    }
    json!({ "type": "object", "required": required, "properties": properties })
}

#[cfg(test)]
mod tests;
