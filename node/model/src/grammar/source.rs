//! A constraint in the compiler's language.

use super::{GrammarError, SCHEMA_DEPTH_MAX};
use crate::Tokenizer;
use llguidance::JsonCompileOptions;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use protocol::constraint::{Calls, Constraint, Form, Lead, Schema, TextForm};
use serde_json::{Value, json};

/// Between the parts of JSON: nothing, one space, or one line break with its indentation. More would
/// let an answer go on forever without saying anything.
const WHITE: &str = r"[\x20]|\x0A[\x20\x09]{0,32}";

/// The grammars that together say `constraint`; the first is the whole, in Lark's notation.
pub(super) fn of(
    constraint: &Constraint,
    tokenizer: &Tokenizer,
) -> Result<TopLevelGrammar, GrammarError> {
    let mut parts = Parts { tokenizer, rules: String::new(), schemas: Vec::new() };
    let lead = parts.lead(&constraint.lead);
    let form = match &constraint.form {
        Form::Text(text) => parts.text(text)?,
        Form::Calls(calls) => parts.calls(calls)?,
        Form::TextOrCalls(text, calls) => {
            format!("({} | {})", parts.text(text)?, parts.calls(calls)?)
        }
    };
    let lark = format!("start: {lead} {form}\n{}", parts.rules);
    let mut grammars = vec![GrammarWithLexer::from_lark(lark)];
    grammars.append(&mut parts.schemas);
    Ok(TopLevelGrammar { grammars, max_tokens: None })
}

struct Parts<'a> {
    tokenizer: &'a Tokenizer,
    /// Rules that the first one uses.
    rules: String,
    schemas: Vec<GrammarWithLexer>,
}

impl Parts<'_> {
    fn lead(&mut self, lead: &Lead) -> String {
        match lead {
            Lead::None => String::new(),
            Lead::Through(closes) => self.through(closes),
            Lead::Maybe { opens, closes } => {
                format!("({} {})?", self.literal(opens), self.through(closes))
            }
        }
    }

    /// Free text through a mark, and the white space behind it.
    fn through(&mut self, mark: &str) -> String {
        const BREAKS: &str = r"/[\r\n]{0,4}/";
        match self.tokenizer.token(mark).filter(|token| self.tokenizer.is_special(*token)) {
            // Text cannot hold a control token.
            Some(token) => format!("/(?s:.*)/ <[{}]> {BREAKS}", token.0),
            None => {
                let mark = Value::from(mark);
                self.rules.push_str(&format!("lead[suffix={mark}]: /(?s:.*)/\n"));
                format!("lead {BREAKS}")
            }
        }
    }

    fn text(&mut self, text: &TextForm) -> Result<String, GrammarError> {
        self.json(match text {
            TextForm::JsonObject => None,
            TextForm::JsonSchema(schema) => Some(schema),
        })
    }

    fn calls(&mut self, calls: &Calls) -> Result<String, GrammarError> {
        let shape = &calls.shape;
        let (mut first, mut more) = (Vec::new(), Vec::new());
        for tool in &calls.tools {
            let arguments = self.json(tool.parameters.as_ref())?;
            let close = self.literal(&shape.close);
            let head = format!("{}{}{}", shape.open, Value::from(&*tool.name), shape.arguments);
            // A call of this tool may not be what the prompt began.
            if let Some(rest) = head.strip_prefix(&calls.begun) {
                first.push(format!("{} {arguments} {close}", self.literal(rest)));
            }
            more.push(format!("{} {arguments} {close}", self.literal(&head)));
        }
        if first.is_empty() {
            let why = "no tool can continue the call that was begun";
            return Err(GrammarError::Refused(why.into()));
        }
        let first = first.join(" | ");
        if !calls.parallel {
            return Ok(format!("({first})"));
        }
        let between = self.literal(&shape.between);
        Ok(format!("(({first}) ({between} ({}))*)", more.join(" | ")))
    }

    /// JSON text of what `schema` describes, or of any object.
    fn json(&mut self, schema: Option<&Schema>) -> Result<String, GrammarError> {
        let (mut value, exact) = match schema {
            None => (json!({ "type": "object" }), true),
            Some(schema) => (parse(&schema.text)?, schema.exact),
        };
        // Whatever the schema itself says here is overwritten.
        let options = JsonCompileOptions {
            whitespace_pattern: Some(WHITE.into()),
            lenient: !exact,
            ..JsonCompileOptions::default()
        };
        options.apply_to(&mut value);
        let name = format!("json{}", self.schemas.len());
        let mut grammar = GrammarWithLexer::from_json_schema(value);
        grammar.name = Some(name.clone());
        self.schemas.push(grammar);
        Ok(format!("@{name}"))
    }

    /// A text, in which control tokens are themselves.
    fn literal(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut stream = self.tokenizer.decode_stream();
        for token in self.tokenizer.encode(text, false) {
            if self.tokenizer.is_special(token) {
                parts.push(Value::from(std::mem::take(&mut plain)).to_string());
                parts.push(format!("<[{}]>", token.0));
            } else if let Some(text) = stream.push(token) {
                plain.push_str(&text);
            }
        }
        if parts.is_empty() {
            return Value::from(text).to_string();
        }
        plain.push_str(&stream.finish());
        parts.push(Value::from(plain).to_string());
        parts.join(" ")
    }
}

