//! The neutral request to a [`Prompt`]: render, tokenise, hash.
//!
//! Only what is new is tokenised and hashed (see [`cache`]); rendering is done anew each time: what a
//! template writes for a message may depend on all others.

pub(crate) mod cache;
pub(crate) mod client;
pub(crate) mod cuts;
mod hints;
pub(crate) mod session;

use crate::ask::{Ask, Raw, SamplingAsk, ToolChoice};
use crate::cluster::ServedModel;
use crate::constraint;
use crate::error::ApiError;
use crate::markup::{Opening, scan};
use crate::nvext::outcome::Outcome;
use crate::prefill;
use crate::stream::Shape;
use crate::tools::Tools;
use cache::{PrefixCache, Tokenised};
use client::Client;
use hints::Told;
use model::{Message, RenderRequest};
use protocol::hash::{ClientSalt, RoutingKey, Token};
use protocol::id::{RequestId, TenantId};
use protocol::prompt::{Limits, Prompt, Refusal, Sampling};
use serde_json::Value;
use session::Session;
use std::sync::{Arc, Weak};

/// Whose request it is, and its random part.
pub(crate) struct Who {
    pub(crate) id: RequestId,
    pub(crate) tenant: TenantId,
    pub(crate) session: Session,
    /// Used when the client gave no seed.
    pub(crate) seed: u64,
    /// Used when the client gave no priority.
    pub(crate) priority: i32,
}

/// A request that is ready to be placed.
pub(crate) struct Prepared {
    pub(crate) prompt: Prompt,
    pub(crate) shape: Shape,
    /// What became of the hints.
    pub(crate) outcomes: Vec<Outcome>,
    /// As the cache has it, for as long as it does.
    pub(crate) tokenised: Weak<Tokenised>,
}

/// A rendered conversation, ready to be tokenised.
struct Rendered {
    text: String,
    opening: Opening,
}

/// A prompt as tokens, and how the answer begins.
struct Read {
    opening: Opening,
    tokenised: Arc<Tokenised>,
}

/// The prompt's tokens, generation prompt included.
pub(crate) fn tokens(
    ask: &Ask,
    served: &ServedModel,
    key: &RoutingKey,
    cache: &PrefixCache,
    client: &Client,
) -> Result<Arc<Vec<Token>>, ApiError> {
    // Templates write some things longer than they came, and no context holds so much.
    const MOST: usize = 16 << 20;
    let bounded = |text: &str| match text.len() {
        0..=MOST => Ok(()),
        more => Err(ApiError::prompt(format!("{more} bytes of prompt are more than are counted"))),
    };
    let read = read(ask, served, key, cache, client, bounded, |_| Ok(()))?;
    Ok(read.tokenised.tokens.clone())
}

/// The text of a conversation.
pub(crate) fn conversation(ask: &Ask, served: &ServedModel) -> Result<String, ApiError> {
    Ok(render(ask, served)?.text)
}

/// Renders and tokenises. `look` sees the text, and `early` looks at the least that the prompt can have, before the work.
fn read(
    ask: &Ask,
    served: &ServedModel,
    key: &RoutingKey,
    cache: &PrefixCache,
    client: &Client,
    look: impl FnOnce(&str) -> Result<(), ApiError>,
    early: impl Fn(usize) -> Result<(), ApiError>,
) -> Result<Read, ApiError> {
    client.check()?;
    let tokenizer = served.model.tokenizer();
    let (opening, tokenised) = match &ask.raw {
        None => {
            let Rendered { text, opening } = render(ask, served)?;
            client.check()?;
            look(&text)?;
            (opening, cache.read(&served.model, key, text, early)?)
        }
        Some(raw) => {
            if let Raw::Text(text) = raw {
                early(tokenizer.fewest(text))?;
            }
            let tokens = raw.tokens(tokenizer, true);
            let unknown = |token: &&Token| token.0 as usize >= tokenizer.vocab_size();
            if let Some(token) = tokens.iter().find(unknown) {
                let why = format_args!("there is no token {} in this model", token.0).to_string();
                return Err(ApiError::field("prompt", why));
            }
            if tokens.is_empty() {
                return Err(ApiError::field("prompt", "must not be empty"));
            }
            (Opening::Plain, Arc::new(Tokenised::whole(key, tokens)))
        }
    };
    client.check()?;
    Ok(Read { opening, tokenised })
}

