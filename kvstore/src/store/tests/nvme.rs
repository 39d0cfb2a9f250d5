//! The NVMe tier: what is written, read again, lost and found.

use super::world::*;
use super::*;
use protocol::block::{BlockClass, Claim, ContentDigest, SignedDigest, SlotId};
use protocol::disk::{DiskBlock, DiskEvent, DiskOp};
use protocol::id::{SessionId, TenantId};
use protocol::op::{Arriving, ArrivingFrom, EngineOp, Grant};
use protocol::prompt::RangeClaim;

const ENGINE: Name = Name::Engine(EngineId(0));

fn with_disk() -> Setup {
    Setup { nvme: 64, ..Setup::default() }
}

fn from(grant: &Grant) -> Vec<(u32, ArrivingFrom)> {
    grant.arriving.iter().map(|Arriving { index, from, .. }| (*index, *from)).collect()
}

/// Forgets all of DRAM and of the engine by serving others, until only NVMe has the prompt.
fn only_on_disk(setup: Setup, n: usize) -> World {
    let mut world = World::new(setup);
    world.serve(&prompt(1, n), 1);
    world.restart(setup)
}

fn writes(world: &World) -> Vec<&DiskOp> {
    world.disk.pending.iter().filter(|op| matches!(op, DiskOp::Write { .. })).collect()
}

#[test]
fn blocks_are_written_through_to_nvme_and_read_again() {
    let mut world = only_on_disk(with_disk(), 100);
    let tokens = prompt(1, 100);
    assert_eq!([ENGINE, Name::Dram, Name::Nvme].map(|t| world.run(t, &tokens)), [0, 0, 6]);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    assert_eq!(from(&grant), (0..6).map(|i| (i, ArrivingFrom::Nvme)).collect::<Vec<_>>());
    world.finish(grant.lease);
    assert_eq!([ENGINE, Name::Dram, Name::Nvme].map(|t| world.run(t, &tokens)), [6, 6, 6]);
    let c = world.counters();
    assert_eq!((c.nvme_tokens, c.uncached_tokens, c.nvme_reads), (96, 4, 6));
    assert_eq!(c.nvme_writes, 0, "what is there is not written again");
    world.settle();
}

#[test]
fn a_chain_is_written_side_by_side_and_announced_from_the_root() {
    let mut world = World::new(with_disk());
    let tokens = prompt(1, 70);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    while world.compute(grant.lease, false) {}
    while !world.engine_ops.is_empty() {
        world.perform(0, true);
    }
    assert_eq!(writes(&world).len(), 4);
    for (pick, on_disk) in [(3, 0), (1, 0), (0, 2), (0, 4)] {
        world.perform_disk(pick, 0);
        assert_eq!(world.run(Name::Nvme, &tokens), on_disk);
    }
    world.settle();
}

#[test]
fn a_failed_write_takes_those_after_it_along_and_is_made_again_when_wanted() {
    let mut world = World::new(with_disk());
    let tokens = prompt(1, 70);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    while world.compute(grant.lease, false) {}
    while !world.engine_ops.is_empty() {
        world.perform(0, true);
    }
    world.perform_disk(2, 0); // block 2 is durable, and waits for block 1
    world.perform_disk(1, 2); // which fails
    world.perform_disk(0, 0);
    world.perform_disk(0, 0); // block 3: its parent is not there
    assert_eq!(world.run(Name::Nvme, &tokens), 1);
    let c = world.counters();
    assert_eq!((c.nvme_written, c.nvme_write_failed, c.nvme_orphans), (3, 1, 2));
    assert_eq!(world.disk.records.len(), 1, "the orphans were forgotten");
    world.release(grant.lease);
    world.serve(&prompt(1, 90), 1);
    assert_eq!(world.run(Name::Nvme, &tokens), 4);
    world.settle();
}

#[test]
fn the_disk_is_never_fuller_than_its_limit_and_evicts_leaf_first() {
    let mut world = World::new(Setup { nvme: 8, ..Setup::default() });
    for family in 1..8 {
        world.serve(&prompt(family, 100), 1); // three times what fits, and more
        let stats = *world.store.stats().tiers.last().unwrap();
        assert!(stats.blocks <= 8 && stats.slots.total() == 8);
    }
    assert!(world.store.stats().tiers.last().unwrap().evicted >= 24);
    let runs: Vec<usize> = (1..8).map(|f| world.run(Name::Nvme, &prompt(f, 100))).collect();
    assert_eq!(runs[6], 6, "the last is whole: {runs:?}");
    assert_eq!(runs.iter().sum::<usize>(), 8, "what is there is a prefix: {runs:?}");
    world.settle();
}

