//! The token stream of a request to the neutral pieces of its answer.
//!
//! tokens → text (whole characters) → stop strings → reasoning and calls. Everything is counted
//! token by token, so that the result does not depend on how the tokens were batched.

use crate::format::Format;
use crate::markup::{Markup, Opening};
use crate::stop::StopScanner;
use crate::tools::Tools;
use model::{DecodeStream, Tokenizer};
use protocol::hash::Token;
use protocol::prompt::{FinishReason, PromptSources, Refusal, Started, StreamItem};
use protocol::time::Span;

/// A piece of an answer; all dialects and both forms (stream and unary) are made of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Reasoning(String),
    /// A call begins; its arguments follow before any other piece.
    CallStart {
        index: u32,
        name: String,
    },
    /// More of its arguments: together the JSON text of an object.
    CallArguments {
        index: u32,
        fragment: String,
    },
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    pub(crate) usage: Usage,
    /// Ids of the generated tokens, the stop token left out.
    pub(crate) tokens: Vec<Token>,
    /// Since the request arrived; set by whoever has a clock.
    pub(crate) took: Span,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The model ended its turn.
    Stop,
    /// A stop string came.
    StopString(String),
    /// The model waits for the results of its calls.
    ToolCalls,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Length of the prompt.
    pub(crate) prompt: u32,
    /// Where it came from.
    pub(crate) sources: PromptSources,
    /// Generated tokens.
    pub(crate) output: u32,
    /// Generated tokens of reasoning.
    pub(crate) reasoning: u32,
}

impl Usage {
    /// Cached prompt tokens; never more than the prompt has.
    pub(crate) fn cached(&self) -> u32 {
        self.sources.cached().min(self.prompt)
    }
}

/// What shapes the answer of one request.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) prompt_tokens: u32,
    /// How the model writes reasoning and calls.
    pub(crate) format: Format,
    /// The tools that may be called.
    pub(crate) tools: Tools,
    pub(crate) parallel_calls: bool,
    pub(crate) opening: Opening,
    pub(crate) stop: Vec<String>,
    /// The token limit is the context's, not the client's.
    pub(crate) limit_is_context: bool,
}

/// What one stream item led to, beside pieces.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    More,
    /// Prefill is done.
    Began(Started),
    Ended(Ending),
    Failed(Refusal),
}

/// The translator of one request's stream.
pub(crate) struct Translator {
    tokenizer: Tokenizer,
    decoder: Option<DecodeStream>,
    stop: StopScanner,
    markup: Markup,
    shape: Shape,
    usage: Usage,
    tokens: Vec<Token>,
}

impl Translator {
    pub(crate) fn new(tokenizer: &Tokenizer, mut shape: Shape) -> Self {
        let opening = std::mem::take(&mut shape.opening);
        let tools = std::mem::take(&mut shape.tools);
        Self {
            tokenizer: tokenizer.clone(),
            decoder: Some(tokenizer.decode_stream()),
            stop: StopScanner::new(std::mem::take(&mut shape.stop)),
            markup: Markup::new(shape.format, tools, shape.parallel_calls, opening),
            usage: Usage { prompt: shape.prompt_tokens, ..Usage::default() },
            shape,
            tokens: Vec::new(),
        }
    }

    /// Counts so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Takes one item. After `Ended` or `Failed` nothing more may be pushed.
    pub(crate) fn push(&mut self, item: StreamItem, out: &mut Vec<Piece>) -> Step {
        match item {
            StreamItem::Started(started) => {
                self.usage.sources = started.prompt;
                Step::Began(started)
            }
            StreamItem::Tokens(tokens) => {
                tokens.into_iter().find_map(|token| self.token(token, out)).unwrap_or(Step::More)
            }
            StreamItem::Finished(finish) => {
                self.usage.sources = finish.prompt;
                self.usage.output = finish.output_tokens.max(self.usage.output);
                self.finish(finish.reason, out)
            }
            StreamItem::Failed(refusal) => Step::Failed(refusal),
        }
    }

    fn token(&mut self, token: Token, out: &mut Vec<Piece>) -> Option<Step> {
        self.tokens.push(token);
        self.usage.output = self.usage.output.saturating_add(1);
        if self.markup.is_thinking() {
            self.usage.reasoning = self.usage.reasoning.saturating_add(1);
        }
        let text = self.text_of(token)?;
        self.text(&text, out)
    }

    /// The text a token completes. Vocabularies make marks control tokens, which decoding leaves
    /// out: the format's own are read by their spelling.
    fn text_of(&mut self, token: Token) -> Option<String> {
        if self.tokenizer.is_special(token) {
            return self.tokenizer.spelling(token).filter(|text| self.markup.has_mark(text));
        }
        self.decoder.as_mut()?.push(token)
    }

    /// Takes text; an answer ends early at a stop string, or after the one call that is wanted.
    fn text(&mut self, text: &str, out: &mut Vec<Piece>) -> Option<Step> {
        let scanned = self.stop.push(text);
        self.markup.push(&scanned.text, out);
        if self.markup.is_done() {
            return Some(self.ended(Reason::ToolCalls));
        }
        let stop = scanned.stop?;
        self.markup.finish(out);
        let called = self.markup.calls() > 0;
        Some(self.ended(if called { Reason::ToolCalls } else { Reason::StopString(stop) }))
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<Piece>) -> Step {
        // A character cut by the end of the answer is left out.
        let rest = self.decoder.take().map(DecodeStream::finish).unwrap_or_default();
        let ended = self.text(rest.trim_end_matches('\u{fffd}'), out);
        if let Some(ended) = ended {
            return ended;
        }
        let held = self.stop.finish();
        self.markup.push(&held, out);
        self.markup.finish(out);
        let reason = match reason {
            FinishReason::Stop(_) if self.markup.calls() > 0 => Reason::ToolCalls,
            FinishReason::Stop(_) => Reason::Stop,
            FinishReason::Length if self.shape.limit_is_context => Reason::ContextFull,
            FinishReason::Length => Reason::Length,
            FinishReason::ContextFull => Reason::ContextFull,
            FinishReason::Cancelled => {
                return Step::Failed(Refusal::Failed("the request was cancelled".into()));
            }
        };
        self.ended(reason)
    }

    fn ended(&mut self, reason: Reason) -> Step {
        let tokens = std::mem::take(&mut self.tokens);
        Step::Ended(Ending { reason, usage: self.usage, tokens, took: Span(0) })
    }
}

#[cfg(test)]
mod tests;
