//! No false removal: nobody forgets a life of a node that is still lived.

use protocol::event::{MemberState, MemberView};
use protocol::id::{Incarnation, NodeId};
use protocol::time::{Span, Time};
use std::collections::BTreeMap;

/// A life of an identity.
type Life = (NodeId, Incarnation);

/// Which lives are lived, and who has noticed that others are over.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Since when.
    lived: BTreeMap<Life, Time>,
    /// Lives that ended, since when; and whether somebody noticed.
    ended: BTreeMap<Life, (Time, bool)>,
}

impl Lives {
    pub(crate) fn begins(&mut self, now: Time, life: Life) {
        self.lived.insert(life, now);
    }

    pub(crate) fn ends(&mut self, now: Time, life: Life) {
        self.lived.remove(&life);
        self.ended.insert(life, (now, false));
    }

    /// A node gives up all that a life of another held.
    pub(super) fn forgotten(&self, node: &NodeId, incarnation: Incarnation) -> Result<(), String> {
        if !self.lived.contains_key(&(*node, incarnation)) {
            return Ok(());
        }
        // Another process lives under the same identity: they contend for it until both stop.
        let contends = |(other, life): &Life| other == node && *life != incarnation;
        // A life with the same boot counter, or a later one, takes its place.
        let takes_over = |life: &Life| contends(life) && life.1.counter >= incarnation.counter;
        if self.lived.keys().any(contends) || self.ended.keys().any(takes_over) {
            return Ok(());
        }
        Err(format!("the life {} of {node:?}, which goes on, is forgotten", incarnation.counter))
    }

    /// A node sees another in some state: how long after its death it was noticed first, and whether
    /// it was declared dead though it lives.
    pub(super) fn seen(&mut self, now: Time, view: &MemberView) -> (Option<Span>, bool) {
        let life = (view.node, view.incarnation);
        let is_down = matches!(view.state, MemberState::Suspect | MemberState::Dead);
        let noticed = match self.ended.get_mut(&life) {
            Some((since, noticed @ false)) if is_down => {
                *noticed = true;
                Some(now.since(*since))
            }
            _ => None,
        };
        let falsely = view.state == MemberState::Dead && self.lived.contains_key(&life);
        (noticed, falsely)
    }
}
