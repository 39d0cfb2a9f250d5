use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn ids_are_read_as_they_are_written(node: [u8; 32], cluster: [u8; 16]) {
        let (node, cluster) = (NodeId(node), ClusterId(cluster));
        prop_assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        prop_assert_eq!(ClusterId::parse(&cluster.to_string()), Some(cluster));
        prop_assert_eq!(NodeId::parse(&node.to_string().to_uppercase()), Some(node));
    }

    #[test]
    fn other_texts_are_no_ids(text in ".{0,80}") {
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        prop_assert_eq!(NodeId::parse(&text).is_some(), is_hex && text.len() == 64);
        prop_assert_eq!(ClusterId::parse(&text).is_some(), is_hex && text.len() == 32);
    }

    #[test]
    fn a_session_id_crosses_the_wire_as_its_text(text in ".{0,300}") {
        let bytes = crate::wire::encode(&text).unwrap();
        let decoded = crate::wire::decode::<SessionId>(&bytes).ok();
        prop_assert_eq!(&decoded, &SessionId::new(&text));
        if let Some(session) = decoded {
            prop_assert_eq!(session.as_str(), &text);
            prop_assert_eq!(crate::wire::encode(&session).unwrap(), bytes);
        }
    }
}

#[test]
fn hexadecimal_is_exact() {
    assert_eq!(parse_hex("00ff7A"), Some([0, 255, 0x7a]));
    assert_eq!(parse_hex(""), Some([]));
    // What `from_str_radix` alone would take: a sign.
    for wrong in
        ["", "0", "00ff7", "00ff7a0", "00ff7g", "+0ff7a", "-0ff7a", " 0ff7a", "0x0f7a", "ééé"]
    {
        assert_eq!(parse_hex::<3>(wrong), None, "{wrong:?}");
    }
}

#[test]
fn session_ids_are_bounded() {
    let longest = "s".repeat(SessionId::MAX);
    assert!(SessionId::new(&longest).is_some());
    assert!(SessionId::new("Sitzung 7/ü").is_some());
    for wrong in ["", "a\nb", "\u{7f}", "a\u{85}b", &(longest + "s")] {
        assert_eq!(SessionId::new(wrong), None, "{wrong:?}");
        let bytes = crate::wire::encode(&wrong).unwrap();
        assert!(crate::wire::decode::<SessionId>(&bytes).is_err(), "{wrong:?}");
    }
}

#[test]
fn lives_are_ordered_by_their_counter_first() {
    let life = |counter, nonce| Incarnation { counter, nonce };
    assert!(life(1, u64::MAX) < life(2, 0));
    assert!(life(2, 0) < life(2, 1));
}

#[test]
fn short_forms_are_for_people() {
    let node = NodeId([0xab; 32]);
    assert_eq!(node.short(), "abababab");
    assert_eq!(format!("{node:?}"), "node:abababab");
    let request = RequestId(0x0123_4567 << 96);
    assert_eq!(request.to_string(), "01234567000000000000000000000000");
    assert_eq!(format!("{request:?}"), "req:01234567");
}
