//! A model without its weights: what makes tokens of messages, and text of tokens.

use crate::ModelError;
use crate::grammar::Grammars;
use crate::model::OpenOptions;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use protocol::card::ModelCard;
use protocol::hash::Token;
use std::path::Path;
use std::sync::Arc;

/// Tokenizer, chat template, ends of answers and grammars of a model.
#[derive(Debug)]
pub struct Processor {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    stop_tokens: Vec<Token>,
    grammars: Arc<Grammars>,
}

impl Processor {
    pub(crate) fn new(
        tokenizer: Tokenizer,
        template: ChatTemplate,
        stop_tokens: Vec<Token>,
    ) -> Self {
        let grammars = Arc::new(Grammars::new(tokenizer.clone(), stop_tokens.clone()));
        Self { tokenizer, template, stop_tokens, grammars }
    }

    /// What the card describes: the same tokens and texts as with the model that it was made of.
    /// `tokenizer` are the bytes that the card names. Slow, like opening a model.
    ///
    /// # Errors
    /// The tokenizer or the template cannot be used by this version.
    pub fn from_card(
        card: &ModelCard,
        tokenizer: &[u8],
        options: &OpenOptions,
    ) -> Result<Self, ModelError> {
        let path = Path::new(&card.name);
        let source = card.template.as_deref();
        let today = options.day_for(source);
        let template = ChatTemplate::compile(source, card.specials.clone(), today);
        let template =
            template.map_err(|detail| ModelError::Template { path: path.to_owned(), detail })?;
        let tokenizer = Tokenizer::from_json(path, tokenizer)?;
        Ok(Self::new(tokenizer, template, card.stop_tokens.clone()))
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end an answer: end of sequence and end of turn; sorted.
    pub fn stop_tokens(&self) -> &[Token] {
        &self.stop_tokens
    }

    /// The chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The compiler of constraints on the model's answers.
    pub fn grammars(&self) -> Arc<Grammars> {
        Arc::clone(&self.grammars)
    }
}

#[cfg(test)]
pub(crate) mod tests;
