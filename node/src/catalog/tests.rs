use super::{Catalog, LEARNT_MAX, Own, Ready, offers_differ, routing_id};
use frontend::Format;
use model::Model;
use protocol::block::StorageId;
use protocol::card::{BlobDigest, ModelCard};
use protocol::event::{Contact, EngineLoad, EngineReport, MemberState, MemberView};
use protocol::hash::RoutingNamespace;
use protocol::id::{EngineId, Incarnation, NodeId};
use std::collections::BTreeMap;

type Views = BTreeMap<NodeId, MemberView>;

fn card(name: &str, weights: u8, aliases: &[&str]) -> ModelCard {
    let aliases: Vec<String> = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    let (card, _) = Model::builtin().unwrap().card(name, &aliases, "llama");
    let routing = RoutingNamespace { weights: [weights; 32], ..card.routing };
    ModelCard { routing, ..card }
}

fn digest(card: &ModelCard) -> BlobDigest {
    BlobDigest::of(&card.encode().unwrap())
}

fn learn(catalog: &Catalog, card: &ModelCard) {
    let processor = Model::builtin().unwrap().processor().clone();
    assert!(catalog.learn(digest(card), Ready::new(card, processor, 7), 10));
}

fn view(node: u8, state: MemberState, cards: &[&ModelCard]) -> (NodeId, MemberView) {
    let engine = |card: &&ModelCard| EngineReport {
        engine: EngineId(0),
        kind: "mock".into(),
        model: card.name.clone(),
        routing: routing_id(&card.routing),
        card: digest(card),
        storage: StorageId(0),
        block_bytes: 1,
        block_tokens: 16,
        context: 1000 * u32::from(node),
        load: EngineLoad::default(),
    };
    let node = NodeId([node; 32]);
    let view = MemberView {
        node,
        incarnation: Incarnation::default(),
        state,
        contact: Contact::default(),
        engines: cards.iter().map(engine).collect(),
        owed_bytes: 0,
        blocks: [0; 3],
    };
    (node, view)
}

fn catalog(own: bool) -> Catalog {
    let model = Model::builtin().unwrap();
    let own = own.then(|| Own::new(&model, ("own", &["mine".into()]), Format::Hermes, 500, 3));
    Catalog::new(own, std::path::Path::new("/nonexistent"), false)
}

fn names(catalog: &Catalog) -> Vec<(String, u32)> {
    catalog.models().iter().map(|model| (model.name.clone(), model.context)).collect()
}

#[test]
fn models_of_other_nodes_are_listed_once_they_are_learnt() {
    let catalog = catalog(true);
    assert_eq!(names(&catalog), [("own".to_owned(), 500)]);
    let (far, near) = (card("far", 1, &[]), card("near", 2, &["close"]));
    let views: Views =
        [view(1, MemberState::Alive, &[&far]), view(2, MemberState::Alive, &[&far, &near])].into();
    catalog.relist(&views);
    assert_eq!(names(&catalog), [("own".to_owned(), 500)]);
    assert!(catalog.awaits(Some("far")) && catalog.awaits(None) && !catalog.awaits(Some("own")));
    let unknown = catalog.unknown(&views);
    assert_eq!(unknown[&digest(&far)].holders, [NodeId([1; 32]), NodeId([2; 32])]);
    assert_eq!(unknown[&digest(&near)].holders, [NodeId([2; 32])]);
    learn(&catalog, &near);
    learn(&catalog, &far);
    catalog.relist(&views);
    let listed = [("own", 500), ("far", 2000), ("near", 2000)].map(|(n, c)| (n.to_owned(), c));
    assert_eq!(names(&catalog), listed);
    assert!(!catalog.awaits(None) && catalog.unknown(&views).is_empty());
    assert_eq!(catalog.models()[2].aliases, ["close"]);
    assert_eq!(catalog.models()[2].format, Format::Llama);
    assert_eq!(catalog.routing("near").unwrap(), (near.routing.clone(), routing_id(&near.routing)));
    assert!(catalog.routing("close").is_none(), "only names are placed by");
    let listed = catalog.models();
    let [served, ..] = &*listed else { panic!() };
    assert_eq!(catalog.namespace(served).as_ref(), Some(&catalog.routing(&served.name).unwrap().0));
}

#[test]
fn a_member_that_was_just_admitted_may_serve_any_model() {
    let catalog = catalog(true);
    assert!(!catalog.awaits(Some("far")) && !catalog.awaits(None));
    catalog.hear();
    assert!(catalog.awaits(Some("far")) && !catalog.awaits(None), "one is at hand");
}

