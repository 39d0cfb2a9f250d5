//! Tools as Responses knows them: functions, functions in namespaces, and tools that take free text.

use crate::ask;
use crate::content::CacheControl;
use crate::error::ApiError;
use crate::json;
use crate::limits::{self, TOOL_NAME_MAX, TOOLS_MAX, ToolNames};
use crate::text_format::Strict;
use model::Message;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How a tool that the prompt shows is called in the dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// As the prompt shows it.
    shown: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// It takes one text instead of an object.
    pub(super) takes_text: bool,
}

impl Known {
    /// A function of this name in no namespace.
    pub(super) fn plain(name: String) -> Self {
        Self { shown: name.clone(), name, namespace: None, takes_text: false }
    }
}

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolTable {
    known: Vec<Known>,
    /// Names of tools outside of namespaces.
    plain: BTreeSet<String>,
    strict: Vec<Strict>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
    /// Chat Completions nests a function here; some clients send that.
    function: Option<Function>,
    tools: Option<Vec<Value>>,
    cache_control: Option<CacheControl>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

/// The one argument of a tool that takes free text.
pub(super) const TEXT_ARGUMENT: &str = "input";

impl ToolTable {
    /// Reads the tools into what the prompt shows; a pin on one comes back too.
    pub(super) fn read(
        tools: &[Value],
    ) -> Result<(Self, Vec<Message>, Option<CacheControl>), ApiError> {
        let mut table = Self::default();
        let (mut shown, mut pin) = (Vec::new(), None);
        limits::at_most("tools", "tools", tools.len(), TOOLS_MAX)?;
        let mut names = ToolNames::new(TOOL_NAME_MAX);
        // Tools outside of namespaces keep their names, wherever they stand.
        table.plain = tools
            .iter()
            .filter(|tool| tool["type"] != "namespace")
            .filter_map(|tool| tool.pointer("/function/name").or(tool.get("name"))?.as_str())
            .map(str::to_owned)
            .collect();
        for (i, tool) in tools.iter().enumerate() {
            let at = format!("tools[{i}]");
            table.add(tool, None, &at, &mut names, &mut shown, &mut pin)?;
        }
        Ok((table, shown, pin))
    }

    fn add(
        &mut self,
        tool: &Value,
        namespace: Option<&str>,
        at: &str,
        names: &mut ToolNames,
        shown: &mut Vec<Message>,
        pin: &mut Option<CacheControl>,
    ) -> Result<(), ApiError> {
        let missing = |field: &str| ApiError::field(&format!("{at}.{field}"), "missing field");
        let mut tool: Tool = json::typed(at, tool.clone())?;
        if let Some(control) = tool.cache_control.take() {
            *pin = Some(control);
        }
        let name_at = match tool.function.is_some() {
            true => format!("{at}.function.name"),
            false => format!("{at}.name"),
        };
        if let Some(function) = tool.function.take() {
            tool.name = Some(function.name);
            tool.description = function.description;
            tool.parameters = function.parameters;
            tool.strict = function.strict;
        }
        let takes_text = match tool.kind.as_deref() {
            Some("function") => false,
            Some("custom") => true,
            Some("namespace") if namespace.is_none() => {
                let name = tool.name.ok_or_else(|| missing("name"))?;
                for (i, inner) in tool.tools.unwrap_or_default().iter().enumerate() {
                    let at = format!("{at}.tools[{i}]");
                    self.add(inner, Some(&name), &at, names, shown, pin)?;
                }
                return Ok(());
            }
            // Tools that the provider's own servers run: there are none here.
            Some(_) => return Ok(()),
            None => return Err(missing("type")),
        };
        let name = tool.name.ok_or_else(|| missing("name"))?;
        names.form(&name, &name_at)?;
        names.once(&name, &format!("{}.{name}", namespace.unwrap_or_default()), &name_at)?;
        // Equal names of two namespaces are told apart by the namespace.
        let taken =
            self.plain.contains(&name) || self.known.iter().any(|known| known.shown == name);
        let shown_name = match namespace {
            Some(namespace) if taken => format!("{namespace}__{name}"),
            _ => name.clone(),
        };
        limits::at_most("tools", "tools", shown.len() + 1, TOOLS_MAX)?;
        limits::schema(&format!("{at}.parameters"), tool.parameters.as_ref())?;
        let parameters = match takes_text {
            true => Some(json!({
                "type": "object",
                "properties": { TEXT_ARGUMENT: { "type": "string" } },
                "required": [TEXT_ARGUMENT],
            })),
            false => tool.parameters,
        };
        if tool.strict == Some(true) && !takes_text {
            let at = format!("{at}.parameters");
            self.strict.push(Strict { tool: shown_name.clone(), at });
        }
        shown.push(ask::tool(shown_name.clone(), tool.description, parameters));
        let namespace = namespace.map(str::to_owned);
        self.known.push(Known { shown: shown_name, name, namespace, takes_text });
        Ok(())
    }

    /// The strict ones, by their names in the prompt.
    pub(super) fn take_strict(&mut self) -> Vec<Strict> {
        std::mem::take(&mut self.strict)
    }

    /// The tool behind a name of the prompt.
    pub(super) fn called(&self, shown: &str) -> Option<&Known> {
        self.known.iter().find(|known| known.shown == shown)
    }

    /// The name in the prompt of a tool of the dialect.
    pub(super) fn shown(&self, namespace: Option<&str>, name: &str) -> String {
        let same = |known: &&Known| known.name == name && known.namespace.as_deref() == namespace;
        self.known.iter().find(same).map_or(name, |known| &known.shown).to_owned()
    }
}

/// Tools as the response object repeats them: what the specification demands is filled in.
pub(super) fn repeated(tools: Vec<Value>) -> Vec<Value> {
    let mut tools = tools;
    for tool in &mut tools {
        if tool["type"] == "function"
            && let Some(tool) = tool.as_object_mut()
        {
            for field in ["description", "parameters", "strict"] {
                tool.entry(field).or_insert(Value::Null);
            }
        }
    }
    tools
}
