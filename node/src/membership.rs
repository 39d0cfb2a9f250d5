//! What a node knows as a member: the cluster's secrets, its own certificate, the other members.

use crate::clock::Clock;
use protocol::event::Contact;
use protocol::id::{ClusterId, NodeId};
use protocol::sign::Keypair;
use protocol::trust::{CERT_SECONDS, LABEL_ISSUER, MemberCert, UnixTime, cluster_of};
use protocol::wire::join::Admission;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroize;

/// The durable record of a membership. Holds secrets: no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// Public key of the cluster's issuer.
    pub(crate) issuer: NodeId,
    /// Pre-shared key of the libp2p swarm.
    pub(crate) swarm_key: [u8; 32],
    /// Salt root, with its version.
    pub(crate) salt_root: (u16, [u8; 32]),
    /// The issuing key, for members that may admit.
    issuing_seed: Option<[u8; 32]>,
    /// This node's certificate.
    pub(crate) cert: MemberCert,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.swarm_key.zeroize();
        self.salt_root.1.zeroize();
        self.issuing_seed.zeroize();
    }
}

impl Membership {
    /// Founds a cluster: a new issuing key, swarm key and salt root, and the founder's
    /// certificate.
    pub(crate) fn found(node: NodeId, entropy: [[u8; 32]; 3]) -> Self {
        let [issuing_seed, swarm_key, salt_root] = entropy;
        let issuing = Keypair::from_seed(&issuing_seed);
        let cluster = cluster_of(&issuing.node());
        let labels = vec![LABEL_ISSUER.to_owned()];
        Self {
            issuer: issuing.node(),
            swarm_key,
            salt_root: (1, salt_root),
            issuing_seed: Some(issuing_seed),
            cert: MemberCert::issue(&issuing, cluster, node, labels, Clock::unix()),
        }
    }

    /// What an admission makes of this node.
    pub(crate) fn admitted(issuer: NodeId, admission: &Admission) -> Self {
        Self {
            issuer,
            swarm_key: admission.swarm_key,
            salt_root: admission.salt_root,
            issuing_seed: admission.issuing_seed,
            cert: admission.cert.clone(),
        }
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> ClusterId {
        cluster_of(&self.issuer)
    }

    /// The issuing key, where this member may admit.
    pub(crate) fn issuing(&self) -> Option<Keypair> {
        self.issuing_seed.as_ref().map(Keypair::from_seed)
    }

    /// Its seed, to hand on to an admitted issuer.
    pub(crate) fn issuing_seed(&self) -> Option<[u8; 32]> {
        self.issuing_seed
    }

    /// Renews the own certificate when half of its life is over and this member may.
    pub(crate) fn renew(&mut self, now: UnixTime) -> bool {
        let half = self.cert.issued.0.saturating_add(CERT_SECONDS / 2);
        let Some(issuing) = self.issuing().filter(|_| now.0 >= half) else { return false };
        let labels = self.cert.labels.clone();
        self.cert = MemberCert::issue(&issuing, self.cluster(), self.cert.node, labels, now);
        true
    }
}

/// A member as it is remembered across restarts.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct KnownMember {
    /// Its certificate.
    pub(crate) cert: MemberCert,
    /// Where it was last.
    pub(crate) contact: Contact,
}

/// The members known here: who may connect, and where to find them.
#[derive(Default, Clone)]
pub(crate) struct Roster(Arc<RwLock<BTreeMap<NodeId, KnownMember>>>);

impl Roster {
    /// Adds a member or replaces its certificate; its contact is kept.
    pub(crate) fn admit(&self, cert: MemberCert) {
        let mut members = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let contact = members.get(&cert.node).map(|m| m.contact.clone()).unwrap_or_default();
        members.insert(cert.node, KnownMember { cert, contact });
    }

    /// Takes a member's rights away.
    pub(crate) fn expel(&self, node: &NodeId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// Notes where a member is; unknown nodes are ignored. True when that is news.
    pub(crate) fn locate(&self, node: &NodeId, contact: &Contact) -> bool {
        let mut members = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match members.get_mut(node) {
            Some(member) if member.contact != *contact => {
                member.contact.clone_from(contact);
                true
            }
            _ => false,
        }
    }

    /// Whether `node` holds a certificate that is valid now.
    pub(crate) fn is_member(&self, node: &NodeId, now: UnixTime) -> bool {
        let members = self.0.read().unwrap_or_else(PoisonError::into_inner);
        members.get(node).is_some_and(|member| now <= member.cert.expires)
    }

    /// One member.
    pub(crate) fn get(&self, node: &NodeId) -> Option<KnownMember> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// All members.
    pub(crate) fn all(&self) -> Vec<KnownMember> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Cluster addresses of a member, best first.
    pub(crate) fn addresses(&self, node: &NodeId) -> Vec<std::net::SocketAddr> {
        self.get(node).map_or_else(Vec::new, |member| {
            member.contact.cluster.iter().filter_map(|a| a.parse().ok()).collect()
        })
    }
}