#[test]
fn late_failed_and_corrupt_blocks_are_computed_and_only_corrupt_ones_leave() {
    for (kind, left, counted) in [(1, 2, [1, 0, 0]), (2, 6, [0, 1, 0]), (3, 6, [0, 0, 1])] {
        let mut world = only_on_disk(with_disk(), 100);
        let tokens = prompt(1, 100);
        let ask = world.ask(&tokens, 1);
        let grant = world.prepare(&tokens, ask).unwrap();
        world.submit(grant.lease);
        world.log.clear();
        world.perform_disk(2, kind);
        let missed = |out: &&Out| matches!(out, Out::Engine(_, EngineOp::Missed { .. }));
        assert_eq!(world.log.iter().filter(missed).count(), 1);
        assert_eq!(world.run(Name::Nvme, &tokens), left, "a corrupt block takes its children");
        world.finish(grant.lease);
        assert_eq!(world.run(Name::Nvme, &tokens), 6, "written again");
        let c = world.counters();
        assert_eq!([c.nvme_corrupt, c.nvme_failed, c.nvme_late], counted);
        assert_eq!((c.nvme_tokens, c.uncached_tokens), (80, 20));
        world.settle();
    }
}

#[test]
fn two_requests_share_one_read() {
    let mut world = only_on_disk(with_disk(), 100);
    let tokens = prompt(1, 100);
    let leases = [(); 2].map(|()| {
        let ask = world.ask(&tokens, 1);
        let grant = world.prepare(&tokens, ask).unwrap();
        assert_eq!(grant.arriving.len(), 6);
        world.submit(grant.lease);
        grant.lease
    });
    assert_eq!(world.counters().nvme_reads, 6);
    world.release(leases[0]); // the second still gets it
    world.perform_disk(0, 0);
    assert_eq!(world.engine_ops.len(), 1);
    world.finish(leases[1]);
    assert_eq!(world.counters().nvme_tokens, 96);
    world.settle();
}

#[test]
fn a_read_has_as_long_as_computing_would_take() {
    let mut world = only_on_disk(with_disk(), 100);
    let tokens = prompt(1, 100);
    let deadline = |world: &mut World| {
        let ask = world.ask(&tokens, 1);
        let grant = world.prepare(&tokens, ask).unwrap();
        world.release(grant.lease);
        world.perform_all();
        grant.arriving[5].deadline.since(world.now)
    };
    assert_eq!(deadline(&mut world), world.store.limits.disk_read, "not measured");
    for (rate, ms) in [(96.0, 1000.0), (1e9, 250.0), (1e-9, 30_000.0)] {
        let mut world = only_on_disk(with_disk(), 100);
        let load = EngineLoad { prefill_rate: rate, ..EngineLoad::default() };
        world.event_of(EngineId(0), EngineEvent::Load(load));
        assert_eq!(deadline(&mut world).as_ms(), ms);
    }
}

#[test]
fn a_plans_source_is_preferred_to_nvme() {
    let mut world = only_on_disk(with_disk(), 100);
    let (tokens, peer) = (prompt(1, 100), world.peer());
    let mut ask = world.ask(&tokens, 1);
    let source = world.source(100);
    ask.sources.push(protocol::plan::Source { start: 64, ..source });
    let grant = world.prepare(&tokens, ask).unwrap();
    let mut want: Vec<_> = (0..4).map(|i| (i, ArrivingFrom::Nvme)).collect();
    want.extend((4..6).map(|i| (i, ArrivingFrom::Peer(peer))));
    assert_eq!(from(&grant), want);
    world.settle();
}

