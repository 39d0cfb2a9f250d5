//! Prompts that are kept for the members who sent them, so that they need not send them again.

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use protocol::hash::{GRANULE, PrefixHash, Token};
use protocol::id::NodeId;
use protocol::wire::serve::{Beginning, Line, ServeAsk, ServeRequest};
use std::sync::Arc;

/// Longest prompt that is put together, in tokens: more than any context, and about what one frame
/// can carry.
const TOKENS_MAX: usize = 4 << 20;

/// A prompt's tokens and the names of its full granules.
#[derive(Clone)]
struct Prompt {
    tokens: Arc<Vec<Token>>,
    names: Arc<Vec<PrefixHash>>,
}

impl Prompt {
    /// Memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        const AROUND: usize = 256;
        AROUND
            + self.tokens.capacity() * size_of::<Token>()
            + self.names.capacity() * size_of::<PrefixHash>()
    }
}

/// Prompts by member and number. Bounded; forgets what was used longest ago.
pub(crate) struct Kept(Cache<(NodeId, Line), Prompt>);

impl Kept {
    /// At most `bytes` bytes of prompts.
    pub(crate) fn new(bytes: u64) -> Self {
        let weigh = |_: &_, prompt: &Prompt| u32::try_from(prompt.bytes()).unwrap_or(u32::MAX);
        // By last use: counting uses, as is the default, would keep ended sessions and refuse new ones.
        let cache = Cache::builder().weigher(weigh).max_capacity(bytes);
        Self(cache.eviction_policy(EvictionPolicy::lru()).build())
    }

    /// Does at once what is otherwise done now and then.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        self.0.run_pending_tasks();
    }

    /// The whole request of a member, kept as it wishes; `None` where its beginning is not known.
    pub(crate) fn whole(&self, peer: NodeId, ask: ServeAsk) -> Option<ServeRequest> {
        let ServeAsk { beginning, keep_as, mut request } = ask;
        let prompt = &mut request.prompt;
        if let Some(beginning) = beginning {
            let Prompt { tokens, names } = self.joined(peer, beginning, prompt)?;
            (prompt.tokens, prompt.prefix) = (tokens, names);
        }
        if let Some(line) = keep_as {
            let (tokens, names) = (prompt.tokens.clone(), prompt.prefix.clone());
            self.0.insert((peer, line), Prompt { tokens, names });
        }
        Some(request)
    }

    fn joined(
        &self,
        peer: NodeId,
        Beginning { line, granules, last }: Beginning,
        rest: &protocol::prompt::Prompt,
    ) -> Option<Prompt> {
        let earlier = self.0.get(&(peer, line))?;
        let granules = usize::try_from(granules).ok()?;
        let names = earlier.names.get(..granules)?;
        // A name stands for all tokens before it.
        names.last().filter(|name| **name == last)?;
        let tokens = earlier.tokens.get(..granules.checked_mul(GRANULE)?)?;
        (tokens.len() + rest.tokens.len() <= TOKENS_MAX).then_some(())?;
        let tokens = [tokens, rest.tokens.as_slice()].concat();
        let names = [names, rest.prefix.as_slice()].concat();
        Some(Prompt { tokens: tokens.into(), names: names.into() })
    }
}
