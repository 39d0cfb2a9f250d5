//! One request's answer as it comes: placing, the token stream, the end, the times.

use crate::cluster::{Cluster, Served};
use crate::misses::Miss;
use crate::nvext::outcome::Outcome;
use crate::nvext::{Extra, Told};
use crate::prompt::cache::{PrefixCache, Tokenised};
use crate::stream::{Ending, Piece, Reason, Step, Translator, Usage};
use futures::future::BoxFuture;
use model::Processor;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use protocol::time::Span;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::mpsc;

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Prefill is done; comes before every piece.
    Began(Usage),
    Piece(Piece),
    /// The end, with the answer's `nvext`.
    Ended(Ending, Option<Value>),
    /// The end, in failure, and what had been used by then.
    Failed(Refusal, Usage),
}

/// Who served has gone without a word: where an answer is not taken nobody can be told.
const BROKEN: &str = "the answer broke off before its end: its reader took nothing of it for too long, \
                      or the engine failed";

/// What is to be told or taken down beside the answer.
pub(crate) struct Untold {
    pub(crate) extra: Extra,
    /// What became of the hints.
    pub(crate) hints: Vec<Outcome>,
    pub(crate) miss: Arc<Miss>,
    /// Takes the generated tokens down for the next turn.
    pub(crate) spoken: Spoken,
}

/// A prompt whose answer the next turn may go on from.
pub(crate) struct Spoken {
    pub(crate) cache: Arc<PrefixCache>,
    pub(crate) model: Arc<Processor>,
    pub(crate) prompt: Weak<Tokenised>,
}

impl Spoken {
    /// Remembers an answer that the engine ended: one that was cut short here is not what the
    /// client saw.
    fn ended(&self, ending: &Ending) {
        if !matches!(ending.reason, Reason::StopString(_)) {
            self.cache.answered(&self.model, &self.prompt, &ending.tokens);
        }
    }
}

/// Where items come from.
enum Source {
    Placing(BoxFuture<'static, Result<Served, Refusal>>),
    Live(mpsc::Receiver<StreamItem>),
    Over,
}

/// An answer. Dropping it cancels the request.
pub(crate) struct Answer {
    source: Source,
    /// An item that was looked at before it was wanted.
    peeked: Option<StreamItem>,
    translator: Translator,
    queue: VecDeque<Next>,
    began: bool,
    extra: Extra,
    told: Told,
    miss: Arc<Miss>,
    spoken: Spoken,
    arrived: Instant,
}

impl Answer {
    /// Asks the cluster to serve `prompt`; `arrived` is when the request came in.
    pub(crate) fn new(
        cluster: &Arc<dyn Cluster>,
        prompt: Prompt,
        want: crate::Want,
        translator: Translator,
        untold: Untold,
        arrived: Instant,
    ) -> Self {
        let Untold { extra, hints, miss, spoken } = untold;
        let prompt_tokens = if extra.prompt_token_ids {
            prompt.tokens.iter().map(|token| token.0).collect()
        } else {
            Vec::new()
        };
        let entry_node = cluster.entry_node();
        let told = Told { entry_node, prompt_tokens, hints, ..Told::default() };
        Self {
            source: Source::Placing(cluster.serve(prompt, want)),
            peeked: None,
            translator,
            queue: VecDeque::new(),
            began: false,
            extra,
            told,
            miss,
            spoken,
            arrived,
        }
    }

    /// Waits for the first item, which the next [`Self::next`] will use. A refusal now can still
    /// become a status code. May be dropped and called again.
    pub(crate) async fn first(&mut self) -> Result<(), Refusal> {
        if self.peeked.is_none() {
            match self.item().await {
                Ok(StreamItem::Failed(refusal)) | Err(refusal) => {
                    self.source = Source::Over;
                    return Err(refusal);
                }
                Ok(item) => self.peeked = Some(item),
            }
        }
        Ok(())
    }

    /// The next event; `Ended` or `Failed` is the last. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.queue.pop_front() {
                return next;
            }
            let item = match self.peeked.take() {
                Some(item) => item,
                None => match self.item().await {
                    Ok(item) => item,
                    Err(refusal) => StreamItem::Failed(refusal),
                },
            };
            self.take(item);
        }
    }

    async fn item(&mut self) -> Result<StreamItem, Refusal> {
        if let Source::Placing(placing) = &mut self.source {
            let served = placing.await;
            self.source = Source::Over;
            let served = served?;
            self.told.serving_node = served.serving_node;
            self.told.outcome = served.outcome;
            self.source = Source::Live(served.items);
        }
        let item = match &mut self.source {
            Source::Live(items) => items.recv().await,
            Source::Placing(_) | Source::Over => None,
        };
        item.ok_or_else(|| Refusal::Failed(BROKEN.into()))
    }

    fn take(&mut self, item: StreamItem) {
        if matches!(&item, StreamItem::Tokens(_)) && self.told.ttft.is_none() {
            self.told.ttft = Some(self.elapsed());
        }
        let by_engine = matches!(&item, StreamItem::Finished(_));
        let mut pieces = Vec::new();
        let step = self.translator.push(item, &mut pieces);
        if let Step::Began(started) = &step {
            self.told.queue = started.queued;
            self.miss.found(started.prompt, &self.told.serving_node, &self.told.outcome);
        }
        let begins = !self.began && !matches!(step, Step::Failed(_));
        if begins {
            self.began = true;
            self.queue.push_back(Next::Began(self.translator.usage()));
        }
        self.queue.extend(pieces.into_iter().map(Next::Piece));
        match step {
            Step::More | Step::Began(_) => {}
            Step::Ended(mut ending) => {
                // The engine stops now, not when the client has read everything.
                self.source = Source::Over;
                self.told.total = self.elapsed();
                ending.took = self.told.total;
                if by_engine {
                    self.spoken.ended(&ending);
                }
                self.told.sources = ending.usage.sources;
                if self.extra.completion_token_ids {
                    self.told.completion_tokens = ending.tokens.iter().map(|t| t.0).collect();
                }
                self.queue.push_back(Next::Ended(ending, self.told.envelope(self.extra)));
            }
            Step::Failed(refusal) => {
                self.source = Source::Over;
                self.queue.push_back(Next::Failed(refusal, self.translator.usage()));
            }
        }
    }

    fn elapsed(&self) -> Span {
        Span(u64::try_from(self.arrived.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
