//! Prompts that are sent from where the other side has them, without a wire between.

use super::kept::Kept;
use super::sent::{LEAST, Sent};
use proptest::prelude::*;
use protocol::hash::{GRANULE, PrefixHash, Token};
use protocol::id::Target;
use protocol::id::{EngineId, Incarnation, NodeId, RequestId, TenantId};
use protocol::plan::{Estimate, Placed, Plan};
use protocol::prompt::{Hints, Limits, Prompt, Sampling};
use protocol::wire::serve::{Line, ServeAsk, ServeRequest};
use protocol::wire::{decode, encode};
use std::sync::Arc;

const ROOM: u64 = 1 << 24;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn request(tokens: &[Token]) -> ServeRequest {
    let target = Target {
        node: node(0),
        incarnation: Incarnation::default(),
        engine: EngineId(0),
        dp_rank: 0,
    };
    let mut names: Vec<PrefixHash> = Vec::new();
    for granule in tokens.chunks_exact(GRANULE) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&names.last().copied().unwrap_or_default().0.to_le_bytes());
        for token in granule {
            hasher.update(&token.0.to_le_bytes());
        }
        let digest = hasher.finalize();
        names.push(PrefixHash(u128::from_le_bytes(digest.as_bytes()[..16].try_into().unwrap())));
    }
    ServeRequest {
        prompt: Prompt {
            id: RequestId(1),
            model: "m".into(),
            tenant: TenantId::local(),
            session: None,
            tokens: tokens.to_vec().into(),
            prefix: names.into(),
            salt: None,
            sampling: Sampling::GREEDY,
            limits: Limits { max_tokens: 1, stop_tokens: vec![] },
            constraint: None,
            hints: Hints::default(),
        },
        placed: Placed {
            plan: Plan {
                prefill: target,
                decode: target,
                sources: vec![],
                estimate: Estimate::default(),
            },
            outcome: String::new(),
        },
        bounced: false,
    }
}

/// What was sent, in bytes: first, and again when it had to be.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    first: usize,
    again: Option<usize>,
}

/// Sends a request from member 1 to member 2 and checks what arrives.
fn send(sent: &Sent, kept: &Kept, request: &ServeRequest) -> Cost {
    let mut parcel = sent.parcel(node(2), request);
    let whole = |parcel: &super::sent::Parcel| encode(&parcel.whole(request)).unwrap();
    let bytes = match parcel.is_short() {
        true => encode(&parcel.short(request)).unwrap(),
        false => whole(&parcel),
    };
    let first = bytes.len();
    let mut again = None;
    let arrived = kept.whole(node(1), decode::<ServeAsk>(&bytes).unwrap()).unwrap_or_else(|| {
        sent.unknown(&mut parcel);
        let bytes = whole(&parcel);
        again = Some(bytes.len());
        kept.whole(node(1), decode::<ServeAsk>(&bytes).unwrap()).unwrap()
    });
    assert_eq!(&arrived, request);
    sent.arrived(&parcel);
    Cost { first, again }
}

fn tokens(from: u32, count: usize) -> Vec<Token> {
    (from..).take(count).map(Token).collect()
}

#[test]
fn only_what_is_new_is_sent() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let mut history = tokens(1000, 50_000);
    let first = send(&sent, &kept, &request(&history));
    assert!(first.first > 100_000, "{first:?}");
    for turn in 0..20 {
        // The last tokens of a prompt are often written otherwise in the next.
        history.truncate(history.len() - 7);
        history.extend(tokens(turn * 10_000, 600));
        let Cost { first, again } = send(&sent, &kept, &request(&history));
        assert!(first < 4000 && again.is_none(), "turn {turn}: {first} {again:?}");
    }
    // The same again; cut short; and from a place of long ago.
    let same = send(&sent, &kept, &request(&history));
    assert!(same.first < 500 && same.again.is_none(), "{same:?}");
    history.truncate(40_000);
    let cut = send(&sent, &kept, &request(&history));
    assert!(cut.first < 80_000 && cut.again.is_none(), "{cut:?}");
}

#[test]
fn branches_of_one_history_do_not_push_each_other_out() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let trunk = tokens(0, 32_000);
    send(&sent, &kept, &request(&trunk));
    let mut branches: Vec<Vec<Token>> =
        (0..3).map(|n| [&trunk[..], &tokens(100_000 * (n + 1), 2000)].concat()).collect();
    for turn in 0..4 {
        for branch in &mut branches {
            branch.extend(tokens(turn * 7000, 500));
            send(&sent, &kept, &request(branch));
        }
    }
    for branch in &mut branches {
        branch.extend(tokens(0, 500));
        let cost = send(&sent, &kept, &request(branch));
        assert!(cost.first < 4000 && cost.again.is_none(), "{cost:?}");
    }
}

