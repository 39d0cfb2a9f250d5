//! The form that a client wants its answer to have, as the dialects say it.

use crate::error::ApiError;
use crate::limits;
use protocol::constraint::{Schema, TextForm};
use serde::Deserialize;
use serde_json::Value;

/// The form of an answer's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFormat {
    pub(crate) form: TextForm,
    /// Path in the body of what is to blame when the form cannot be enforced.
    pub(crate) at: String,
}

/// A tool whose arguments must be exactly of its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strict {
    pub(crate) tool: String,
    /// Path of its schema in the body.
    pub(crate) at: String,
}

/// A JSON schema beside its name. The name and the description tell the model of the vendor
/// something, and us nothing.
#[derive(Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Described {
    schema: Option<Value>,
    strict: Option<bool>,
}

/// Reads a format whose `type` is `kind`; `described` holds its schema and stands at `within`.
/// Without `strict` a schema is exact if `exact`.
pub(crate) fn read(
    at: &str,
    kind: &str,
    described: Option<Described>,
    within: &str,
    exact: bool,
) -> Result<Option<TextFormat>, ApiError> {
    match (kind, described) {
        ("text", _) => Ok(None),
        ("json_object", _) => {
            Ok(Some(TextFormat { form: TextForm::JsonObject, at: at.to_owned() }))
        }
        ("json_schema", None) => Err(ApiError::field(within, "missing field")),
        ("json_schema", Some(described)) => {
            let at = format!("{within}.schema");
            let schema = match described.schema {
                None | Some(Value::Null) => return Err(ApiError::field(&at, "missing field")),
                Some(schema @ Value::Object(_)) => schema,
                Some(_) => return Err(ApiError::field(&at, "expected an object")),
            };
            limits::schema(&at, Some(&schema))?;
            let exact = described.strict.unwrap_or(exact);
            let schema = Schema { text: schema.to_string(), exact };
            Ok(Some(TextFormat { form: TextForm::JsonSchema(schema), at }))
        }
        (other, _) => Err(ApiError::field(
            &format!("{at}.type"),
            format_args!("`{other}` is not a format (text, json_object, json_schema)"),
        )),
    }
}
