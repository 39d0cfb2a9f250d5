//! Whole lives of engines, drawn at random.

use super::rig::{BLOCK, Dram, Rig, chain, config, reference, tokens};
use super::*;
use protocol::op::Arriving;

/// What becomes of a block on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Comes,
    Missed,
    Unreadable,
    Changed,
    Never,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Comes),
        Just(Fate::Missed),
        Just(Fate::Unreadable),
        Just(Fate::Changed),
        Just(Fate::Never)
    ]
}

proptest! {
    /// Equal prompts give equal answers: whatever is cached, comes or does not come, however the
    /// prompt is cut, and whoever runs beside it.
    #[test]
    fn the_answer_depends_on_the_prompt_alone(
        length in 1usize..150,
        max_tokens in 1u32..40,
        cached in 0u32..6,
        fates in proptest::collection::btree_map(0u32..9, (fate(), 0u64..200), 0..6),
        budget in 4u32..80,
        others in proptest::collection::vec((1usize..100, 1u32..20), 0..3),
    ) {
        let prompt = tokens(1, length);
        let mut config = config(128);
        (config.max_batch, config.max_batched_tokens) = (4, budget);
        let mut rig = Rig::new(config);
        let cached = cached.min((length / BLOCK) as u32);
        let mut shared = None;
        if cached > 0 {
            let job = rig.job(prompt[..cached as usize * BLOCK].to_vec(), 1, None).unwrap();
            rig.keep(job.grant.lease);
            shared = Some((rig.submit(job), cached));
            rig.settle();
        }
        for (seed, (length, max_tokens)) in others.into_iter().enumerate() {
            let job = rig.job(tokens(50 + seed as u32, length), max_tokens, None).unwrap();
            rig.submit(job);
        }
        let mut job = rig.job(prompt.clone(), max_tokens, shared).unwrap();
        let whole = (length / BLOCK) as u32;
        let fates: Vec<_> =
            fates.into_iter().filter(|(index, _)| (cached..whole).contains(index)).collect();
        let indexes: Vec<_> = fates.iter().map(|(index, _)| *index).collect();
        rig.arriving(&mut job, &indexes, Span::millis(150));
        let lease = rig.submit(job.clone());
        let mut fates: Vec<_> = fates.into_iter().map(|(index, (fate, at))| (at, index, fate)).collect();
        fates.sort_by_key(|(at, ..)| *at);
        let begun = rig.now;
        let patterns = chain(&prompt);
        for (at, index, fate) in fates {
            let at = begun + Span::millis(at);
            while let Some(deadline) = rig.engine.deadline().filter(|deadline| *deadline < at) {
                rig.tick(deadline.max(rig.now));
            }
            rig.now = rig.now.max(at);
            match fate {
                Fate::Comes => { rig.import(&job, index, Dram::Holds(patterns[index as usize])); }
                Fate::Unreadable => { rig.import(&job, index, Dram::Stale); }
                Fate::Changed => { rig.import(&job, index, Dram::Changed); }
                Fate::Missed => rig.input(In::Op(EngineOp::Missed { lease, index })),
                Fate::Never => {}
            }
        }
        rig.settle();
        prop_assert_eq!(rig.seen[&lease].answer(), reference(&prompt, max_tokens));
        prop_assert_eq!(rig.seen[&lease].sources().total() as usize, length);
        clean(&rig);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Submit {
        seed: u32,
        length: usize,
        max_tokens: u32,
        priority: i32,
        awaits: Option<u32>,
        script: bool,
    },
    Broken {
        length: usize,
    },
    Abort(usize),
    Gone(usize),
    Blocked(usize, bool),
    Generous(bool),
    Import(usize, u32, bool),
    Restart,
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let submit =
        (0u32..5, 1usize..120, 1u32..60, -2i32..3, proptest::option::of(0u32..4), any::<bool>());
    prop_oneof![
        6 => submit.prop_map(|(seed, length, max_tokens, priority, awaits, script)| {
            Act::Submit { seed, length, max_tokens, priority, awaits, script }
        }),
        1 => (0usize..1100).prop_map(|length| Act::Broken { length }),
        2 => any::<usize>().prop_map(Act::Abort),
        1 => any::<usize>().prop_map(Act::Gone),
        2 => any::<(usize, bool)>().prop_map(|(which, on)| Act::Blocked(which, on)),
        2 => any::<bool>().prop_map(Act::Generous),
        3 => (any::<usize>(), 0u32..4, any::<bool>()).prop_map(|(w, i, ok)| Act::Import(w, i, ok)),
        1 => Just(Act::Restart),
        6 => (0u64..400).prop_map(Act::Wait),
    ]
}

/// Plays a life to its end; the jobs, and those whose reader left.
fn play(acts: &[Act]) -> (Rig, Vec<Job>, Vec<LeaseId>) {
    let mut config = config(40);
    (config.max_batch, config.max_batched_tokens) = (5, 64);
    let mut rig = Rig::new(config);
    let (mut jobs, mut gone): (Vec<Job>, Vec<LeaseId>) = (Vec::new(), Vec::new());
    let pick = |jobs: &[Job], which: usize| match jobs.len() {
        0 => None,
        count => Some(jobs[which % count].clone()),
    };
    for act in acts.iter().cloned() {
        match act {
            Act::Submit { seed, length, max_tokens, priority, awaits, script } => {
                let Some(mut job) = rig.job(tokens(seed, length), max_tokens, None) else {
                    continue;
                };
                job.priority = priority;
                if let Some(index) = awaits {
                    rig.arriving(&mut job, &[index], Span::millis(300));
                }
                if script {
                    let chunks = vec![tokens(8, 3), tokens(9, 2), tokens(10, 30)];
                    job.script = Some(Arc::new(Script::new(chunks, Span::millis(seed.into()))));
                }
                rig.submit(job.clone());
                jobs.push(job);
            }
            Act::Broken { length } => {
                let Some(mut job) = rig.job(tokens(1, length.min(100)), 5, None) else { continue };
                job.prompt = if length > 500 { tokens(1, 1_000) } else { Vec::new() }.into();
                rig.submit(job.clone());
                jobs.push(job);
            }
            Act::Abort(which) => {
                if let Some(job) = pick(&jobs, which) {
                    rig.input(In::Op(EngineOp::Abort { lease: job.grant.lease }));
                }
            }
            Act::Gone(which) => {
                if let Some(job) = pick(&jobs, which) {
                    gone.push(job.grant.lease);
                    rig.input(In::Gone(job.grant.lease));
                }
            }
            Act::Blocked(which, on) => {
                if let Some(job) = pick(&jobs, which) {
                    rig.input(In::Blocked(job.grant.lease, on));
                }
            }
            Act::Generous(on) => rig.generous = on,
            Act::Import(which, index, readable) => {
                let Some(job) = pick(&jobs, which) else { continue };
                let awaited = |a: &Arriving| a.index == index;
                if let Some(pattern) = chain(&job.prompt).get(index as usize)
                    && job.grant.arriving.iter().any(awaited)
                {
                    let holds = if readable { Dram::Holds(*pattern) } else { Dram::Stale };
                    rig.import(&job, index, holds);
                }
            }
            Act::Restart => rig.input(In::Restart),
            Act::Wait(ms) => rig.wait(ms),
        }
    }
    rig.generous = true;
    for job in &jobs {
        rig.input(In::Blocked(job.grant.lease, false));
    }
    rig.settle();
    (rig, jobs, gone)
}

proptest! {
    /// Each job ends exactly once, its slots come back, and nothing was written that must not be.
    /// The rig itself looks that nothing comes after the end.
    #[test]
    fn every_job_ends_once(acts in proptest::collection::vec(act(), 1..60)) {
        let (rig, jobs, gone) = play(&acts);
        for job in &jobs {
            let seen = &rig.seen[&job.grant.lease];
            prop_assert!(seen.done);
            let ends = seen.ends();
            prop_assert!(ends == 1 || ends == 0 && gone.contains(&job.grant.lease), "{:?}", seen);
            if let Some(FinishReason::Length | FinishReason::Stop(_)) = seen.reason()
                && job.script.is_none()
            {
                prop_assert_eq!(seen.answer(), reference(&job.prompt, job.limits.max_tokens));
            }
        }
        prop_assert_eq!(rig.free(), 40);
        prop_assert_eq!(rig.engine.load().active_blocks, 0);
        let stats = rig.engine.stats();
        prop_assert_eq!(stats.jobs, stats.finished + stats.cancelled + stats.failed);
        prop_assert_eq!(stats.jobs + stats.refused, jobs.len() as u64);
        clean(&rig);
    }

    /// Every import is answered once.
    #[test]
    fn every_operation_is_answered(mut acts in proptest::collection::vec(act(), 1..60)) {
        // After a restart nobody wants the answers.
        acts.retain(|act| !matches!(act, Act::Restart));
        let (rig, ..) = play(&acts);
        let answered = |op: u64| {
            let answer = |e: &&EngineEvent| matches!(e, EngineEvent::Imported { op: o, .. } if o.0 == op);
            rig.events.iter().filter(answer).count()
        };
        for op in 0..rig.dram.len() as u64 {
            prop_assert_eq!(answered(op), 1);
        }
    }

    #[test]
    fn equal_inputs_give_equal_outputs(acts in proptest::collection::vec(act(), 1..40)) {
        prop_assert_eq!(play(&acts).0.log, play(&acts).0.log);
    }
}
