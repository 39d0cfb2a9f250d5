use super::*;

fn data(byte: u8) -> Frame {
    Frame::Data { head: vec![byte], body: Vec::new() }
}

fn arrived(net: &mut Net, at: Time, id: StreamId, side: Side) -> Option<Frame> {
    match net.arrive(at, id, side) {
        Arrival::Frame(frame) => Some(frame),
        _ => None,
    }
}

#[test]
fn frames_arrive_in_order_also_behind_a_cut_and_a_pause() {
    let mut net = Net::new(Network::default(), 1);
    let id = net.open(Kind::Serve, (0, 1), (1, 1));
    let times: Vec<Time> =
        (0..50).map(|n| net.send(Time(n), id, Side::Opener, data(n as u8)).unwrap()).collect();
    assert!(times.is_sorted());
    let cut = net.cut(0, 1);
    assert!(matches!(net.arrive(times[0], id, Side::Acceptor), Arrival::Later(_)));
    net.heal(0, 1, cut + 1);
    assert!(net.is_cut(0, 1), "another cut was healed");
    net.heal(0, 1, cut);
    assert_eq!(arrived(&mut net, times[0], id, Side::Acceptor), Some(data(0)));
    net.pause(id, Side::Acceptor, true);
    assert_eq!(arrived(&mut net, times[1], id, Side::Acceptor), None);
    assert_eq!(net.pause(id, Side::Acceptor, false), 1);
    for n in 1..50 {
        assert_eq!(arrived(&mut net, times[49], id, Side::Acceptor), Some(data(n)));
    }
    net.remove(id);
    assert_eq!(net.send(Time(99), id, Side::Opener, data(0)), None);
}

#[test]
fn a_topic_reaches_whoever_a_neighbour_reaches() {
    let mut net = Net::new(Network::default(), 1);
    for (a, b) in [(0, 1), (1, 2), (2, 3)] {
        net.open(Kind::Gossip, (a, 1), (b, 1));
    }
    assert_eq!(net.reach(0), [1, 2, 3]);
    net.cut(1, 2);
    assert_eq!(net.reach(0), [1]);
    assert_eq!(net.reach(3), [0, 1, 2], "a cut has one direction");
    net.heal_all();
    let id = net.gossip(2, 1).unwrap();
    net.remove(id);
    assert_eq!((net.reach(0), net.gossip(1, 2)), (vec![1], None));
}

#[test]
fn blocks_of_one_sender_share_its_bandwidth() {
    let mut net = Net::new(Network { bytes_s: 1000.0, ..Network::default() }, 1);
    let ids = [net.open(Kind::Blocks, (0, 1), (1, 1)), net.open(Kind::Blocks, (0, 1), (2, 1))];
    let block = || Frame::Data { head: Vec::new(), body: vec![0; 1000] };
    let at = ids.map(|id| net.send(Time::ZERO, id, Side::Opener, block()).unwrap());
    assert!(at[0] >= Time(1_000_000_000) && at[1] >= Time(2_000_000_000), "{at:?}");
    assert_eq!(net.bytes[2], 2000);
}