#[test]
fn a_sick_disk_is_left_alone_until_it_tells_what_it_holds() {
    let mut world = only_on_disk(with_disk(), 100);
    let tokens = prompt(1, 100);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    // Also when the tier got operations while the word of its failure was on its way.
    world.disk.sick = true;
    let late = std::mem::take(&mut world.disk.pending);
    world.give(In::Disk(DiskEvent::Quarantined { reason: "EIO".into() }));
    assert!(world.log.contains(&Out::Event(BlockEvent::Cleared { holder: Holder::Nvme })));
    assert_eq!((world.run(Name::Nvme, &tokens), world.counters().nvme_failed), (0, 6));
    assert!(!world.store.stats().nvme_online);
    world.finish(grant.lease);
    // Their slots are nobody else's until they are answered, as whatever.
    world.store.audit();
    assert_eq!(world.store.stats().operations, late.len());
    for (n, read) in late.into_iter().enumerate() {
        let DiskOp::Read { op, key, .. } = read else { panic!() };
        let result = match n {
            0 => protocol::disk::DiskRead::Verified(Box::new(world.signed(key))),
            _ => protocol::disk::DiskRead::Failed,
        };
        world.give(In::Disk(DiskEvent::Read { op, result }));
    }
    assert_eq!((world.store.stats().operations, world.counters().stale), (0, 0));
    world.serve(&prompt(2, 100), 1);
    assert_eq!(world.counters().nvme_writes, 0);
    world.tell_found();
    assert_eq!(world.run(Name::Nvme, &tokens), 6);
    world.serve(&prompt(2, 110), 1);
    assert_eq!(world.run(Name::Nvme, &prompt(2, 110)), 6, "made up for");
    world.settle();
}

/// It may turn out corrupt, and lose a block that the disk has told of since.
#[test]
fn a_slot_still_being_read_is_not_used_when_the_disk_tells_of_it() {
    let mut world = only_on_disk(with_disk(), 100);
    let tokens = prompt(1, 100);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.sicken(true);
    world.tell_found();
    assert_eq!(world.run(Name::Nvme, &tokens), 0);
    world.perform_disk(0, 1);
    world.finish(grant.lease);
    assert_eq!(world.run(Name::Nvme, &tokens), 6, "written again");
    let c = world.counters();
    assert_eq!((c.nvme_failed, c.nvme_corrupt, c.nvme_verified), (6, 0, 0));
    world.settle();
}

#[test]
fn what_is_found_and_cannot_be_used_is_forgotten() {
    let mut world = World::new(with_disk());
    world.serve(&prompt(1, 100), 1);
    let keys = world.keys(&prompt(1, 100));
    let mut records = world.disk.found();
    let good = records[0].1.clone();
    let put = |records: &mut Vec<(SlotId, DiskBlock)>, slot, block| {
        records.push((SlotId(slot), block));
    };
    records.truncate(3);
    let foreign = BlockKey { storage: StorageId(9), ..keys[0] };
    put(&mut records, 20, DiskBlock { key: foreign, ..good.clone() }); // another form
    put(&mut records, 21, good.clone()); // twice
    let orphan = DiskBlock { key: keys[5], parent: Some(keys[4]), tokens: 96, ..good.clone() };
    put(&mut records, 22, orphan); // without parent; also its digest is another block's
    put(&mut records, 99, DiskBlock { key: keys[5], ..good.clone() }); // beyond the tier
    let other = world.keys(&prompt(7, 16))[0];
    let own = |world: &World, tokens, claims| DiskBlock {
        key: other,
        parent: None,
        tokens,
        signed: world.signed(other),
        claims,
    };
    let over = Claim { max_age: Some(Span::ZERO), ..claim(None, None) };
    let [a, b, c] = [own(&world, 0, vec![]), own(&world, 7, vec![]), own(&world, 16, vec![over])];
    put(&mut records, 23, a);
    put(&mut records, 24, b);
    put(&mut records, 25, c);
    let occupied = own(&world, 16, vec![]);
    let taken = records[0].0.0;
    put(&mut records, taken, occupied); // a slot twice
    let mut next = World::new(Setup { nvme: 0, ..with_disk() });
    next.store.disk = crate::disk::Disk::new(64, &Limits::default());
    next.disk = FakeDisk::new(64);
    next.disk.records = records.iter().take(3).cloned().collect();
    let out = next.give(In::Disk(DiskEvent::Found(records)));
    let forgotten = out.iter().filter(|out| matches!(out, Out::Disk(DiskOp::Forget { .. })));
    assert_eq!(forgotten.count(), 8);
    let c = next.counters();
    assert_eq!((c.nvme_found, c.nvme_dropped), (3, 8));
    assert_eq!(next.run(Name::Nvme, &prompt(1, 100)), 3);
    next.settle();
}

fn claim(session: Option<&str>, ttl: Option<u64>) -> Claim {
    Claim {
        session: session.and_then(SessionId::new),
        tenant: TenantId::local(),
        class: BlockClass::System,
        priority: 3,
        ttl: ttl.map(Span::secs),
        max_age: None,
    }
}

fn serve_claimed(world: &mut World, tokens: &[protocol::hash::Token], claim: Claim) {
    let mut ask = world.ask(tokens, 1);
    ask.claims.push(RangeClaim { start: 0, end: tokens.len() as u32, claim });
    let grant = world.prepare(tokens, ask).unwrap();
    world.finish(grant.lease);
}

