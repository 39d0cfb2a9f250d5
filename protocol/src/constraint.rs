//! What an answer must look like; the engine holds every token to it.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// The form of an answer, and what may come before it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(try_from = "Unchecked")]
pub struct Constraint {
    /// What comes before the form.
    pub lead: Lead,
    /// The form, up to the end of the answer.
    pub form: Form,
}

/// Free text before the form: reasoning.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Lead {
    /// None: the form begins with the answer.
    None,
    /// The prompt opened it; it goes through this mark.
    Through(String),
    /// The answer may open it.
    Maybe {
        /// What opens it.
        opens: String,
        /// What closes it.
        closes: String,
    },
}

/// The forms.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Form {
    /// Text of this form.
    Text(TextForm),
    /// At least one call, and nothing else.
    Calls(Calls),
    /// Either, as the model likes.
    TextOrCalls(TextForm, Calls),
}

/// Forms of text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum TextForm {
    /// JSON text of any object.
    JsonObject,
    /// JSON text of what the schema describes.
    JsonSchema(Schema),
}

/// A JSON schema.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Schema {
    /// Its JSON text.
    pub text: String,
    /// Every keyword is enforced, or the schema is refused. Otherwise keywords that no engine can
    /// enforce are left out.
    pub exact: bool,
}

/// Calls of tools.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Calls {
    /// How a call is written.
    pub shape: CallShape,
    /// The beginning of the first call that the prompt has written already.
    pub begun: String,
    /// What may be called; at least one.
    pub tools: Vec<Callable>,
    /// Whether more than one call may be made.
    pub parallel: bool,
}

/// A written call: `open` ‖ the name as a JSON string ‖ `arguments` ‖ JSON text of an object ‖
/// `close`; `between` stands between two calls.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct CallShape {
    /// Before the name.
    pub open: String,
    /// Between name and arguments.
    pub arguments: String,
    /// After the arguments.
    pub close: String,
    /// Between two calls.
    pub between: String,
}

/// A tool that may be called.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Callable {
    /// Its name.
    pub name: String,
    /// What its arguments must be; any object without.
    pub parameters: Option<Schema>,
}

impl Constraint {
    /// Most bytes of all its texts together.
    pub const BYTES_MAX: usize = 512 << 10;
    /// Most tools.
    pub const TOOLS_MAX: usize = 1024;

    /// Whether it is within the limits.
    pub fn fits(&self) -> bool {
        let (text, calls) = match &self.form {
            Form::Text(text) => (Some(text), None),
            Form::Calls(calls) => (None, Some(calls)),
            Form::TextOrCalls(text, calls) => (Some(text), Some(calls)),
        };
        let lead = match &self.lead {
            Lead::None => 0,
            Lead::Through(mark) => mark.len(),
            Lead::Maybe { opens, closes } => opens.len().saturating_add(closes.len()),
        };
        let bytes = lead
            .saturating_add(text.map_or(0, TextForm::bytes))
            .saturating_add(calls.map_or(0, Calls::bytes));
        bytes <= Self::BYTES_MAX && calls.is_none_or(|calls| calls.tools.len() <= Self::TOOLS_MAX)
    }
}

impl TextForm {
    fn bytes(&self) -> usize {
        match self {
            Self::JsonObject => 0,
            Self::JsonSchema(schema) => schema.text.len(),
        }
    }
}

impl Calls {
    fn bytes(&self) -> usize {
        let CallShape { open, arguments, close, between } = &self.shape;
        let shape = [open, arguments, close, between, &self.begun].map(String::len);
        let tool = |tool: &Callable| {
            let parameters = tool.parameters.as_ref().map_or(0, |schema| schema.text.len());
            tool.name.len().saturating_add(parameters)
        };
        let tools = self.tools.iter().map(tool);
        tools.chain(shape).fold(0, usize::saturating_add)
    }
}

/// A constraint as it comes from a peer.
#[derive(Deserialize)]
struct Unchecked {
    lead: Lead,
    form: Form,
}

impl TryFrom<Unchecked> for Constraint {
    type Error = &'static str;

    fn try_from(Unchecked { lead, form }: Unchecked) -> Result<Self, Self::Error> {
        let constraint = Self { lead, form };
        if constraint.fits() { Ok(constraint) } else { Err("the constraint is over its limits") }
    }
}
