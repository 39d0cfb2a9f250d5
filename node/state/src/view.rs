//! Who the members are, and who of them owns what.

use crate::config::{MEMBERS_MAX, OWNERS, PLACES_MAX};
use protocol::event::{MemberState, MemberView};
use protocol::id::{Incarnation, NodeId};
use protocol::state::weight;
use protocol::time::{Span, Time};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Member {
    incarnation: Incarnation,
    /// Since when it is dead.
    dead: Option<Time>,
    state: MemberState,
}

/// The owners of a place, who wants it most first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owners {
    nodes: [NodeId; OWNERS],
    count: usize,
}

impl Owners {
    fn new(ranked: &[NodeId]) -> Self {
        let mut nodes = [NodeId([0; 32]); OWNERS];
        let filled = nodes.iter_mut().zip(ranked).map(|(node, ranked)| *node = *ranked);
        let count = filled.count();
        Self { nodes, count }
    }
}

impl std::ops::Deref for Owners {
    type Target = [NodeId];
    fn deref(&self) -> &[NodeId] {
        self.nodes.get(..self.count).unwrap_or_default()
    }
}

/// What news of a member means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Nothing,
    /// It may have missed something.
    Missed,
    /// Others own things now, or it may have lost what it had.
    Owners,
}

/// The members as gossip tells of them, this node included.
#[derive(Debug)]
pub(crate) struct View {
    me: NodeId,
    leaving: bool,
    others: BTreeMap<NodeId, Member>,
    /// How often others came to own things, or may have lost what they had.
    changes: u64,
    /// Since then.
    owners: BTreeMap<[u8; 16], Owners>,
}

impl View {
    pub(crate) fn new(me: NodeId) -> Self {
        let (others, owners) = (BTreeMap::new(), BTreeMap::new());
        Self { me, leaving: false, others, changes: 1, owners }
    }

    /// This node owns nothing any more.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.changed();
    }

    fn changed(&mut self) {
        self.changes += 1;
        self.owners.clear();
    }

    /// Changes with the owners of anything, and when one may have lost what it had.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// There is such a member; it counts as dead until gossip says otherwise.
    pub(crate) fn introduce(&mut self, now: Time, node: NodeId) {
        if node != self.me && self.others.len() < MEMBERS_MAX {
            let (incarnation, state) = (Incarnation::default(), MemberState::Dead);
            self.others.entry(node).or_insert(Member { incarnation, dead: Some(now), state });
        }
    }

    /// Takes in what gossip says.
    pub(crate) fn learn(&mut self, now: Time, view: &MemberView) -> News {
        let news = self.note(now, view);
        if news == News::Owners {
            self.changed();
        }
        news
    }

    fn note(&mut self, now: Time, view: &MemberView) -> News {
        if view.node == self.me {
            return News::Nothing;
        }
        if view.state == MemberState::Left {
            let had = self.others.remove(&view.node).is_some();
            return if had { News::Owners } else { News::Nothing };
        }
        let before = self.others.get(&view.node).copied();
        if before.is_none() && self.others.len() >= MEMBERS_MAX {
            return News::Nothing;
        }
        let dead = (view.state == MemberState::Dead)
            .then(|| before.and_then(|member| member.dead).unwrap_or(now));
        let member = Member { incarnation: view.incarnation, dead, state: view.state };
        self.others.insert(view.node, member);
        match before {
            Some(before) if before.incarnation == member.incarnation => {
                match (before.dead.is_some() == dead.is_some(), before.state == member.state) {
                    (true, true) => News::Nothing,
                    (true, false) => News::Missed,
                    (false, _) => News::Owners,
                }
            }
            _ => News::Owners,
        }
    }

    /// Forgets members that are dead for so long. True when there were some.
    pub(crate) fn forget(&mut self, now: Time, after: Span) -> bool {
        let before = self.others.len();
        self.others.retain(|_, member| member.dead.is_none_or(|since| now.since(since) < after));
        self.others.len() < before
    }

    pub(crate) fn is_member(&self, node: &NodeId) -> bool {
        self.others.contains_key(node)
    }

    /// Whether it is a member and not dead.
    pub(crate) fn lives(&self, node: &NodeId) -> bool {
        self.others.get(node).is_some_and(|member| member.dead.is_none())
    }

    /// Members that count, living or dead, this node included.
    pub(crate) fn known(&self) -> usize {
        self.others.len() + usize::from(!self.leaving)
    }

    fn ranked(&self, place: &[u8; 16], only_living: bool, most: usize) -> Vec<NodeId> {
        let others = self.others.iter().filter(|(_, m)| !only_living || m.dead.is_none());
        let me = (!self.leaving).then_some(self.me);
        let all = others.map(|(node, _)| *node).chain(me);
        let mut ranked: Vec<(u64, NodeId)> = all.map(|node| (weight(place, &node), node)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked.truncate(most);
        ranked.into_iter().map(|(_, node)| node).collect()
    }

    /// The owners of a place: suspects too, since they mostly live.
    pub(crate) fn owners(&mut self, place: &[u8; 16]) -> Owners {
        if let Some(owners) = self.owners.get(place) {
            return *owners;
        }
        let owners = Owners::new(&self.ranked(place, true, OWNERS));
        if self.owners.len() >= PLACES_MAX {
            self.owners.clear();
        }
        self.owners.insert(*place, owners);
        owners
    }

    /// The living members nearest to a place.
    pub(crate) fn living(&self, place: &[u8; 16], most: usize) -> Vec<NodeId> {
        self.ranked(place, true, most)
    }

    /// The members nearest to a place, living or dead.
    pub(crate) fn nearest(&self, place: &[u8; 16], most: usize) -> Vec<NodeId> {
        self.ranked(place, false, most)
    }
}

#[cfg(test)]
mod tests;
