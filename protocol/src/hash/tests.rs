use super::*;
use proptest::prelude::*;

fn namespace() -> RoutingNamespace {
    RoutingNamespace {
        weights: [1; 32],
        tokenizer: [2; 32],
        lora: None,
        hash_version: HASH_VERSION,
    }
}

fn key() -> RoutingKey {
    RoutingKey::derive(&namespace(), &tenant_salt(&[3; 32], "local", None))
}

fn run(tokens: impl IntoIterator<Item = u32>) -> Vec<Token> {
    tokens.into_iter().map(Token).collect()
}

fn media(digest: u8, offset: u32) -> Extra {
    Extra::Media { digest: [digest; 32], offset }
}

fn any_tokens(most: usize) -> impl Strategy<Value = Vec<Token>> {
    prop::collection::vec(any::<u32>().prop_map(Token), 0..most)
}

proptest! {
    #[test]
    fn incremental_chain_equals_the_full_one(tokens in any_tokens(160), known in 0usize..12) {
        let full = key().chain(&[], &tokens);
        let known = &full[..known.min(full.len())];
        prop_assert_eq!(&key().chain(known, &tokens), &full);
    }

    #[test]
    fn only_full_granules_have_names(tokens in any_tokens(100)) {
        let names = key().chain(&[], &tokens);
        prop_assert_eq!(names.len(), tokens.len() / GRANULE);
        let full = names.len() * GRANULE;
        prop_assert_eq!(key().chain(&[], &tokens[..full]), names);
    }

    #[test]
    fn one_changed_token_changes_its_name_and_all_later_ones(
        tokens in any_tokens(120),
        at in any::<prop::sample::Index>(),
        flip in 1u32..,
    ) {
        prop_assume!(tokens.len() >= GRANULE);
        let named = tokens.len() / GRANULE * GRANULE;
        let at = at.index(named);
        let mut other = tokens.clone();
        other[at].0 ^= flip;
        let (names, others) = (key().chain(&[], &tokens), key().chain(&[], &other));
        let same: Vec<bool> = names.iter().zip(&others).map(|(a, b)| a == b).collect();
        let expected: Vec<bool> = (0..names.len()).map(|granule| granule < at / GRANULE).collect();
        prop_assert_eq!(same, expected);
    }

    #[test]
    fn swapped_granules_have_other_names(a: [u32; GRANULE], b: [u32; GRANULE]) {
        prop_assume!(a != b);
        let there = key().chain(&[], &run([a, b].concat()));
        let back = key().chain(&[], &run([b, a].concat()));
        prop_assert_ne!(there[0], back[0]);
        prop_assert_ne!(there[1], back[1]);
    }

    #[test]
    fn salts_of_different_callers_differ(
        (tenant, client) in (".{0,40}", proptest::option::of(".{0,40}")),
        (other_tenant, other_client) in (".{0,40}", proptest::option::of(".{0,40}")),
    ) {
        prop_assume!((&tenant, &client) != (&other_tenant, &other_client));
        let salt = |tenant: &str, client: &Option<String>| {
            tenant_salt(&[3; 32], tenant, client.as_deref().map(ClientSalt::of).as_ref())
        };
        prop_assert_ne!(salt(&tenant, &client), salt(&other_tenant, &other_client));
    }
}

#[test]
fn a_run_that_is_no_granule_has_no_name() {
    for length in [0, 1, GRANULE - 1, GRANULE + 1, 2 * GRANULE] {
        assert_eq!(key().extend(None, &vec![Token(7); length], &[]), None, "{length}");
    }
    assert!(key().extend(None, &[Token(7); GRANULE], &[]).is_some());
}

#[test]
fn names_known_beyond_the_prompt_are_left_out() {
    let tokens = run(0..40);
    let known: Vec<PrefixHash> = (0..9).map(PrefixHash).collect();
    assert_eq!(key().chain(&known, &tokens), known[..2]);
}