#[test]
fn claims_survive_a_restart_with_the_time_that_remains() {
    let mut world = World::new(Setup { nvme: 8, ..Setup::default() });
    let tokens = prompt(1, 50);
    let pin = Claim { max_age: Some(Span::secs(1000)), ..claim(Some("a"), Some(100)) };
    serve_claimed(&mut world, &tokens, pin);
    let kept = |world: &World| world.disk.found()[0].1.claims.clone();
    let [only] = &kept(&world)[..] else { panic!() };
    assert_eq!((only.ttl, only.max_age), (Some(Span::secs(100)), Some(Span::secs(1000))));
    assert_eq!((only.class, only.priority), (BlockClass::System, 3));
    // Renewed 70 s later: the disk is told. A second later: not again.
    world.advance(Span::secs(70));
    serve_claimed(&mut world, &tokens, claim(Some("a"), Some(100)));
    assert_eq!(kept(&world)[0].ttl, Some(Span::secs(100)));
    assert_eq!(kept(&world)[0].max_age, Some(Span::secs(930)));
    let keeps = world.disk.keeps;
    world.advance(Span::millis(1));
    serve_claimed(&mut world, &tokens, claim(Some("a"), Some(100)));
    assert_eq!(world.disk.keeps, keeps);

    let mut world = world.restart(Setup { nvme: 8, ..Setup::default() });
    let nvme = |world: &World| *world.store.stats().tiers.last().unwrap();
    assert_eq!((nvme(&world).blocks, nvme(&world).pinned), (3, 3));
    let start = world.now;
    assert_eq!(world.store.deadline(), Some(start + Span::secs(930)));
    for family in 2..5 {
        world.serve(&prompt(family, 150), 1);
    }
    assert_eq!(world.run(Name::Nvme, &tokens), 3, "pinned blocks are not evicted for others");
    assert!(world.counters().nvme_refused_pinned > 0);
    assert_eq!(nvme(&world).pins_broken, 0);
    let session = SessionId::new("a").unwrap();
    world.give(In::SessionFinal { tenant: TenantId::local(), session });
    assert_eq!(nvme(&world).pinned, 0);
    let unpinned = kept(&world);
    assert!(unpinned.iter().all(|claim| claim.ttl.is_none()));
    assert_eq!(unpinned[0].max_age, Some(Span::secs(930)), "the legal end stays");
    world.advance(Span::secs(930));
    assert_eq!(world.run(Name::Nvme, &tokens), 0);
    assert!(world.disk.records.values().all(|block| block.key != world.keys(&tokens)[0]));
    world.settle();
}

/// A prompt on its way to disk; its first block has 5 s to live.
fn writing_bounded(world: &mut World, tokens: &[protocol::hash::Token]) -> LeaseId {
    let mut ask = world.ask(tokens, 1);
    let bound = Claim { max_age: Some(Span::secs(5)), ..claim(None, None) };
    ask.claims.push(RangeClaim { start: 0, end: 16, claim: bound });
    let grant = world.prepare(tokens, ask).unwrap();
    world.submit(grant.lease);
    while world.compute(grant.lease, false) {}
    while !world.engine_ops.is_empty() {
        world.perform(0, true);
    }
    grant.lease
}

#[test]
fn what_reached_its_legal_end_while_it_was_written_is_forgotten() {
    let mut world = World::new(with_disk());
    let tokens = prompt(1, 40);
    let lease = writing_bounded(&mut world, &tokens);
    world.advance(Span::secs(6));
    world.perform_disk(1, 0);
    world.perform_disk(0, 0);
    assert_eq!((world.run(Name::Nvme, &tokens), world.disk.records.len()), (0, 0));
    assert_eq!(world.counters().nvme_orphans, 2);
    world.release(lease);
    world.settle();
}

#[test]
fn a_parent_that_comes_again_while_its_child_is_written_leaves_no_slot_held() {
    let mut world = World::new(with_disk());
    let tokens = prompt(1, 40);
    let lease = writing_bounded(&mut world, &tokens);
    world.release(lease);
    world.perform_disk(0, 0);
    let child = world.disk.pending.pop().unwrap();
    assert_eq!(world.run(Name::Nvme, &tokens), 1);
    world.advance(Span::secs(6));
    assert_eq!(world.run(Name::Nvme, &tokens), 0);
    world.serve(&tokens, 1);
    assert_eq!(world.run(Name::Nvme, &tokens), 1, "in another slot");
    world.disk.pending.push(child);
    world.perform_disk(0, 0);
    assert_eq!(world.run(Name::Nvme, &tokens), 2);
    world.settle();
}