#[test]
fn a_model_whose_nodes_have_gone_stays_known_for_a_while() {
    let catalog = catalog(false);
    let far = card("far", 1, &[]);
    learn(&catalog, &far);
    catalog.relist(&[view(1, MemberState::Alive, &[&far])].into());
    catalog.relist(&[view(1, MemberState::Dead, &[&far])].into());
    assert_eq!(names(&catalog), [("far".to_owned(), 1000)]);
    // One that comes back with other weights takes its place.
    let before = catalog.models();
    assert!(catalog.namespace(&before[0]).is_some());
    let newer = card("far", 2, &[]);
    learn(&catalog, &newer);
    catalog.relist(&[view(1, MemberState::Alive, &[&newer])].into());
    assert_eq!(names(&catalog), [("far".to_owned(), 1000)]);
    assert_eq!(catalog.routing("far").unwrap().1, routing_id(&newer.routing));
    assert!(catalog.namespace(&before[0]).is_none(), "its tokens get no names of the new one");
}

#[test]
fn a_model_whose_nodes_go_while_it_is_learnt_has_their_context() {
    let catalog = catalog(false);
    let far = card("far", 1, &[]);
    let offered: Views =
        [view(2, MemberState::Alive, &[&far]), view(1, MemberState::Alive, &[&far])].into();
    let offer = catalog.unknown(&offered).remove(&digest(&far)).unwrap();
    let processor = Model::builtin().unwrap().processor().clone();
    assert!(catalog.learn(digest(&far), Ready::new(&far, processor, 7), offer.context));
    catalog.relist(&[view(2, MemberState::Dead, &[&far])].into());
    assert_eq!(names(&catalog), [("far".to_owned(), 2000)]);
}

#[test]
fn so_many_models_and_no_more() {
    let catalog = catalog(false);
    for n in 0..LEARNT_MAX {
        assert!(catalog.has_room(), "for the {n}th");
        learn(&catalog, &card(&format!("m{n}"), n as u8, &[]));
    }
    assert!(!catalog.has_room());
    let (more, processor) = (card("more", 200, &[]), Model::builtin().unwrap().processor().clone());
    assert!(!catalog.learn(digest(&more), Ready::new(&more, processor, 7), 10));
}

#[test]
fn of_two_models_with_one_name_the_own_one_or_that_of_more_engines_is_listed() {
    let (few, many) = (card("same", 1, &["few"]), card("same", 2, &["many"]));
    let own = card("own", 3, &["theirs"]);
    let views: Views = [
        view(1, MemberState::Alive, &[&few, &own]),
        view(2, MemberState::Alive, &[&many]),
        view(3, MemberState::Suspect, &[&many]),
    ]
    .into();
    let catalog = catalog(true);
    for card in [&few, &many, &own] {
        learn(&catalog, card);
    }
    catalog.relist(&views);
    let models = catalog.models();
    assert_eq!(models[0].aliases, ["mine"]);
    assert_ne!(catalog.routing("own").unwrap().1, routing_id(&own.routing));
    assert_eq!(models[1].aliases, ["many"]);
    assert_eq!(catalog.routing("same").unwrap().1, routing_id(&many.routing));
}

#[test]
fn one_model_with_two_cards_has_the_aliases_of_both() {
    let (a, b) = (card("same", 1, &["x", "a"]), card("same", 1, &["x", "b"]));
    let catalog = catalog(false);
    learn(&catalog, &a);
    learn(&catalog, &b);
    let views = [view(1, MemberState::Alive, &[&a]), view(2, MemberState::Alive, &[&b])].into();
    catalog.relist(&views);
    let mut aliases = catalog.models()[0].aliases.clone();
    aliases.sort();
    assert_eq!((catalog.models().len(), aliases), (1, ["a", "b", "x"].map(String::from).to_vec()));
}

#[test]
fn only_other_models_are_news() {
    let (a, b) = (card("a", 1, &[]), card("b", 2, &[]));
    let (_, alive) = view(1, MemberState::Alive, &[&a]);
    let (_, suspect) = view(1, MemberState::Suspect, &[&a]);
    let (_, dead) = view(1, MemberState::Dead, &[&a]);
    let (_, other) = view(1, MemberState::Alive, &[&b]);
    assert!(offers_differ(None, &alive) && !offers_differ(None, &dead));
    assert!(!offers_differ(Some(&alive), &suspect));
    assert!(offers_differ(Some(&alive), &dead) && offers_differ(Some(&alive), &other));
}

#[test]
fn other_nodes_get_what_they_need_by_name() {
    let catalog = catalog(true);
    let bytes = catalog.blob(&catalog.own_card()).unwrap();
    let card: ModelCard = protocol::wire::decode(&bytes).unwrap();
    assert_eq!(card.name, "own");
    assert_eq!(BlobDigest::of(&catalog.blob(&card.tokenizer).unwrap()), card.tokenizer);
    assert!(catalog.blob(&BlobDigest([9; 32])).is_none());
}
