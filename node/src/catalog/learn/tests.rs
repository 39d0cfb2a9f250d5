use super::super::shelf::Shelf;
use super::super::{Offer, routing_id};
use super::{Blob, LIST_MAX, NAME_MAX, Unlearnt, open, read, told};
use bytes::Bytes;
use model::Model;
use protocol::card::{BlobDigest, ModelCard};

fn card() -> ModelCard {
    Model::builtin().unwrap().card("far", &["alias".into()], "hermes").0
}

fn offer() -> Offer {
    let routing = routing_id(&card().routing);
    Offer { routing, name: "far".into(), context: 0, holders: Vec::new() }
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

#[test]
fn only_what_can_be_read_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(folder.path());
    let (card, tokenizer) = Model::builtin().unwrap().card("far", &[], "hermes");
    let blob = |bytes: Bytes| Blob { digest: BlobDigest::of(&bytes), bytes, shelved: false };
    let named = blob(card.encode().unwrap().into());
    let [bad, good] = [Bytes::from_static(b"{}"), Bytes::from_owner(tokenizer)].map(blob);
    assert!(open(&shelf, &card, [&named, &bad]).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(open(&shelf, &card, [&named, &good]).is_ok());
    assert!([&named, &good].iter().all(|blob| shelf.get(&blob.digest).is_some()));
}

#[tokio::test]
async fn a_defect_is_a_failure_and_not_the_end_of_learning() {
    async fn defect() -> Result<String, Unlearnt> {
        panic!("a defect")
    }
    assert!(matches!(told(defect()).await, Err(Unlearnt::Passing(_))));
    assert!(matches!(told(async { Ok("far".to_owned()) }).await, Ok(name) if name == "far"));
}
