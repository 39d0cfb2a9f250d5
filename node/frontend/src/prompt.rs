//! The neutral request to a [`Prompt`]: render, tokenise, hash.
//!
//! Only what is new is tokenised and hashed (see [`cache`]); rendering is done anew each time.

pub(crate) mod cache;
pub(crate) mod client;
pub(crate) mod cuts;

use crate::ask::{Ask, Raw, SamplingAsk, ToolChoice};
use crate::cluster::ServedModel;
use crate::error::ApiError;
use crate::markup::{Opening, THINK, THOUGHT};
use crate::stream::Shape;
use crate::tools;
use cache::{PrefixCache, Tokenised};
use client::Client;
use model::RenderRequest;
use protocol::block::{BlockClass, Claim};
use protocol::hash::{ClientSalt, RoutingKey, Token};
use protocol::id::{RequestId, SessionId, TenantId};
use protocol::prompt::{Hints, Limits, Prompt, RangeClaim, Refusal, Sampling};
use protocol::time::Span;
use serde_json::Value;

/// Whose request it is, and its random part.
pub(crate) struct Who {
    pub(crate) id: RequestId,
    pub(crate) tenant: TenantId,
    pub(crate) session: Option<SessionId>,
    /// Used when the client gave no seed.
    pub(crate) seed: u64,
}

/// A request that is ready to be placed.
pub(crate) struct Prepared {
    pub(crate) prompt: Prompt,
    pub(crate) shape: Shape,
}

/// A rendered conversation, ready to be tokenised.
struct Rendered {
    text: String,
    opening: Opening,
}

/// A prompt as tokens, and how it came to be.
struct Read {
    rendered: Rendered,
    tokenised: Tokenised,
}

/// The prompt's length in tokens, generation prompt included.
pub(crate) fn count(
    ask: &Ask,
    served: &ServedModel,
    key: &RoutingKey,
    cache: &PrefixCache,
    client: &Client,
) -> Result<usize, ApiError> {
    let read = read(ask, served, key, cache, client, |_| Ok(()))?;
    Ok(read.tokenised.tokens.len())
}