fn parse(text: &str) -> Result<Value, GrammarError> {
    let refused = |why: String| GrammarError::Refused(why);
    let value: Value =
        serde_json::from_str(text).map_err(|error| refused(format!("is not JSON: {error}")))?;
    if !value.is_object() {
        return Err(refused("must be a JSON object".into()));
    }
    if depth_exceeds(&value, SCHEMA_DEPTH_MAX) {
        return Err(refused(format!("is nested deeper than {SCHEMA_DEPTH_MAX}")));
    }
    let expressions = Expressions::of(&value);
    if expressions.joined && expressions.count > JOINED_MAX {
        let why =
            format!("has {} patterns where at most {JOINED_MAX} are joined", expressions.count);
        return Err(refused(why + " by allOf, anyOf, oneOf or $ref"));
    }
    if expressions.names > NAME_PATTERNS_MAX {
        return Err(refused(format!(
            "has patternProperties with more than {NAME_PATTERNS_MAX} patterns"
        )));
    }
    Ok(value)
}

/// Most expressions in a schema that may demand several of one text: the compiler's work on their
/// conjunction is exponential in their number, and it does not count that work.
const JOINED_MAX: usize = 4;
/// Keywords that hold other schemas for the same text, and keywords that they meet there.
const JOINING: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];
const JOINED: [&str; 6] =
    ["pattern", "patternProperties", "properties", "additionalProperties", "items", "prefixItems"];
/// Most expressions in one `patternProperties`: each pair is compared.
const NAME_PATTERNS_MAX: usize = 16;

/// The expressions of a schema.
#[derive(Default)]
struct Expressions {
    count: usize,
    /// Most of one `patternProperties`.
    names: usize,
    /// Some part may demand several of one text.
    joined: bool,
}

impl Expressions {
    fn of(schema: &Value) -> Self {
        let mut found = Self::default();
        found.look(schema);
        found
    }

    fn look(&mut self, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|inner| self.look(inner)),
            Value::Object(map) => {
                let names = map.get("patternProperties").and_then(Value::as_object);
                let names = names.map_or(0, serde_json::Map::len);
                self.names = self.names.max(names);
                self.count += names + usize::from(map.get("pattern").is_some_and(Value::is_string));
                let parts = JOINING.iter().chain(&JOINED).filter(|key| map.contains_key(**key));
                let joins = parts.count() > 1 && JOINING.iter().any(|key| map.contains_key(*key));
                let all = map.get("allOf").and_then(Value::as_array);
                self.joined |= joins || all.is_some_and(|list| list.len() > 1);
                map.values().for_each(|inner| self.look(inner));
            }
            _ => {}
        }
    }
}

fn depth_exceeds(value: &Value, most: usize) -> bool {
    let deeper = |inner: &Value| most.checked_sub(1).is_none_or(|left| depth_exceeds(inner, left));
    match value {
        Value::Array(list) => list.iter().any(deeper),
        Value::Object(map) => map.values().any(deeper),
        _ => false,
    }
}
