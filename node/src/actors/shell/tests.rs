use super::*;
use protocol::time::Span;
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// Asks to be woken at given times; notes when that happens.
#[derive(Default)]
struct Sleeper {
    wishes: Vec<Time>,
}

enum Order {
    /// Wake me then.
    Wake(Time),
    /// Forget all wishes.
    Forget,
    Panic,
}

#[derive(Debug, PartialEq)]
enum Note {
    Heard(Time),
    Woke(Time),
}

impl Machine for Sleeper {
    type In = Order;
    type Out = Note;

    fn handle(&mut self, now: Time, input: Order, outbox: &mut Vec<Note>) {
        match input {
            Order::Wake(at) => self.wishes.push(at),
            Order::Forget => self.wishes.clear(),
            Order::Panic => panic!("as ordered"),
        }
        outbox.push(Note::Heard(now));
    }

    fn tick(&mut self, now: Time, outbox: &mut Vec<Note>) {
        self.wishes.retain(|at| *at > now);
        outbox.push(Note::Woke(now));
    }

    fn deadline(&self) -> Option<Time> {
        self.wishes.iter().min().copied()
    }
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl Perform<Note> for Notes {
    fn perform(&self, effects: &mut Vec<Note>) {
        self.0.lock().unwrap().append(effects);
    }
}

impl Notes {
    fn woke(&self) -> Vec<Time> {
        let woke = |note: &Note| match note {
            Note::Woke(at) => Some(*at),
            Note::Heard(_) => None,
        };
        self.0.lock().unwrap().iter().filter_map(woke).collect()
    }

    fn heard(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|note| matches!(note, Note::Heard(_))).count()
    }
}

async fn start(clock: Clock) -> (ActorRef<Mail<Order>>, Notes) {
    let notes = Notes::default();
    let parts = Parts { machine: Sleeper::default(), perform: notes.clone(), clock };
    let (actor, _) = Actor::spawn(None, Shell::<Sleeper, Notes>::new(), parts).await.unwrap();
    (actor, notes)
}

fn order(actor: &ActorRef<Mail<Order>>, order: Order) {
    actor.cast(Mail::Input(order, None)).unwrap();
}

async fn pass(time: Span) {
    tokio::time::sleep(std::time::Duration::from_nanos(time.0)).await;
}

/// Timers of tokio count in milliseconds.
fn close(woke: &[Time], wanted: &[u64]) -> bool {
    woke.len() == wanted.len()
        && woke.iter().zip(wanted).all(|(woke, wanted)| {
            let wanted = Time(wanted * 1_000_000);
            *woke >= wanted && woke.since(wanted) <= Span::millis(2)
        })
}

#[tokio::test(start_paused = true)]
async fn deadlines_fire_at_their_time_in_any_order_of_asking() {
    let clock = Clock::start();
    let (actor, notes) = start(clock).await;
    for at in [300, 100, 3_600_000, 200] {
        order(&actor, Order::Wake(Time(at * 1_000_000)));
    }
    pass(Span::millis(50)).await;
    assert_eq!(notes.woke(), []);
    pass(Span::secs(3601)).await;
    assert!(close(&notes.woke(), &[100, 200, 300, 3_600_000]), "{:?}", notes.woke());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_fires_at_once_and_a_dropped_one_never() {
    let clock = Clock::start();
    let (actor, notes) = start(clock).await;
    pass(Span::millis(500)).await;
    order(&actor, Order::Wake(Time(1)));
    pass(Span::millis(3)).await;
    assert!(close(&notes.woke(), &[500]), "{:?}", notes.woke());
    order(&actor, Order::Wake(Time(900 * 1_000_000)));
    order(&actor, Order::Forget);
    pass(Span::secs(10)).await;
    assert_eq!(notes.woke().len(), 1);
    order(&actor, Order::Wake(Time(20_000 * 1_000_000)));
    pass(Span::secs(20)).await;
    assert!(close(&notes.woke(), &[500, 20_000]), "{:?}", notes.woke());
}

#[tokio::test(start_paused = true)]
async fn permits_come_back_when_the_machine_has_handled_the_message() {
    let (actor, notes) = start(Clock::start()).await;
    let places = Arc::new(Semaphore::new(4));
    // The actor does not run before this task waits: so far nobody gives a place back.
    for _ in 0..4 {
        let permit = places.clone().try_acquire_owned().unwrap();
        actor.cast(Mail::Input(Order::Forget, Some(permit))).unwrap();
    }
    assert!(places.clone().try_acquire_owned().is_err(), "the mailbox is full");
    for sent in 4..100 {
        let permit = places.clone().acquire_owned().await.unwrap();
        assert!(notes.heard() + 4 > sent, "{} of {sent} handled", notes.heard());
        actor.cast(Mail::Input(Order::Forget, Some(permit))).unwrap();
    }
    let _all = places.acquire_many(4).await.unwrap();
    assert_eq!(notes.heard(), 100);
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_between_two_inputs() {
    let (actor, _) = start(Clock::start()).await;
    order(&actor, Order::Wake(Time(u64::MAX)));
    let (sender, answer) = tokio::sync::oneshot::channel();
    let question = move |machine: &dyn std::any::Any| {
        let wishes = machine.downcast_ref::<Sleeper>().map(|sleeper| sleeper.wishes.len());
        let _ = sender.send(wishes);
    };
    actor.cast(Mail::Ask(Box::new(question))).unwrap();
    order(&actor, Order::Forget);
    assert_eq!(answer.await.unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_panics_is_noticed() {
    let (actor, _) = start(Clock::start()).await;
    let places = Arc::new(Semaphore::new(1));
    let quiet = tokio::time::timeout(std::time::Duration::from_secs(60), gone(&actor)).await;
    assert!(quiet.is_err(), "it lives");
    let permit = places.clone().try_acquire_owned().unwrap();
    actor.cast(Mail::Input(Order::Panic, Some(permit))).unwrap();
    gone(&actor).await;
    assert!(places.try_acquire().is_ok(), "its messages' places are free");
    assert!(actor.cast(Mail::Tick).is_err() || actor.get_status() == ractor::ActorStatus::Stopped);
}
