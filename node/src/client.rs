//! The verbs that ask a running node over HTTP.

use crate::cli::{ClientArgs, StatusArgs, TokenArgs, WhyMissArgs};
use crate::fault::Fault;
use crate::files::{read_text, write_secret};
use crate::print::print;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

async fn call(args: &ClientArgs, path: &str, body: Option<Value>) -> Result<Value, Fault> {
    let url = format!("{}{path}", args.node.trim_end_matches('/'));
    let client = load::client::plain_http()
        .timeout(Duration::from_secs(10))
        .build()
        .map_err(|error| Fault::new(error, "check the URL given with --node"))?;
    let mut request = match &body {
        Some(body) => client.post(&url).json(body),
        None => client.get(&url),
    };
    if let Some(file) = &args.admin_key_file {
        let key = read_text(file).map_err(|error| {
            Fault::new(format!("cannot read {}: {error}", file.display()), "check --admin-key-file")
        })?;
        request = request.bearer_auth(key.trim());
    }
    let answer = request.send().await.map_err(|_| {
        Fault::new(
            format!("no node answers at {}", args.node),
            "start one with `dynamo-node start`, or name another with --node http://ADDR:PORT",
        )
    })?;
    let status = answer.status();
    let value: Value = answer.json().await.map_err(|_| {
        Fault::new(
            format!("{url} answered {status} with something that is not a dynamo-node's answer"),
            "check that --node names the HTTP listener of a node",
        )
    })?;
    if status.is_success() {
        return Ok(value);
    }
    let message = value["error"]["message"].as_str().unwrap_or("refused").to_owned();
    Err(Fault::new(message, "see the message; `dynamo-node status` shows the cluster"))
}

/// One node's line of the table.
fn row(node: &Value, is_self: bool) -> String {
    let text = |key: &str| node[key].as_str().unwrap_or("?").to_owned();
    // Values of JSON themselves heed no width.
    let number = |value: &Value| value.to_string();
    let engines: Vec<String> = node["engines"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|engine| {
            let (model, load) = (engine["model"].as_str().unwrap_or("?"), &engine["load"]);
            format!("{model} ({} running, {} waiting)", load["running"], load["waiting"])
        })
        .collect();
    format!(
        "{:<10} {:<9} {:<28} {:>7} {:>8} {:>8} {:>8}  {}",
        text("id").chars().take(8).collect::<String>() + if is_self { "*" } else { "" },
        text("state"),
        text("http"),
        number(&node["incarnation"]),
        number(&node["blocks"]["gpu"]),
        number(&node["blocks"]["dram"]),
        number(&node["blocks"]["nvme"]),
        if engines.is_empty() { "none".to_owned() } else { engines.join(", ") },
    )
}

/// `dynamo-node status`
pub(crate) async fn status(args: &StatusArgs) -> Result<(), Fault> {
    let status = call(&args.client, "/admin/v1/status", None).await?;
    if args.json {
        print(format_args!("{status:#}"));
        return Ok(());
    }
    print(format_args!("cluster {}", status["cluster"].as_str().unwrap_or("?")));
    print(format_args!(
        "{:<10} {:<9} {:<28} {:>7} {:>8} {:>8} {:>8}  engines",
        "node", "state", "http", "life", "engine", "dram", "nvme"
    ));
    for node in status["nodes"].as_array().into_iter().flatten() {
        print(row(node, node["id"] == status["self"]));
    }
    print(format_args!(
        "index: {} entries, {} bytes",
        status["index"]["entries"], status["index"]["bytes"]
    ));
    if let Some(kinds) = status["records"]["kinds"].as_object() {
        let some = kinds.iter().filter(|(_, held)| held["records"] != 0 || held["deletions"] != 0);
        let kinds = some
            .map(|(kind, held)| format!("; {kind}: {}, {} bytes", held["records"], held["bytes"]));
        let held = &status["records"];
        print(format_args!(
            "records here: {} ({} bytes, {} deletions){}",
            held["records"],
            held["bytes"],
            held["deletions"],
            kinds.collect::<String>()
        ));
    }
    let nvme = &status["nvme"];
    if let Some(state) = nvme["state"].as_str() {
        let why = nvme["reason"].as_str().map_or(String::new(), |why| format!(": {why}"));
        print(format_args!(
            "nvme here: {state}{why}, {} I/O, {} of {} slots, {} bytes",
            nvme["io"].as_str().unwrap_or("?"),
            nvme["blocks"],
            nvme["slots"],
            nvme["bytes"],
        ));
    }
    Ok(())
}

/// `dynamo-node ticket`
pub(crate) async fn ticket(args: &ClientArgs) -> Result<(), Fault> {
    let answer = call(args, "/admin/v1/ticket", None).await?;
    print(format_args!("{}", answer["ticket"].as_str().unwrap_or_default()));
    Ok(())
}

/// `dynamo-node token`
pub(crate) async fn token(args: &TokenArgs) -> Result<(), Fault> {
    let body = json!({ "hours": args.hours, "uses": args.uses, "issuer": args.issuer });
    let answer = call(&args.client, "/admin/v1/token", Some(body)).await?;
    write_secret(&args.out, answer["token"].as_str().unwrap_or_default(), false)?;
    print(format_args!("token written to {}", args.out.display()));
    Ok(())
}

/// `dynamo-node leave`
pub(crate) async fn leave(args: &ClientArgs) -> Result<(), Fault> {
    call(args, "/admin/v1/leave", Some(json!({}))).await?;
    print(format_args!("leaving"));
    Ok(())
}

/// `dynamo-node route explain`
pub(crate) async fn explain(args: &ClientArgs, file: &Path, as_json: bool) -> Result<(), Fault> {
    let read = |message: String| Fault::usage(message, "REQUEST.json is a chat or messages body");
    let text = read_text(file)
        .map_err(|error| read(format!("cannot read {}: {error}", file.display())))?;
    let body: Value = serde_json::from_str(&text)
        .map_err(|error| read(format!("{} is not JSON: {error}", file.display())))?;
    let answer = call(args, "/admin/v1/route/explain", Some(body)).await?;
    if as_json {
        print(format_args!("{answer:#}"));
    } else {
        print(format_args!("{}", answer["text"].as_str().unwrap_or_default()));
    }
    Ok(())
}

/// `dynamo-node why-miss`
pub(crate) async fn why_miss(args: WhyMissArgs) -> Result<(), Fault> {
    let plain = args.request.bytes().all(|byte| byte.is_ascii_hexdigit());
    if args.request.is_empty() || !plain {
        return Err(Fault::usage(
            format!("{:?} is not the id of a request", args.request),
            "give the hexadecimal digits of the header x-request-id of its answer",
        ));
    }
    let client = ClientArgs { node: args.node, admin_key_file: args.api_key_file };
    let path = format!("/v1/requests/{}/why-miss", args.request);
    let answer = call(&client, &path, None).await?;
    if args.json {
        print(format_args!("{answer:#}"));
        return Ok(());
    }
    print(format_args!("{}", answer["verdict"].as_str().unwrap_or_default()));
    let parting = &answer["first_divergence"];
    if parting.is_object() {
        print(format_args!("  after  {}", parting["before"]));
        print(format_args!("  comes  {}", parting["after"]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_their_names() {
        let node = json!({
            "id": "0123456789", "state": "alive", "http": "http://127.0.0.1:8000", "incarnation": 1,
            "blocks": {"gpu": 20, "dram": 300, "nvme": 4000}, "engines": [],
        });
        assert_eq!(
            row(&node, true),
            "01234567*  alive     http://127.0.0.1:8000              1       20      300     4000  none"
        );
    }
}
