use super::*;
use protocol::hash::Token;
use tokio::sync::mpsc::channel;

fn item(n: u32) -> StreamItem {
    StreamItem::Tokens(vec![Token(n)])
}

#[test]
fn keeps_order_over_a_full_channel() {
    let (sink, mut reader) = channel(1);
    let mut outlet = Outlet::new(sink);
    (0..3).for_each(|n| outlet.send(item(n)));
    assert!(!outlet.is_clear());
    for n in 0..3 {
        assert_eq!(reader.try_recv().ok(), Some(item(n)));
        assert_eq!(outlet.flush(), n > 0);
    }
    assert!(outlet.is_clear());
}

#[test]
fn a_reader_that_left_frees_what_was_pending() {
    let (sink, reader) = channel(1);
    let mut outlet = Outlet::new(sink);
    (0..3).for_each(|n| outlet.send(item(n)));
    drop(reader);
    assert!(outlet.is_closed());
    assert!(outlet.flush());
    assert!(outlet.is_clear());
}
