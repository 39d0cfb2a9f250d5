use super::*;
use proptest::prelude::*;

fn answer(text: &str, prompt: u64) -> Outcome {
    Outcome {
        text: text.to_owned(),
        prompt_tokens: prompt,
        completion_tokens: 10,
        ..Outcome::default()
    }
}

fn failed() -> Outcome {
    let error = crate::client::CallError::BrokenOff("cut".into());
    Outcome { error: Some(error), text: "half".into(), ..Outcome::default() }
}

fn lead(options: &AgentOptions) -> AgentRun {
    AgentRun::new(options.sessions(1).remove(0).lead)
}

/// Words of all messages: near enough to tokens for these tests.
fn length(messages: &[Message]) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let of = |message: &Message| match message {
        Message::User(text) | Message::ToolResult { text, .. } => words(text),
        Message::Assistant { text, .. } => words(text),
    };
    messages.iter().map(of).sum()
}

#[test]
fn equal_seeds_give_equal_plans_and_others_do_not() {
    let plans = |seed| AgentOptions { seed, ..AgentOptions::default() }.sessions(3);
    assert_eq!(plans(7), plans(7));
    assert_ne!(plans(7), plans(8));
    assert_eq!(plans(7)[..2], AgentOptions { seed: 7, ..AgentOptions::default() }.sessions(2));
}

#[test]
fn all_agents_share_the_preamble_and_nothing_else() {
    let sessions = AgentOptions::default().sessions(3);
    let agents: Vec<&AgentPlan> =
        sessions.iter().flat_map(|s| std::iter::once(&s.lead).chain(&s.subs)).collect();
    assert_eq!(agents.len(), 9);
    let tasks: std::collections::BTreeSet<_> = agents.iter().map(|a| &a.steps[0].text).collect();
    assert_eq!(tasks.len(), 9, "every task is another one");
    for agent in agents {
        assert_eq!(agent.preamble, sessions[0].lead.preamble);
        assert_eq!(agent.preamble.tools.len(), 4);
        assert_eq!(agent.steps.len(), if agent.agent == 0 { 4 } else { 2 });
    }
}

#[test]
fn results_have_varied_sizes_and_pauses_are_bounded() {
    let options = AgentOptions { turns: 40, ..AgentOptions::default() };
    let lead = lead(&options);
    let sizes: Vec<usize> =
        lead.plan().steps.iter().map(|step| step.text.split_whitespace().count()).collect();
    assert!(sizes.iter().all(|words| (20..=92).contains(words)), "{sizes:?}");
    assert!(sizes.iter().max() > sizes.iter().min().map(|least| least * 2).as_ref());
    let pauses: Vec<Duration> = lead.plan().steps.iter().map(|step| step.pause).collect();
    let mean = pauses.iter().sum::<Duration>() / 40;
    let limits = Duration::from_millis(200)..Duration::from_millis(700);
    assert!(limits.contains(&mean), "{mean:?}");
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_millis(1600)));
}

#[test]
fn a_failed_call_is_withdrawn_and_the_work_goes_on() {
    let mut agent = lead(&AgentOptions::default());
    agent.next(&[]).unwrap();
    agent.answered(&failed());
    let second = agent.next(&[]).unwrap();
    assert!(second.fresh, "nothing was ever answered");
    agent.answered(&answer("done", 300));
    agent.next(&[]).unwrap();
    agent.answered(&failed());
    let fourth = agent.next(&[]).unwrap();
    assert_eq!(fourth.turn, 3);
    assert!(!fourth.fresh);
    assert_eq!(
        fourth.conversation.messages[..2],
        [
            second.conversation.messages[0].clone(),
            Message::Assistant { text: "done".into(), calls: Vec::new() },
        ]
    );
    assert_eq!(fourth.conversation.messages.len(), 3);
    agent.answered(&answer("end", 400));
    assert!(agent.next(&[]).is_none());
}

#[test]
fn tool_calls_of_the_model_get_results() {
    let mut agent = lead(&AgentOptions::default());
    agent.next(&[]).unwrap();
    let call = |id: &str| ToolCall { id: id.into(), name: "read_file".into(), ..<_>::default() };
    let calls = vec![call("a"), call("b")];
    agent.answered(&Outcome { calls: calls.clone(), ..answer("", 300) });
    let turn = agent.next(&[]).unwrap();
    let messages = &turn.conversation.messages;
    assert_eq!(messages[1], Message::Assistant { text: String::new(), calls });
    let ids: Vec<&str> = messages[2..]
        .iter()
        .map(|message| match message {
            Message::ToolResult { call, .. } => call.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, ["a", "b"]);
    // A failure in between leaves the calls open.
    agent.answered(&failed());
    let again = agent.next(&[]).unwrap();
    assert!(
        matches!(&again.conversation.messages[2], Message::ToolResult { call, .. } if call == "a")
    );
}

#[test]
fn reports_take_the_place_of_the_tool_output() {
    let mut agent = lead(&AgentOptions::default());
    agent.next(&[]).unwrap();
    agent.answered(&answer("ask them", 300));
    let turn = agent.next(&[("agent 1".into(), "all is well".into())]).unwrap();
    let expected = "Result of ask_agent: Report of agent 1: all is well";
    assert_eq!(turn.conversation.messages.last(), Some(&Message::User(expected.into())));
}

#[test]
fn a_long_history_is_compacted_before_the_limit() {
    let options = AgentOptions { turns: 60, ..AgentOptions::default() };
    let mut agent = lead(&options);
    let mut compactions = 0;
    let preamble = 700;
    while let Some(turn) = agent.next(&[]) {
        let tokens = preamble + length(&turn.conversation.messages);
        assert!(tokens <= options.context_tokens, "turn {}: {tokens}", turn.turn);
        if turn.fresh && turn.turn > 0 {
            compactions += 1;
            let [Message::User(text)] = &turn.conversation.messages[..] else { panic!() };
            assert!(text.starts_with("Summary of the work so far: some words"), "{text}");
        }
        agent.answered(&answer("some words", tokens));
    }
    assert!(compactions >= 2, "{compactions}");
}

proptest! {
    /// Unless it is fresh, every call begins with the whole call before it and its answer.
    #[test]
    fn histories_only_grow(
        seed in any::<u64>(),
        answers in prop::collection::vec(("[a-z ]{0,20}", 100u64..1_800), 12),
    ) {
        let options = AgentOptions { seed, turns: 12, ..AgentOptions::default() };
        let mut agent = lead(&options);
        let mut before: Vec<Message> = Vec::new();
        for (text, prompt) in answers {
            let turn = agent.next(&[]).unwrap();
            let messages = turn.conversation.messages;
            if !turn.fresh {
                prop_assert!(messages.len() == before.len() + 1);
                prop_assert_eq!(&messages[..before.len()], &before[..]);
            }
            agent.answered(&answer(&text, prompt));
            before = agent.history().to_vec();
            prop_assert_eq!(&before[..messages.len()], &messages[..]);
            let said = matches!(before.last(), Some(Message::Assistant { text, .. }) if !text.is_empty());
            prop_assert!(said);
        }
        prop_assert!(agent.next(&[]).is_none());
    }
}
