use super::*;
use protocol::hash::{RoutingKey, RoutingNamespace};
use protocol::id::EngineId;
use protocol::op::LeaseId;
use protocol::prompt::RangeClaim;
use protocol::time::Span;

fn at(s: u64) -> Time {
    Time::ZERO + Span::secs(s)
}

fn held(session: &str, priority: i32, pin: Option<u64>, lapse: u64) -> Held {
    let session = SessionId::new(session);
    Held {
        pin: pin.map(at),
        level: Level::new(priority, BlockClass::Context),
        lapse: at(lapse),
        owner: Arc::new(Owner { tenant: TenantId::local(), session }),
    }
}

fn claim(class: BlockClass, ttl: Option<u64>) -> Claim {
    let ttl = ttl.map(Span::secs);
    Claim { session: None, tenant: TenantId::local(), class, priority: 0, ttl, max_age: None }
}

fn wishes(claims: Vec<RangeClaim>) -> (Wishes, u64) {
    let namespace =
        RoutingNamespace { weights: [0; 32], tokenizer: [0; 32], lora: None, hash_version: 1 };
    let prepare = Prepare {
        lease: LeaseId(1),
        engine: EngineId(0),
        tenant: TenantId::local(),
        session: SessionId::new("s"),
        key: RoutingKey::derive(&namespace, &[0; 32]),
        prefix: Vec::new().into(),
        prompt_tokens: 64,
        max_tokens: 1,
        sources: Vec::new(),
        claims,
        priority: 3,
    };
    Wishes::read(&prepare, Time::ZERO, &Limits::default())
}

#[test]
fn pins_outrank_levels_and_levels_outrank_recency() {
    let rank = |pin: Option<u64>, priority: Option<i32>, used| Rank {
        pin: pin.map(at),
        level: priority.map(|p| Level::new(p, BlockClass::Context)),
        used,
    };
    let order = [
        rank(None, None, 9),
        rank(None, Some(-1), 8),
        rank(None, Some(0), 1),
        rank(None, Some(0), 2),
        rank(None, Some(5), 0),
        rank(Some(10), None, 0),
        rank(Some(20), Some(-9), 0),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert!(Level::new(0, BlockClass::System) > Level::new(0, BlockClass::Reasoning));
    assert!(Level::new(1, BlockClass::Reasoning) > Level::new(0, BlockClass::System));
}

#[test]
fn retention_is_the_maximum_over_live_claims() {
    let mut claims = Claims::default();
    claims.add(held("a", 1, None, 100));
    claims.add(held("b", 7, Some(30), 50));
    assert_eq!(claims.rank(0).level, Some(Level::new(7, BlockClass::Context)));
    assert_eq!((claims.pin(), claims.next_lapse()), (Some(at(30)), Some(at(30))));
    assert!(claims.lapse(at(30)).is_empty(), "the pin ends, the claim lives on");
    assert_eq!((claims.pin(), claims.next_lapse()), (None, Some(at(50))));
    assert_eq!(claims.lapse(at(50)).len(), 1);
    assert_eq!(claims.rank(0).level, Some(Level::new(1, BlockClass::Context)));
    claims.end(&held("a", 0, None, 0).owner);
    assert_eq!(claims.rank(0).level, None);
}

#[test]
fn renewing_never_shortens_a_pin_and_a_pin_outlives_its_claims_lapse() {
    let mut claims = Claims::default();
    claims.add(held("a", 1, Some(90), 10));
    claims.add(held("a", 2, None, 20));
    assert_eq!(claims.rank(0).pin, Some(at(90)));
    assert_eq!(claims.rank(0).level, Some(Level::new(2, BlockClass::Context)));
    assert!(claims.lapse(at(89)).is_empty());
    assert_eq!(claims.lapse(at(90)).len(), 1);
}

#[test]
fn a_block_keeps_its_worthiest_claims() {
    let mut claims = Claims::default();
    for n in 0..CLAIMS_MAX {
        assert!(claims.add(held(&format!("s{n}"), 10 + n as i32, None, 100)).is_none());
    }
    let dropped = claims.add(held("pinned", -5, Some(50), 100)).unwrap();
    assert_eq!(dropped.session, SessionId::new("s0"));
    let dropped = claims.add(held("low", -5, None, 100)).unwrap();
    assert_eq!(dropped.session, SessionId::new("low"));
}

#[test]
fn claims_cover_the_blocks_they_touch_and_the_request_the_rest() {
    let range = |start, end, claim| RangeClaim { start, end, claim };
    let (wishes, clipped) = wishes(vec![
        range(0, 20, claim(BlockClass::System, Some(300))),
        range(10, 16, claim(BlockClass::Tools, None)),
        range(16, 32, claim(BlockClass::Reasoning, Some(1_000_000))),
    ]);
    assert_eq!(clipped, 1, "the long pin");
    let limits = Limits::default();
    let stamp = |block: u32, s| wishes.stamp(block * 16, block * 16 + 16, at(s), &limits);
    let first = stamp(0, 5);
    assert_eq!(first.held.len(), 1, "one owner, one claim");
    assert_eq!(first.held[0].level, Level::new(0, BlockClass::System));
    assert_eq!(first.held[0].pin, Some(at(300)));
    assert_eq!(first.held[0].owner.session, SessionId::new("s"));
    assert_eq!(stamp(1, 5).held[0].pin, Some(Time::ZERO + limits.pin));
    assert_eq!(stamp(0, 301).held[0].pin, None, "run out before the block was full");
    let rest = stamp(2, 5);
    assert_eq!(rest.held[0].level, Level::new(3, BlockClass::Context));
    assert_eq!(rest.held[0].lapse, at(5) + limits.claim_life);
}

#[test]
fn a_request_has_a_bounded_number_of_claims() {
    let one = RangeClaim { start: 0, end: 16, claim: claim(BlockClass::Tools, None) };
    let (wishes, clipped) = wishes(vec![one; 40]);
    assert_eq!((wishes.ranges.len(), clipped), (32, 8));
}