/// All the ways in which equal tokens must not meet.
#[test]
fn everything_in_a_name_separates() {
    let tokens = [Token(5); GRANULE];
    let mut names = vec![
        key().extend(None, &tokens, &[]),
        // The all-zero parent is a parent too.
        key().extend(Some(PrefixHash(0)), &tokens, &[]),
        key().extend(Some(PrefixHash(1)), &tokens, &[]),
        key().extend(None, &tokens, &[media(1, 0)]),
        key().extend(None, &tokens, &[media(1, 3)]),
        key().extend(None, &tokens, &[media(2, 0)]),
        key().extend(None, &tokens, &[media(1, 0), media(2, 3)]),
        key().extend(None, &tokens, &[media(2, 3), media(1, 0)]),
        key().extend(None, &tokens, &[media(1, 0), media(1, 0)]),
    ];
    let salt = |root, tenant, client: Option<&str>| {
        tenant_salt(&[root; 32], tenant, client.map(ClientSalt::of).as_ref())
    };
    let namespaces = [
        RoutingNamespace { weights: [9; 32], ..namespace() },
        RoutingNamespace { tokenizer: [9; 32], ..namespace() },
        RoutingNamespace { lora: Some([0; 32]), ..namespace() },
        RoutingNamespace { lora: Some([9; 32]), ..namespace() },
        RoutingNamespace { hash_version: 2, ..namespace() },
    ];
    let local = salt(3, "local", None);
    names.extend(
        namespaces.iter().map(|n| RoutingKey::derive(n, &local).extend(None, &tokens, &[])),
    );
    for salt in [
        salt(4, "local", None),
        salt(3, "loca", None),
        salt(3, "", None),
        salt(3, "local", Some("")),
        salt(3, "local", Some("a")),
        salt(3, "loca", Some("la")),
    ] {
        names.push(RoutingKey::derive(&namespace(), &salt).extend(None, &tokens, &[]));
    }
    assert!(names.iter().all(Option::is_some));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// The layout of docs/formats.md, put together by hand.
#[test]
fn names_follow_the_documented_layout() {
    let mut salt = blake3::Hasher::new_derive_key("dynamo-node 2026-11 tenant salt");
    salt.update(&[3; 32]).update(&[5, 0, 0, 0, 0, 0, 0, 0]).update(b"local");
    let mut client = blake3::Hasher::new_derive_key("dynamo-node 2026-11 client salt");
    client.update(b"mine");
    salt.update(client.finalize().as_bytes());

    let mut derived = blake3::Hasher::new_derive_key("dynamo-node 2026-11 routing key");
    derived.update(&[1, 0]).update(&[1; 32]).update(&[2; 32]);
    derived.update(&[1]).update(&[7; 32]);
    derived.update(salt.finalize().as_bytes());

    let parent = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100_u128;
    let mut input = vec![1];
    input.extend(0u8..16);
    (100..116u32).for_each(|token| input.extend(token.to_le_bytes()));
    input.push(1);
    input.extend([8; 32]);
    input.extend([3, 0, 0, 0]);
    assert_eq!(input.len(), 81 + 37);
    let name = blake3::keyed_hash(derived.finalize().as_bytes(), &input);
    let name: [u8; 16] = name.as_bytes()[..16].try_into().unwrap();

    let namespace = RoutingNamespace { lora: Some([7; 32]), ..namespace() };
    let salt = tenant_salt(&[3; 32], "local", Some(&ClientSalt::of("mine")));
    let ours = RoutingKey::derive(&namespace, &salt).extend(
        Some(PrefixHash(parent)),
        &run(100..116),
        &[media(8, 3)],
    );
    assert_eq!(ours, Some(PrefixHash(u128::from_le_bytes(name))));
}

/// These never change while [`HASH_VERSION`] is 1: nodes of all releases must agree on them.
#[test]
fn golden_names() {
    let names = key().chain(&[], &run(0..40));
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(names, GOLDEN);
}

const GOLDEN: [&str; 2] = ["3e0da01658bd16258fb9a3791bda2ed6", "5e513652c922587907dd7be246667334"];

#[test]
fn keys_and_salts_are_never_printed() {
    assert_eq!(format!("{:?} {:?}", key(), ClientSalt::of("mine")), "RoutingKey(…) ClientSalt(…)");
}
