use super::*;
use axum::http::Method;
use std::collections::BTreeSet;

/// All operations: path, method, description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((path.clone(), method.clone(), operation.clone()));
        }
    }
    all
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let described: BTreeSet<String> =
        operations(&document(1)).into_iter().map(|(path, ..)| path).collect();
    let routes = super::super::routes().into_iter().map(|(path, _)| path.replace("{*", "{"));
    assert_eq!(described, routes.collect());
}

#[tokio::test]
async fn each_route_takes_the_methods_that_are_described() {
    use tower::ServiceExt;
    let document = document(1);
    let described: BTreeSet<(String, String)> =
        operations(&document).into_iter().map(|(path, method, _)| (path, method)).collect();
    for pattern in document["paths"].as_object().unwrap().keys() {
        let path = pattern.replace("{id}", "tiny");
        for tried in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let router = crate::server::router(
                std::sync::Arc::new(crate::testing::Nobody),
                std::sync::Arc::new(crate::Keys::open()),
                crate::Limits::default(),
            );
            let request = axum::http::Request::builder().method(&tried).uri(&path);
            let request = request.body(axum::body::Body::empty()).unwrap();
            let status = router.oneshot(request).await.unwrap().status();
            let method = (pattern.clone(), tried.as_str().to_lowercase());
            assert_eq!(status != 405, described.contains(&method), "{tried} {path}: {status}");
        }
    }
}

/// All references within a value.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_holds_together() {
    let document = document(4321);
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["description"].as_str().unwrap().contains("bodies 4321 bytes"));
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let mut ids = BTreeSet::new();
    for (path, _, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id), "{path}: operation ids differ");
        assert!(operation["responses"]["200"]["description"].is_string(), "{path}");
        let parameters = operation["parameters"].as_array().map_or(0, Vec::len);
        assert_eq!(parameters, path.matches('{').count(), "{path}: its parameters are described");
    }
}
