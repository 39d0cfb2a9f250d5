//! Answers as models of each format write them.

use crate::format::Format;
use serde_json::{Map, Value};

/// A call as it is meant.
pub(super) type Meant = (&'static str, Map<String, Value>);

/// What a model means to say.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) reasoning: String,
    pub(super) text: String,
    pub(super) calls: Vec<Meant>,
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn python(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Null => "None".into(),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(python).collect();
            format!("[{}]", list.join(", "))
        }
        Value::String(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
        }
        other => other.to_string(),
    }
}

fn python_call((name, arguments): &Meant) -> String {
    let arguments: Vec<String> =
        arguments.iter().map(|(key, value)| format!("{key}={}", python(value))).collect();
    format!("{name}({})", arguments.join(", "))
}

/// Writes the answer as a model of the format does.
pub(super) fn written(format: Format, answer: &Answer) -> String {
    let Answer { reasoning, text, calls } = answer;
    let arguments = |call: &Meant| Value::Object(call.1.clone()).to_string();
    let each = |write: &dyn Fn(&Meant) -> String| -> String { calls.iter().map(write).collect() };
    let pairs = |call: &Meant, write: &dyn Fn(&str, String) -> String| {
        call.1.iter().map(|(key, value)| write(key, plain(value))).collect::<String>()
    };
    let thought = |open: &str, close: &str| match reasoning.as_str() {
        "" => String::new(),
        reasoning => format!("{open}{reasoning}{close}"),
    };
    let think = thought("<think>\n", "\n</think>\n\n");
    let object = |call: &Meant, key: &str| {
        format!(r#"{{"name": "{}", "{key}": {}}}"#, call.0, arguments(call))
    };
    let list = |key: &str| {
        let calls: Vec<String> = calls.iter().map(|call| object(call, key)).collect();
        format!("[{}]", calls.join(", "))
    };
    let none = calls.is_empty();
    match format {
        Format::Hermes => {
            think
                + text
                + &each(&|call| {
                    format!("\n<tool_call>\n{}\n</tool_call>", object(call, "arguments"))
                })
        }
        Format::QwenCoder => {
            think
                + text
                + &each(&|call| {
                    let pairs = pairs(call, &|key, value| {
                        format!("<parameter={key}>\n{value}\n</parameter>\n")
                    });
                    format!(
                        "\n<tool_call>\n<function={}>\n{pairs}</function>\n</tool_call>",
                        call.0
                    )
                })
        }
        Format::Glm => {
            think
                + text
                + &each(&|call| {
                    let pairs = pairs(call, &|key, value| {
                        format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
                    });
                    format!("\n<tool_call>{}\n{pairs}</tool_call>", call.0)
                })
        }
        Format::MiniMax if none => think + text,
        Format::MiniMax => {
            let calls = each(&|call| {
                let pairs = pairs(call, &|key, value| {
                    format!("<parameter name=\"{key}\">{value}</parameter>\n")
                });
                format!("<invoke name=\"{}\">\n{pairs}</invoke>\n", call.0)
            });
            format!("{think}{text}\n<minimax:tool_call>\n{calls}</minimax:tool_call>")
        }
        Format::Kimi if none => think + text,
        Format::Kimi => {
            let calls = each(&|call| {
                let id = format!("functions.{}:0", call.0);
                let arguments = arguments(call);
                format!(
                    "<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
                )
            });
            format!("{think}{text}<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
        }
        Format::DeepSeek if none => think + text,
        Format::DeepSeek => {
            // Both forms, the older and the newer.
            let calls = each(&|call| match call.0 {
                "w" => format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n{}\n```<｜tool▁call▁end｜>\n",
                    arguments(call)
                ),
                name => format!(
                    "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    arguments(call)
                ),
            });
            format!("{think}{text}<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        }
        Format::Mistral => {
            let think = thought("[THINK]", "[/THINK]");
            match calls.len() {
                0 => think + text,
                2 => format!("{think}{text}[TOOL_CALLS] {}", list("arguments")),
                _ => {
                    think
                        + text
                        + &each(&|call| format!("[TOOL_CALLS]{}[ARGS]{}", call.0, arguments(call)))
                }
            }
        }
        Format::Granite if none => think + &format!("<response>{text}</response>"),
        Format::Granite => {
            let think = thought("Here is my thought process: ", "\n\nHere is my response: ");
            format!("{think}{text}<|tool_call|>{}", list("arguments"))
        }
        Format::Llama if none => think + text,
        // Four ways; only one may follow text.
        Format::Llama => match (text.is_empty(), calls.len()) {
            (false, _) => {
                let calls: Vec<String> =
                    calls.iter().map(|call| object(call, "parameters")).collect();
                format!("{think}{text}<|python_tag|>{}", calls.join("; "))
            }
            (true, 1) => format!("{think}\n{}", object(&calls[0], "parameters")),
            (true, 2) => {
                let calls: Vec<String> = calls.iter().map(python_call).collect();
                format!("{think}[{}]", calls.join(", "))
            }
            (true, _) => {
                let calls: Vec<String> = calls.iter().map(python_call).collect();
                format!("{think}<|python_start|>[{}]<|python_end|>", calls.join(", "))
            }
        },
        Format::Harmony => {
            let message = |channel: &str, text: &str| match text {
                "" => String::new(),
                text => format!("<|channel|>{channel}<|message|>{text}<|end|><|start|>assistant"),
            };
            let head = message("analysis", reasoning);
            if none {
                return format!("{head}<|channel|>final<|message|>{text}<|return|>");
            }
            let calls = each(&|call| match call.0 {
                "w" => format!(
                    "<|channel|>commentary to=functions.w <|constrain|>json<|message|>{}<|call|>\
                     <|start|>assistant",
                    arguments(call)
                ),
                name => format!(
                    " to=functions.{name}<|channel|>commentary json<|message|>{}<|call|><|start|>assistant",
                    arguments(call)
                ),
            });
            head + &message("commentary", text) + &calls
        }
    }
}