/// Makes the prompt.
pub(crate) fn prepare(
    ask: &Ask,
    who: Who,
    served: &ServedModel,
    key: &RoutingKey,
    cache: &PrefixCache,
    client: &Client,
) -> Result<Prepared, ApiError> {
    // Tokenising what cannot fit in any case would cost much for nothing.
    let early = |fewest| fits(served, fewest).map(|_| ());
    let Read { opening, tokenised } = read(ask, served, key, cache, client, |_| Ok(()), early)?;
    let length = fits(served, tokenised.tokens.len())?;
    let room = served.context - length;
    let asked = ask.max_tokens.unwrap_or(u32::MAX);
    let constraint = constraint::of(ask, shown_tools(ask), served, &tokenised.text, &opening);
    let shape = Shape {
        prompt_tokens: length,
        format: served.format,
        tools: match ask.tool_choice {
            ToolChoice::None => Tools::default(),
            _ => Tools::new(ask.tools.clone()).only(ask.allowed.clone()),
        },
        parallel_calls: ask.parallel_calls,
        opening,
        stop: ask.stop.clone(),
        limit_is_context: asked > room,
    };
    let limit = asked.min(room);
    let told = Told { ask, who: &who, served, tokenised: &tokenised, limit };
    let (hints, outcomes) = told.hints();
    let prompt = Prompt {
        id: who.id,
        model: served.name.clone(),
        tenant: who.tenant,
        session: who.session.id,
        tokens: tokenised.tokens.clone(),
        prefix: tokenised.names.clone(),
        salt: ask.nvext.cache_salt.as_deref().map(ClientSalt::of),
        sampling: sampling(&ask.sampling, who.seed),
        limits: Limits { max_tokens: limit, stop_tokens: served.model.stop_tokens().to_vec() },
        constraint,
        hints,
    };
    Ok(Prepared { prompt, shape, outcomes, tokenised: Arc::downgrade(&tokenised) })
}

/// The length of a prompt that leaves room for an answer.
fn fits(served: &ServedModel, tokens: usize) -> Result<u32, ApiError> {
    let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    let limit = served.context.saturating_sub(1);
    if tokens > limit || served.context == 0 {
        return Err(Refusal::TooLong { tokens, limit }.into());
    }
    Ok(tokens)
}

/// The tools that the prompt shows.
fn shown_tools(ask: &Ask) -> &[Message] {
    if ask.tool_choice == ToolChoice::None { &[] } else { &ask.tools }
}

fn render_messages(
    ask: &Ask,
    served: &ServedModel,
    messages: &[Message],
    add_generation_prompt: bool,
) -> Result<String, ApiError> {
    let request = RenderRequest { messages, tools: shown_tools(ask), add_generation_prompt };
    served.model.template().render(&request).map_err(|error| ApiError::prompt(error.to_string()))
}

fn render(ask: &Ask, served: &ServedModel) -> Result<Rendered, ApiError> {
    if ask.messages.is_empty() {
        return Err(ApiError::field("messages", "at least one message is required"));
    }
    if ask.continues.is_some()
        && !ask.history_only
        && let Some(marked) = prefill::marked(&ask.messages)
    {
        let text = render_messages(ask, served, &marked, false)?;
        let text = prefill::cut(text, &ask.messages)?;
        return Ok(Rendered { opening: prefill::opening(served, &text), text });
    }
    let mut text = render_messages(ask, served, &ask.messages, !ask.history_only)?;
    if ask.history_only {
        return Ok(Rendered { text, opening: Opening::Plain });
    }
    let thinking = served.format.thinks_at_end_of(&text);
    let begun = match &ask.tool_choice {
        ToolChoice::Required => r#"{"name":"#.to_owned(),
        ToolChoice::Named(name) => {
            format!(r#"{{"name": {}, "arguments":"#, Value::String(name.clone()))
        }
        ToolChoice::Auto | ToolChoice::None if thinking.is_some() => {
            return Ok(Rendered { text, opening: Opening::Thinking });
        }
        ToolChoice::Auto | ToolChoice::None => {
            return Ok(Rendered { text, opening: Opening::Free });
        }
    };
    // A call is demanded: the prompt begins it, and the constraint is how it goes on.
    if let Some(close) = thinking {
        text.push_str(&format!("\n{close}\n\n"));
    }
    text.push_str(&format!("{}\n{begun}", scan::OPEN));
    Ok(Rendered { text, opening: Opening::Call(begun) })
}

fn sampling(ask: &SamplingAsk, seed: u64) -> Sampling {
    Sampling {
        temperature: ask.temperature.unwrap_or(1.0),
        top_p: ask.top_p.unwrap_or(1.0),
        top_k: ask.top_k.unwrap_or(0),
        min_p: ask.min_p.unwrap_or(0.0),
        seed: ask.seed.unwrap_or(seed),
    }
}

#[cfg(test)]
mod tests;