#[test]
fn a_member_that_forgot_is_sent_all() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let mut history = tokens(0, 20_000);
    send(&sent, &kept, &request(&history));
    history.extend(tokens(0, 100));
    let restarted = Kept::new(ROOM);
    assert!(send(&sent, &restarted, &request(&history)).again.is_some());
    history.extend(tokens(0, 100));
    assert!(send(&sent, &restarted, &request(&history)).again.is_none());
}

#[test]
fn new_sessions_find_room_where_ended_ones_have_taken_it() {
    // Room for about twelve of these prompts.
    let (sent, kept) = (Sent::new(), Kept::new(12 * 25_000));
    let go_on = |session: u32, turns: std::ops::Range<usize>| {
        turns
            .map(|turn| {
                let history = tokens(session * 10_000, 4800 + turn * 50);
                let cost = send(&sent, &kept, &request(&history));
                kept.settle();
                cost
            })
            .last()
    };
    for ended in 0..30 {
        go_on(ended, 0..6);
    }
    // Some at once, each a turn after the others.
    for session in 100..106 {
        go_on(session, 0..1);
    }
    for session in 100..106 {
        let cost = go_on(session, 1..2).unwrap();
        assert!(cost.first < 1000 && cost.again.is_none(), "{session}: {cost:?}");
    }
}

#[test]
fn short_prompts_are_not_kept() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let request = request(&tokens(0, (LEAST - 1) * GRANULE + 5));
    let first = send(&sent, &kept, &request);
    assert_eq!(sent.parcel(node(2), &request).whole(&request).keep_as, None);
    assert_eq!(send(&sent, &kept, &request), first);
}

#[test]
fn members_do_not_see_what_others_sent() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let request = request(&tokens(0, 20_000));
    send(&sent, &kept, &request);
    let parcel = sent.parcel(node(2), &request);
    assert!(parcel.is_short());
    assert_eq!(kept.whole(node(3), parcel.short(&request)), None);
    assert!(!sent.parcel(node(3), &request).is_short());
}

#[test]
fn asks_that_lie_about_their_beginning_are_not_known() {
    let (sent, kept) = (Sent::new(), Kept::new(ROOM));
    let request = request(&tokens(0, 20_000));
    send(&sent, &kept, &request);
    let parcel = sent.parcel(node(2), &request);
    let short = parcel.short(&request);
    let ask = |change: &dyn Fn(&mut protocol::wire::serve::Beginning)| {
        let mut ask = short.clone();
        change(ask.beginning.as_mut().unwrap());
        kept.whole(node(1), ask)
    };
    assert_eq!(ask(&|_| {}), Some(request.clone()));
    assert_eq!(ask(&|b| b.granules = 0), None);
    assert_eq!(ask(&|b| b.granules -= 1), None);
    assert_eq!(ask(&|b| b.granules = u32::MAX), None);
    assert_eq!(ask(&|b| b.last.0 ^= 1), None);
    assert_eq!(ask(&|b| b.line = Line(u64::MAX)), None);
    // Names without their tokens.
    let mut odd = request.clone();
    odd.prompt.tokens = Arc::new(tokens(0, 100));
    let parcel = sent.parcel(node(2), &odd);
    assert!(!parcel.is_short());
}

proptest! {
    /// Whatever is sent, kept and forgotten: what arrives is what was sent.
    #[test]
    fn what_arrives_is_what_was_sent(
        steps in prop::collection::vec((0usize..4, 0usize..3000, 1u32..4, 0usize..2500, 0u8..12), 1..25),
    ) {
        let sent = Sent::new();
        let mut kept = Kept::new(1 << 17);
        let mut histories = vec![Vec::<Token>::new(); 4];
        for (which, cut, from, more, fate) in steps {
            let mut history = histories[which].clone();
            history.truncate(history.len().saturating_sub(cut));
            history.extend(tokens(from * 1000, more));
            send(&sent, &kept, &request(&history));
            histories[which] = history;
            match fate {
                0 => kept = Kept::new(1 << 17),
                1 => histories[(which + 1) % 4] = histories[which].clone(),
                _ => {}
            }
        }
    }
}