#[test]
fn reasoning_and_what_left_unread_are_not_written() {
    let mut world = World::new(Setup { nvme: 6, ..Setup::default() });
    let reasoning = Claim { class: BlockClass::Reasoning, ..claim(None, None) };
    serve_claimed(&mut world, &prompt(1, 50), reasoning);
    assert_eq!((world.counters().nvme_refused_class, world.counters().nvme_writes), (3, 0));
    world.serve(&prompt(2, 100), 1);
    world.serve(&prompt(3, 100), 1); // evicts the second prompt, unread
    assert_eq!(world.run(Name::Nvme, &prompt(2, 100)), 0);
    world.serve(&prompt(2, 110), 1);
    assert_eq!(world.run(Name::Nvme, &prompt(2, 100)), 0, "once refused");
    assert!(world.counters().nvme_refused_unread > 0);
    for _ in 0..6 {
        world.serve(&prompt(2, 110), 1);
    }
    assert_eq!(world.run(Name::Nvme, &prompt(2, 100)), 6, "it has come back often enough");
    world.settle();
}

#[test]
fn a_slow_disk_holds_at_most_a_quarter_of_dram_and_its_queue_is_bounded() {
    let limits = Limits { disk_queue: 4, ..Limits::default() };
    let mut world = World::new(Setup { nvme: 64, dram: 16, limits, ..Setup::default() });
    let tokens = prompt(1, 200);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    world.submit(grant.lease);
    while world.compute(grant.lease, false) {}
    while !world.engine_ops.is_empty() {
        world.perform(0, true);
    }
    assert_eq!((world.disk.pending.len(), world.store.stats().nvme_waiting), (4, 4));
    assert_eq!(world.counters().nvme_refused_busy, 4);
    world.release(grant.lease);
    world.perform_all();
    assert_eq!(world.run(Name::Nvme, &tokens), 8);
    world.settle();
}

#[test]
fn nothing_is_written_before_the_disk_has_told_what_it_holds() {
    let mut world = World::new(Setup::default());
    world.store.disk = crate::disk::Disk::new(16, &Limits::default());
    world.disk = FakeDisk::new(16);
    world.serve(&prompt(1, 50), 1);
    assert_eq!(world.counters().nvme_writes, 0);
    world.tell_found();
    world.serve(&prompt(1, 60), 1);
    assert_eq!(world.run(Name::Nvme, &prompt(1, 60)), 3);
    world.settle();
}

#[test]
fn a_digest_of_another_block_is_corrupt() {
    let mut world = only_on_disk(with_disk(), 40);
    let tokens = prompt(1, 40);
    let ask = world.ask(&tokens, 1);
    let grant = world.prepare(&tokens, ask).unwrap();
    let DiskOp::Read { op, .. } = world.disk.pending.remove(0) else { panic!() };
    let other = world.keys(&tokens)[1];
    let life = Incarnation::default();
    let digest = ContentDigest::of(b"x");
    let signed = SignedDigest::sign(&world.store.keypair, life, other, digest);
    let result = protocol::disk::DiskRead::Verified(Box::new(signed));
    world.give(In::Disk(DiskEvent::Read { op, result }));
    assert_eq!((world.counters().nvme_corrupt, world.run(Name::Nvme, &tokens)), (1, 0));
    world.finish(grant.lease);
    world.settle();
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let with = |nvme_slots, dram_slots, dram_slot_bytes| {
        let (routing, storage) = namespaces(16);
        let spec = EngineSpec {
            engine: EngineId(0),
            kind: "fake".into(),
            model: "m".into(),
            routing,
            storage,
            slots: 4,
            context: 64,
        };
        let config = Config {
            keypair: Keypair::from_seed(&[7; 32]),
            incarnation: Incarnation::default(),
            engines: vec![spec],
            dram_slots,
            dram_slot_bytes,
            nvme_slots,
            decode_batch: 1,
            limits: Limits::default(),
            buggify: None,
        };
        Store::new(config).map(drop)
    };
    assert_eq!(with(4, 4, BLOCK_BYTES), Ok(()));
    assert_eq!(with(4, 0, BLOCK_BYTES), Err(ConfigError::NvmeWithoutDram));
    assert_eq!(with(4, 4, 8), Err(ConfigError::SlotBytes(8)));
    assert_eq!(with(0, 4, 8), Ok(()));
}