/// Renders and tokenises. `early` looks at the least that the prompt can have, before the work.
fn read(
    ask: &Ask,
    served: &ServedModel,
    key: &RoutingKey,
    cache: &PrefixCache,
    client: &Client,
    early: impl FnOnce(usize) -> Result<(), ApiError>,
) -> Result<Read, ApiError> {
    client.check()?;
    let tokenizer = served.model.tokenizer();
    let (rendered, tokenised) = match &ask.raw {
        None => {
            let rendered = render(ask, served)?;
            client.check()?;
            early(tokenizer.fewest(&rendered.text))?;
            let tokenised = cache.tokenise(&served.model, key, &rendered.text);
            (rendered, tokenised)
        }
        Some(raw) => {
            let tokens = match raw {
                Raw::Text(text) => {
                    early(tokenizer.fewest(text))?;
                    tokenizer.encode(text, true)
                }
                Raw::Tokens(tokens) => tokens.clone(),
            };
            let unknown = |token: &&Token| token.0 as usize >= tokenizer.vocab_size();
            if let Some(token) = tokens.iter().find(unknown) {
                let why = format_args!("there is no token {} in this model", token.0).to_string();
                return Err(ApiError::field("prompt", why));
            }
            if tokens.is_empty() {
                return Err(ApiError::field("prompt", "must not be empty"));
            }
            let rendered = Rendered { text: String::new(), opening: Opening::Plain };
            (rendered, PrefixCache::whole(key, tokens))
        }
    };
    client.check()?;
    Ok(Read { rendered, tokenised })
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
    let Read { rendered, tokenised } = read(ask, served, key, cache, client, early)?;
    let length = fits(served, tokenised.tokens.len())?;
    let room = served.context - length;
    let asked = ask.max_tokens.unwrap_or(u32::MAX);
    let shape = Shape {
        prompt_tokens: length,
        tools: !shown_tools(ask).is_empty(),
        parallel_calls: ask.parallel_calls,
        opening: rendered.opening,
        stop: ask.stop.clone(),
        limit_is_context: asked > room,
    };
    let hints = hints(ask, &who, served, &rendered.text, &tokenised)?;
    let prefix = cache.names(key, &tokenised);
    let prompt = Prompt {
        id: who.id,
        model: served.name.clone(),
        tenant: who.tenant,
        session: who.session,
        tokens: tokenised.tokens,
        prefix,
        salt: ask.nvext.cache_salt.as_deref().map(ClientSalt::of),
        sampling: sampling(&ask.sampling, who.seed),
        limits: Limits {
            max_tokens: asked.min(room),
            stop_tokens: served.model.stop_tokens().to_vec(),
        },
        hints,
    };
    Ok(Prepared { prompt, shape })
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
fn shown_tools(ask: &Ask) -> &[Value] {
    if ask.tool_choice == ToolChoice::None { &[] } else { &ask.tools }
}

fn render_messages(
    ask: &Ask,
    served: &ServedModel,
    messages: &[Value],
    add_generation_prompt: bool,
) -> Result<String, ApiError> {
    let request = RenderRequest { messages, tools: shown_tools(ask), add_generation_prompt };
    served.model.template().render(&request).map_err(|e| ApiError::invalid(e.to_string()))
}

fn render(ask: &Ask, served: &ServedModel) -> Result<Rendered, ApiError> {
    if ask.messages.is_empty() {
        return Err(ApiError::field("messages", "at least one message is required"));
    }
    let mut text = render_messages(ask, served, &ask.messages, true)?;
    let thinking = text.trim_end().ends_with(THINK);
    let begun = match &ask.tool_choice {
        ToolChoice::Required => r#"{"name":"#.to_owned(),
        ToolChoice::Named(name) => {
            format!(r#"{{"name": {}, "arguments":"#, Value::String(name.clone()))
        }
        ToolChoice::Auto | ToolChoice::None if thinking => {
            return Ok(Rendered { text, opening: Opening::Thinking });
        }
        ToolChoice::Auto | ToolChoice::None => {
            return Ok(Rendered { text, opening: Opening::Free });
        }
    };
    // A call is demanded: the prompt begins it, so that nothing else can come.
    if thinking {
        text.push_str(&format!("\n{THOUGHT}\n\n"));
    }
    text.push_str(&format!("{}\n{begun}", tools::OPEN));
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

/// Hints and claims. Claims cover whole turns: a pin reaches to the last turn border at or before
/// the end of the message it stands on.
fn hints(
    ask: &Ask,
    who: &Who,
    served: &ServedModel,
    text: &str,
    tokenised: &Tokenised,
) -> Result<Hints, ApiError> {
    let length = u32::try_from(tokenised.tokens.len()).unwrap_or(u32::MAX);
    let mut hints = ask.nvext.hints(length, who.session.as_ref(), &who.tenant);
    let claim = |end: u32, class: BlockClass, priority: i32, ttl: Option<Span>| RangeClaim {
        start: 0,
        end,
        claim: Claim {
            session: who.session.clone(),
            tenant: who.tenant.clone(),
            class,
            priority,
            ttl,
            max_age: None,
        },
    };
    let system = ask.messages.first().is_some_and(|m| m["role"] == "system");
    let has_head = system || !shown_tools(ask).is_empty();
    if let (true, [(_, end), _, ..]) = (has_head, tokenised.borders.as_slice()) {
        let class = if system { BlockClass::System } else { BlockClass::Tools };
        hints.claims.push(claim(*end, class, hints.priority, None));
    }
    for (messages, ttl) in longest_pins(ask) {
        let end = if messages >= ask.messages.len() {
            length
        } else {
            let head = render_messages(ask, served, &ask.messages[..messages], false)?;
            if !text.starts_with(&head) {
                continue;
            }
            tokenised.tokens_within(head.len())
        };
        if end > 0 {
            hints.claims.push(claim(end, BlockClass::Context, hints.priority, Some(ttl)));
        }
    }
    Ok(hints)
}

/// Most pins that are followed; each costs a rendering.
const PINS_MAX: usize = 4;

/// For each time to live, the pin that reaches furthest; shorter ones within longer-lived ones
/// say nothing.
fn longest_pins(ask: &Ask) -> Vec<(usize, Span)> {
    let mut pins: Vec<(usize, Span)> = ask.pins.iter().map(|p| (p.messages, p.ttl)).collect();
    if let Some(control) = &ask.nvext.cache_control {
        pins.push((ask.messages.len(), control.ttl()));
    }
    pins.retain(|(messages, _)| *messages > 0);
    // Longest-lived first, then furthest.
    pins.sort_by_key(|(messages, ttl)| std::cmp::Reverse((*ttl, *messages)));
    let mut kept: Vec<(usize, Span)> = Vec::new();
    for (messages, ttl) in pins {
        if kept.len() < PINS_MAX && kept.iter().all(|(reach, _)| *reach < messages) {
            kept.push((messages, ttl));
        }
    }
    kept
}

#[cfg(test)]
mod tests;
