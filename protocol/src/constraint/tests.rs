use super::*;
use crate::wire::{decode, encode};

fn calls(names: usize, parameters: usize) -> Constraint {
    let schema = Schema { text: "x".repeat(parameters), exact: true };
    let tool = |i: usize| Callable { name: format!("t{i}"), parameters: Some(schema.clone()) };
    let shape = CallShape {
        open: "<".into(),
        arguments: ",".into(),
        close: ">".into(),
        between: String::new(),
    };
    let tools = (0..names).map(tool).collect();
    let calls = Calls { shape, begun: String::new(), tools, parallel: true };
    Constraint { lead: Lead::None, form: Form::TextOrCalls(TextForm::JsonObject, calls) }
}

fn text(bytes: usize) -> Constraint {
    let schema = Schema { text: "x".repeat(bytes), exact: false };
    Constraint { lead: Lead::None, form: Form::Text(TextForm::JsonSchema(schema)) }
}

/// What is over the limits does not come out of a frame, however it was written.
#[test]
fn peers_are_held_to_the_limits() {
    let table = [
        (text(Constraint::BYTES_MAX), true),
        (text(Constraint::BYTES_MAX + 1), false),
        (calls(Constraint::TOOLS_MAX, 1), true),
        (calls(Constraint::TOOLS_MAX + 1, 1), false),
        (calls(2, Constraint::BYTES_MAX / 2 - 16), true),
        (calls(2, Constraint::BYTES_MAX / 2), false),
    ];
    for (constraint, fits) in table {
        assert_eq!(constraint.fits(), fits);
        let back = decode::<Constraint>(&encode(&constraint).unwrap());
        assert_eq!(back.ok(), fits.then_some(constraint));
    }
}
