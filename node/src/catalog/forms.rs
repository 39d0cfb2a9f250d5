//! Engines of one model whose blocks have different forms: nothing that one computed serves another,
//! and nothing fails, so somebody must say it.

use protocol::block::StorageId;
use protocol::event::EngineReport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Models and their forms that are remembered as told.
const TOLD_MAX: usize = 256;

/// A model's namespace, and the forms of its blocks.
type Model = ([u8; 32], BTreeSet<StorageId>);

/// What was told already.
#[derive(Default)]
pub(super) struct Forms(Mutex<BTreeSet<Model>>);

impl Forms {
    /// Warns of every model that is served with blocks of different forms, once.
    pub(super) fn look<'a>(&self, reports: impl Iterator<Item = &'a EngineReport>) {
        for (model, forms) in self.news(reports) {
            tracing::warn!(
                model,
                forms,
                "nodes serve this model with blocks of different forms: they share no KV blocks \
                 (the engine, its block_tokens and the kind of its KV values must be equal)"
            );
        }
    }

    /// Names of such models, with the forms in words, that were not told before.
    fn news<'a>(&self, reports: impl Iterator<Item = &'a EngineReport>) -> Vec<(String, String)> {
        let mut models: BTreeMap<[u8; 32], BTreeMap<StorageId, &EngineReport>> = BTreeMap::new();
        for report in reports {
            models.entry(report.routing).or_default().insert(report.storage, report);
        }
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = Vec::new();
        for (routing, forms) in models.into_iter().filter(|(_, forms)| forms.len() > 1) {
            if told.len() >= TOLD_MAX {
                told.clear();
            }
            if told.insert((routing, forms.keys().copied().collect())) {
                let form = |report: &&EngineReport| {
                    let EngineReport { kind, block_tokens, block_bytes, .. } = report;
                    format!("{kind}: {block_tokens} tokens in {block_bytes} bytes")
                };
                let words: Vec<String> = forms.values().map(form).collect();
                let model = forms.values().next().map(|report| report.model.clone());
                news.push((model.unwrap_or_default(), words.join("; ")));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::card::BlobDigest;
    use protocol::event::EngineLoad;
    use protocol::id::EngineId;

    fn report(routing: u8, storage: u64, block_tokens: u32) -> EngineReport {
        EngineReport {
            engine: EngineId(0),
            kind: "mock".into(),
            model: "m".into(),
            routing: [routing; 32],
            card: BlobDigest([0; 32]),
            storage: StorageId(storage),
            block_bytes: 1024,
            block_tokens,
            context: 1000,
            load: EngineLoad::default(),
        }
    }

    #[test]
    fn a_model_with_two_forms_is_told_of_once() {
        let forms = Forms::default();
        let told = |reports: &[EngineReport]| forms.news(reports.iter());
        let (a, b, other) = (report(1, 1, 16), report(1, 2, 32), report(2, 3, 32));
        assert_eq!(told(&[a.clone(), a.clone(), other.clone()]), []);
        let words = "mock: 16 tokens in 1024 bytes; mock: 32 tokens in 1024 bytes".to_owned();
        assert_eq!(told(&[b.clone(), a.clone(), other.clone()]), [("m".to_owned(), words)]);
        assert_eq!(told(&[a.clone(), b.clone()]), []);
        assert_eq!(told(&[a, b, report(1, 4, 64)]).len(), 1);
    }
}
