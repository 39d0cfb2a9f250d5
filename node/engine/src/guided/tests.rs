use super::*;
use crate::inbox::Inbox;
use model::Model;
use protocol::constraint::{Form, Lead, Schema, TextForm};
use std::collections::VecDeque;
use std::path::Path;

fn helpers() -> (Model, Arc<Helpers>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
    let model = Model::open(&path).unwrap();
    let helpers = Helpers::start(model.grammars(), 2, Arc::new(Inbox::default())).unwrap();
    (model, helpers)
}

fn constraint(schema: &str) -> Constraint {
    let schema = Schema { text: schema.into(), exact: true };
    Constraint { lead: Lead::None, form: Form::Text(TextForm::JsonSchema(schema)) }
}

/// Waits as the engine does: until it is roused.
fn settled(guided: &Guided, helpers: &Helpers) -> Next {
    loop {
        match guided.next() {
            Next::Later => {
                helpers.inbox().wait(None);
                helpers.inbox().take(&mut VecDeque::new());
            }
            next => return next,
        }
    }
}

#[test]
fn masks_come_and_rouse_the_engine() {
    let (model, helpers) = helpers();
    let tokens = model.tokenizer().encode("[true,false]", false);
    let cut = tokens.len() / 2;
    let constraint =
        constraint(r#"{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}"#);
    let guided = Guided::begin(&helpers, constraint, tokens[..cut].to_vec());
    for (place, token) in tokens[cut..].iter().enumerate() {
        let Next::Choose(mask) = settled(&guided, &helpers) else { panic!("no mask") };
        assert!(mask.allows(*token) && !mask.may_end());
        let over = guided.accept(*token);
        if over {
            assert_eq!(place + cut + 1, tokens.len());
            return;
        }
    }
    let Next::Choose(mask) = settled(&guided, &helpers) else { panic!("no mask") };
    assert!(mask.must_end());
}

#[test]
fn what_goes_wrong_is_told() {
    let (model, helpers) = helpers();
    let bad = Guided::begin(&helpers, constraint(r#"{"type": "odd"}"#), vec![]);
    assert!(matches!(settled(&bad, &helpers), Next::Fail(GrammarError::Refused(_))));
    // An answer so far that is not of the form, as another version may have begun it.
    let other = model.tokenizer().encode("no", false);
    let lost = Guided::begin(&helpers, constraint(r#"{"type": "object"}"#), other);
    assert!(matches!(settled(&lost, &helpers), Next::Fail(GrammarError::Lost(_))));
    let state = Mutex::new(State::Working);
    work(&state, || panic!("as a library may"));
    assert!(matches!(&*state.lock().unwrap(), State::Failed(_)));
}
