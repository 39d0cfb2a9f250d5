use super::super::{Offer, routing_id};
use super::{LIST_MAX, NAME_MAX, read};
use model::Model;
use protocol::card::ModelCard;

fn card() -> ModelCard {
    Model::builtin().unwrap().card("far", &["alias".into()], "hermes").0
}

fn offer() -> Offer {
    Offer { routing: routing_id(&card().routing), name: "far".into(), holders: Vec::new() }
}

#[test]
fn a_card_must_be_that_of_the_engine_that_names_it() {
    let bytes = card().encode().unwrap();
    assert_eq!(read(&bytes, &offer()).unwrap(), card());
    assert!(read(&bytes, &Offer { name: "other".into(), ..offer() }).is_err());
    assert!(read(&bytes, &Offer { routing: [0; 32], ..offer() }).is_err());
}

#[test]
fn odd_cards_are_refused() {
    assert!(read(b"", &offer()).is_err());
    assert!(read(&[7; 100], &offer()).is_err());
    let long = "x".repeat(NAME_MAX + 1);
    for odd in [
        ModelCard { aliases: vec![long.clone()], ..card() },
        ModelCard { aliases: vec![String::new()], ..card() },
        ModelCard { aliases: vec!["x".into(); LIST_MAX + 1], ..card() },
        ModelCard { specials: vec![Default::default(); LIST_MAX + 1], ..card() },
        ModelCard { name: long, ..card() },
    ] {
        let offer = Offer { name: odd.name.clone(), ..offer() };
        assert!(read(&odd.encode().unwrap(), &offer).is_err());
    }
}
