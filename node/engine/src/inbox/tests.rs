use super::*;
use protocol::hash::Token;
use protocol::id::{NodeId, RequestId};
use protocol::op::{Grant, LeaseId};
use protocol::prompt::{Limits, Sampling};
use std::sync::Arc;

fn job() -> Box<Job> {
    Box::new(Job {
        request: RequestId(1),
        grant: Grant { lease: LeaseId(1), slots: vec![], ready: 0, arriving: vec![] },
        prompt: vec![Token(1)].into(),
        resumed: 0,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: 1, stop_tokens: vec![] },
        constraint: None,
        priority: 0,
        arrived: Instant::now(),
        serving_node: NodeId([0; 32]),
        sink: tokio::sync::mpsc::channel(1).0,
        guard: Box::new(()),
    })
}

#[test]
fn jobs_are_bounded_and_operations_are_not() {
    let inbox = Inbox::default();
    for _ in 0..JOBS_MAX {
        assert!(inbox.submit(job()).is_ok());
    }
    let full = |inbox: &Inbox| inbox.submit(job()).map_err(|(_, full)| full);
    assert_eq!(full(&inbox), Err(true));
    inbox.perform(EngineOp::Abort { lease: LeaseId(1) });
    let mut commands = VecDeque::new();
    assert!(inbox.take(&mut commands));
    assert_eq!(commands.len(), JOBS_MAX + 1);
    // Taken jobs still count until they run.
    assert_eq!(full(&inbox), Err(true));
    inbox.job_left();
    assert_eq!(full(&inbox), Ok(()));
}

#[test]
fn a_closed_inbox_keeps_what_it_has_and_takes_no_more() {
    let inbox = Inbox::default();
    assert!(inbox.submit(job()).is_ok());
    inbox.close();
    assert_eq!(inbox.submit(job()).map_err(|(_, full)| full), Err(false));
    inbox.perform(EngineOp::Abort { lease: LeaseId(1) });
    let mut commands = VecDeque::new();
    assert!(!inbox.take(&mut commands));
    assert_eq!(commands.len(), 1);
    // Closed is reason enough to wake.
    inbox.wait(None);
}

#[test]
fn waiting_ends_with_a_command_from_another_thread() {
    let inbox = Arc::new(Inbox::default());
    let other = Arc::clone(&inbox);
    let waiter = std::thread::spawn(move || {
        let mut commands = VecDeque::new();
        while commands.is_empty() {
            other.wait(None);
            other.take(&mut commands);
        }
    });
    inbox.perform(EngineOp::Abort { lease: LeaseId(1) });
    assert!(waiter.join().is_ok());
    // Nothing is here: the time is what ends the wait.
    inbox.wait(Some(Instant::now()));
}
