//! From what a request demands of its answer to a constraint that can be enforced.
//!
//! Reasoning stays free: the form begins behind it, as with the vendors. Only a demanded call closes
//! reasoning first, because the prompt begins the call.
//!
//! What a client demands explicitly fails closed: a format, and a demanded call of a tool that is
//! `strict`, are enforced or the request is refused. The arguments of other demanded calls are any
//! object where their schema cannot be enforced, and calls that are not demanded are free.

use crate::ask::{Ask, ToolChoice};
use crate::cluster::ServedModel;
use crate::error::ApiError;
use crate::format::Format;
use crate::markup::{Opening, scan};
use crate::text_format::Strict;
use model::Message;
use model::{GrammarError, Grammars};
use protocol::constraint::{CallShape, Callable, Calls, Constraint, Form, Lead, Schema, TextForm};
use serde_json::Value;

/// The constraint on the answer behind a prompt that ends in `text` and `opening`; `shown` are the
/// tools that the prompt shows.
pub(crate) fn of(
    ask: &Ask,
    shown: &[Message],
    served: &ServedModel,
    text: &str,
    opening: &Opening,
) -> Option<Constraint> {
    let format = ask.format.as_ref().map(|format| format.form.clone());
    let form = match (opening, format) {
        (Opening::Plain, _) => return None,
        (Opening::Call(begun), _) => Form::Calls(demanded(ask, shown, begun)),
        (_, None) => return None,
        // Calls that the model begins itself are known in Hermes' form only.
        (_, Some(form)) if shown.is_empty() || served.format != Format::Hermes => Form::Text(form),
        (_, Some(form)) => Form::TextOrCalls(form, calls(ask, shown, String::new(), |_| None)),
    };
    let lead = match opening {
        Opening::Thinking => served.format.thinks_at_end_of(text).map(|closes| (None, closes)),
        Opening::Free => may_think(served, text).map(|(opens, closes)| (Some(opens), closes)),
        _ => None,
    };
    let lead = match lead {
        None => Lead::None,
        Some((None, closes)) => Lead::Through(closes.into()),
        Some((Some(opens), closes)) => Lead::Maybe { opens: opens.into(), closes: closes.into() },
    };
    Some(Constraint { lead, form })
}

/// The marks of reasoning that the model may begin with: its vocabulary has them, and the prompt has
/// not closed them already.
fn may_think(served: &ServedModel, text: &str) -> Option<(&'static str, &'static str)> {
    let pairs = served.format.tags()?.reasoning;
    let (opens, closes) =
        pairs.iter().find(|(opens, _)| served.model.tokenizer().token(opens).is_some())?;
    (!text.trim_end().ends_with(closes)).then_some((opens, closes))
}

fn demanded(ask: &Ask, shown: &[Message], begun: &str) -> Calls {
    let strict = |name: &str| ask.strict.iter().any(|strict| strict.tool == name);
    let parameters = |function: &Value| {
        let name = function["name"].as_str().unwrap_or_default();
        Some(Schema { text: function["parameters"].to_string(), exact: strict(name) })
    };
    let begun = format!("{}\n{begun}", scan::OPEN);
    let calls = calls(ask, shown, begun, parameters);
    match &ask.tool_choice {
        ToolChoice::Named(name) => Calls {
            tools: calls.tools.into_iter().filter(|tool| tool.name == *name).take(1).collect(),
            parallel: false,
            ..calls
        },
        _ => calls,
    }
}

fn calls(
    ask: &Ask,
    shown: &[Message],
    begun: String,
    parameters: impl Fn(&Value) -> Option<Schema>,
) -> Calls {
    let shape = CallShape {
        open: format!("{}\n{{\"name\": ", scan::OPEN),
        arguments: ", \"arguments\": ".into(),
        close: format!("}}\n{}", scan::CLOSE),
        between: "\n".into(),
    };
    let tools = shown.iter().filter_map(|tool| {
        let function = tool.get("function")?;
        let name = function["name"].as_str().filter(|name| ask.allows(name))?.to_owned();
        Some(Callable { name, parameters: parameters(function) })
    });
    Calls { shape, begun, tools: tools.collect(), parallel: ask.parallel_calls }
}

/// The field that demands the form of the answer.
pub(crate) fn field(ask: &Ask) -> &str {
    match (&ask.tool_choice, &ask.format) {
        (ToolChoice::Auto | ToolChoice::None, Some(format)) => &format.at,
        _ => "tool_choice",
    }
}

/// Makes sure that the constraint can be enforced: compiles it, and loosens what may be loosened;
/// `at` is the field that demands it. For a thread that may wait.
///
/// # Errors
/// The field that demands what cannot be enforced, with the compiler's words.
pub(crate) fn settle(
    constraint: Constraint,
    at: &str,
    strict: &[Strict],
    grammars: &Grammars,
) -> Result<Constraint, ApiError> {
    let Err(error) = grammars.compile(&constraint) else { return Ok(constraint) };
    let Constraint { lead, mut form } = constraint;
    let refused = |at: &str, error: GrammarError| Err(ApiError::field(at, error));
    let alone = |form: Form| grammars.compile(&Constraint { lead: Lead::None, form });
    let calls = match &mut form {
        Form::Text(_) => return refused(at, error),
        Form::TextOrCalls(text, _) => {
            let text: TextForm = text.clone();
            return refused(at, alone(Form::Text(text)).err().unwrap_or(error));
        }
        Form::Calls(calls) => calls,
    };
    for tool in &mut calls.tools {
        let Some(Schema { exact, text }) = tool.parameters.clone() else { continue };
        let arguments = Form::Text(TextForm::JsonSchema(Schema { exact, text }));
        let Err(error) = alone(arguments) else { continue };
        if let Some(strict) = strict.iter().find(|strict| strict.tool == tool.name) {
            return refused(&strict.at, error);
        }
        tool.parameters = None;
    }
    let constraint = Constraint { lead, form };
    let Err(error) = grammars.compile(&constraint) else { return Ok(constraint) };
    // Each schema can be enforced, but not all of them together.
    let Constraint { lead, mut form } = constraint;
    if let Form::Calls(calls) = &mut form {
        let loose = |tool: &&mut Callable| tool.parameters.as_ref().is_some_and(|p| !p.exact);
        calls.tools.iter_mut().filter(loose).for_each(|tool| tool.parameters = None);
    }
    let constraint = Constraint { lead, form };
    match grammars.compile(&constraint) {
        Ok(_) => Ok(constraint),
        Err(_) => refused(at, error),
    }
}
