//! Message content as all dialects send it: one string, or a list of typed blocks.
//!
//! One flat block type serves all dialects, so that an error can name the exact field; which
//! block types may stand where is decided by each dialect.

use crate::error::ApiError;
use crate::limits::BLOCKS_MAX;
use crate::nvext::outcome::Verdict;
use protocol::time::Span;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// A string, or blocks. `"text"` and `[{"type": "text", "text": "text"}]` mean the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

/// One typed block; only the fields that mean something to us.
#[derive(Clone, Debug, PartialEq, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Block {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) text: Option<String>,
    pub(crate) refusal: Option<String>,
    pub(crate) thinking: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) input: Option<Value>,
    pub(crate) content: Option<Content>,
    pub(crate) source: Option<Source>,
    pub(crate) cache_control: Option<CacheControl>,
}

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Source {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) data: Option<String>,
}

/// A wish to keep the prompt up to here; never rendered.
#[derive(Clone, Debug, PartialEq, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct CacheControl {
    pub(crate) ttl: Option<Value>,
}

impl CacheControl {
    /// The time to live: `"5m"` (the default), `"1h"`, or seconds, at least 300 and at most 3600.
    /// What cannot be read counts as the default: a hint is no reason to refuse a request.
    pub(crate) fn ttl(&self) -> (Span, Verdict) {
        const USUAL: u64 = 300;
        const MOST: u64 = 3600;
        let seconds = match &self.ttl {
            None | Some(Value::Null) => return (Span::secs(USUAL), Verdict::Accepted),
            Some(Value::String(text)) => match text.strip_suffix(['s', 'm', 'h']) {
                Some(number) => number.parse::<u64>().ok().map(|n| {
                    n.saturating_mul(match text.as_bytes().last() {
                        Some(b'h') => 3600,
                        Some(b'm') => 60,
                        _ => 1,
                    })
                }),
                None => text.parse::<u64>().ok(),
            },
            Some(value) => value.as_u64(),
        };
        match seconds {
            Some(seconds @ USUAL..=MOST) => (Span::secs(seconds), Verdict::Accepted),
            Some(seconds) => {
                let kept = seconds.clamp(USUAL, MOST);
                let why = format!("{seconds} s become {kept} s, the nearest that is possible");
                (Span::secs(kept), Verdict::Clipped(why))
            }
            None => {
                let why = "the ttl cannot be read; it is \"5m\", \"1h\" or seconds: 300 s are used";
                (Span::secs(USUAL), Verdict::Clipped(why.into()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of content blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = list.next_element()? {
                    if blocks.len() == BLOCKS_MAX {
                        let why = format!("at most {BLOCKS_MAX} content blocks are allowed");
                        return Err(serde::de::Error::custom(why));
                    }
                    blocks.push(block);
                }
                Ok(Content::Blocks(blocks))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Content that is no text.
const SIGHTS: [&str; 7] =
    ["image", "image_url", "input_image", "input_audio", "audio", "file", "video_url"];

/// The last pin of some blocks.
pub(crate) fn last_pin(blocks: &[Block]) -> Option<CacheControl> {
    blocks.iter().rev().find_map(|block| block.cache_control.clone())
}

impl Content {
    /// The blocks; a string is one text block.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Text(text) => {
                vec![Block { kind: "text".into(), text: Some(text), ..Block::default() }]
            }
        }
    }

    /// As [`Self::into_text`], of what a tool gave back. A tool that looks at a picture is no
    /// reason to end a session: a note stands for what a model that reads text cannot see.
    pub(crate) fn into_result(self, at: &str) -> Result<String, ApiError> {
        let mut texts = Vec::new();
        for (i, block) in self.into_blocks().into_iter().enumerate() {
            match SIGHTS.contains(&block.kind.as_str()) {
                true => texts.push(format!("[{}: this model reads text only]", block.kind)),
                false => texts.push(block.into_text(&format!("{at}[{i}]"))?),
            }
        }
        Ok(texts.concat())
    }

    /// All text, blocks joined. `at` is the path of the content.
    pub(crate) fn into_text(self, at: &str) -> Result<String, ApiError> {
        let mut texts = Vec::new();
        for (i, block) in self.into_blocks().into_iter().enumerate() {
            texts.push(block.into_text(&format!("{at}[{i}]"))?);
        }
        Ok(texts.concat())
    }
}

impl Block {
    /// The text of a text-like block; anything else is refused by name.
    pub(crate) fn into_text(self, at: &str) -> Result<String, ApiError> {
        let missing = |field: &str| ApiError::field(&format!("{at}.{field}"), "missing field");
        match self.kind.as_str() {
            "" => Err(missing("type")),
            "text" | "input_text" | "output_text" => self.text.ok_or_else(|| missing("text")),
            "refusal" => self.refusal.ok_or_else(|| missing("refusal")),
            "document" | "search_result" => match (self.source, self.content) {
                (Some(Source { kind, data: Some(data) }), _) if kind == "text" => Ok(data),
                (_, Some(content)) => content.into_text(&format!("{at}.content")),
                _ => Err(ApiError::field(at, "this model reads text only, not documents")),
            },
            kind if SIGHTS.contains(&kind) => Err(ApiError::field(
                at,
                format_args!("this model reads text only, not content of type `{kind}`"),
            )),
            other => Err(ApiError::field(
                &format!("{at}.type"),
                format_args!("content of type `{other}` cannot stand here"),
            )),
        }
    }
}
