//! Claims as the disk keeps them: spans that remain, so that they mean the same in a later life.

use crate::config::Limits;
use crate::retain::{Held, Level, Owner, Stamp, earlier};
use protocol::block::Claim;
use protocol::disk::DISK_CLAIMS_MAX;
use protocol::id::TenantId;
use protocol::time::{Span, Time};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// What remains of a block's claims at `now`, the worthiest first. The block's legal end goes with
/// the first claim.
pub(crate) fn to_disk(stamp: &Stamp, now: Time) -> Vec<Claim> {
    let mut held: Vec<&Held> = stamp.held.iter().collect();
    held.sort_by(|a, b| b.cmp(a));
    let claim = |held: &&Held| Claim {
        session: held.owner.session.clone(),
        tenant: held.owner.tenant.clone(),
        class: held.level.class(),
        priority: held.level.priority(),
        ttl: held.pin.map(|until| until.since(now)).filter(|span| *span > Span::ZERO),
        max_age: None,
    };
    let mut claims: Vec<Claim> = held.iter().take(DISK_CLAIMS_MAX).map(claim).collect();
    let Some(end) = stamp.age else {
        return claims;
    };
    if claims.is_empty() {
        // Nobody claims it, but it must end all the same.
        let (session, tenant) = (None, TenantId::local());
        let class = protocol::block::BlockClass::default();
        claims.push(Claim { session, tenant, class, priority: 0, ttl: None, max_age: None });
    }
    if let Some(first) = claims.first_mut() {
        first.max_age = Some(end.since(now));
    }
    claims
}

/// The claims of a block found on disk, begun again at `now`; `None` when its legal end has come.
pub(crate) fn from_disk(claims: &[Claim], now: Time, limits: &Limits) -> Option<Stamp> {
    let mut stamp = Stamp::default();
    for claim in claims.iter().take(DISK_CLAIMS_MAX) {
        let owner = Owner { tenant: claim.tenant.clone(), session: claim.session.clone() };
        let pin = claim.ttl.filter(|ttl| *ttl > Span::ZERO).map(|ttl| now + ttl.min(limits.pin));
        stamp.add(Held {
            pin,
            level: Level::new(claim.priority, claim.class),
            lapse: now + limits.claim_life,
            owner: Arc::new(owner),
        });
        stamp.age = earlier(stamp.age, claim.max_age.map(|span| now + span));
    }
    stamp.age.is_none_or(|age| age > now).then_some(stamp)
}
