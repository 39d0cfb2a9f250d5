use super::*;

fn call(ledger: &mut Ledger, agent: AgentKey, fresh: bool, prompt: u64, generated: u64) -> u64 {
    let reusable = ledger.sent(agent, fresh);
    ledger.answered(agent, reusable, prompt, generated)
}

#[test]
fn a_conversation_can_reuse_its_last_prompt_and_answer() {
    let mut ledger = Ledger::new(100);
    assert_eq!(call(&mut ledger, (0, 0), true, 150, 20), 0, "nothing was sent before");
    assert_eq!(call(&mut ledger, (0, 0), false, 230, 10), 160, "170 in whole granules");
    assert_eq!(call(&mut ledger, (0, 0), false, 300, 10), 240);
}

#[test]
fn a_new_conversation_can_reuse_the_preamble() {
    let mut ledger = Ledger::new(100);
    call(&mut ledger, (0, 0), true, 150, 20);
    assert_eq!(call(&mut ledger, (0, 1), true, 140, 20), 96);
    assert_eq!(call(&mut ledger, (0, 0), true, 130, 20), 96, "after a compaction");
    assert_eq!(call(&mut ledger, (0, 0), false, 200, 20), 144, "and on from there");
}

#[test]
fn what_is_sent_before_an_answer_counts_for_others() {
    let mut ledger = Ledger::new(64);
    let first = ledger.sent((0, 0), true);
    let second = ledger.sent((1, 0), true);
    assert_eq!(ledger.answered((0, 0), first, 100, 5), 0);
    assert_eq!(ledger.answered((1, 0), second, 100, 5), 64);
}

#[test]
fn one_token_is_always_computed() {
    let mut ledger = Ledger::new(0);
    call(&mut ledger, (0, 0), true, 32, 0);
    assert_eq!(
        call(&mut ledger, (0, 0), false, 32, 0),
        16,
        "the last granule holds the last token"
    );
    assert_eq!(call(&mut ledger, (0, 0), false, 33, 0), 32);
}
