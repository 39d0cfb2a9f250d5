//! What was compiled before, by digest.

use super::{Grammar, GrammarError};
use protocol::constraint::Constraint;
use protocol::wire;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Outcomes kept, refusals among them; the least recently used goes.
const MOST: usize = 64;

/// One outcome, once it is there.
pub(super) type Place = Arc<OnceLock<Result<Arc<Grammar>, GrammarError>>>;

/// Least recently used first.
#[derive(Default)]
pub(super) struct Cache {
    places: Mutex<Vec<([u8; 32], Place)>>,
}

fn digest(constraint: &Constraint) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 constraint");
    // What fits its limits can be encoded.
    hasher.update(&wire::encode(constraint).unwrap_or_default());
    *hasher.finalize().as_bytes()
}

impl Cache {
    /// The place of a constraint that was asked for before.
    pub(super) fn get(&self, constraint: &Constraint) -> Option<Place> {
        self.find(&digest(constraint), None)
    }

    /// The place of a constraint.
    pub(super) fn place(&self, constraint: &Constraint) -> Place {
        let fresh = Place::default();
        self.find(&digest(constraint), Some(&fresh)).unwrap_or(fresh)
    }

    fn find(&self, digest: &[u8; 32], fresh: Option<&Place>) -> Option<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.iter().position(|(of, _)| of == digest).map(|at| places.remove(at));
        let (digest, place) = match (known, fresh) {
            (Some(known), _) => known,
            (None, Some(fresh)) => (*digest, Arc::clone(fresh)),
            (None, None) => return None,
        };
        if places.len() >= MOST {
            places.remove(0);
        }
        places.push((digest, Arc::clone(&place)));
        Some(place)
    }
}
