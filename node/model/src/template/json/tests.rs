use super::{Style, dumps, string, to_value};
use crate::template::python;
use minijinja::{Value, context};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn json() -> impl Strategy<Value = Json> {
    let text =
        prop::sample::select(vec!["", "a", "é世界", "\"\\\n\u{1}\u{7f}", "x\u{2028}y", "🦀"]);
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e9..1e9).prop_map(Json::from),
        text.prop_map(Json::from),
    ];
    let key = prop::sample::select(vec!["a", "b", "items", "é\"", ""]);
    let wide =
        (0..40usize).prop_map(|n| (0..n).map(|i| (format!("k{i}"), Json::from(i))).collect());
    let leaf = prop_oneof![9 => leaf, 1 => wide];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// The value made of the library's own kinds.
fn plain(json: &Json) -> Value {
    match json {
        Json::Array(list) => list.iter().map(plain).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), plain(v)))),
        leaf => to_value(leaf),
    }
}

fn styles() -> [Style; 4] {
    let plain = Style::default;
    [
        plain(),
        Style { indent: Some("  ".into()), item_separator: ",".into(), ..plain() },
        Style { ascii: true, ..plain() },
        Style { sort_keys: true, ..plain() },
    ]
}

/// All that templates do with objects.
const LOOK: &str = "{{ v }}|{{ v is mapping }}|{{ v is sequence }}|{{ v is iterable }}|\
    {{ v is string }}|{{ v == w }}|{{ w == v }}|{{ v | tojson }}|{{ v | tojson(indent=2) }}|\
    {{ v | tojson }}|{{ [v, {'in': v}] | tojson }}|{{ 'yes' if v else 'no' }}|{{ v is defined }}|\
    {% if v is mapping %}{{ v | length }}|{{ v.a }}|{{ v['b'] is defined }}|{{ 'a' in v }}|\
    {{ v.get('a', 1) }}|{{ v | items | list }}|{{ v | dictsort }}|\
    {% for key in v %}{{ key }}={{ v[key] }},{% endfor %}\
    {% for key, value in v.items() %}{{ key }}:{{ value }};{% endfor %}{% endif %}";

proptest! {
    #[test]
    fn objects_that_remember_how_they_are_written_are_as_any_other(json in json()) {
        let (ours, plain) = (to_value(&json), plain(&json));
        for style in styles().iter().chain(&styles()) {
            prop_assert_eq!(dumps(&ours, style), dumps(&plain, style));
        }
        let environment = python::environment(None);
        let look = |v: &Value| {
            environment.render_str(LOOK, context!(v => v.clone(), w => plain.clone()))
        };
        prop_assert_eq!(look(&ours).unwrap(), look(&plain).unwrap());
    }

    #[test]
    fn texts_are_written_as_letter_by_letter(text: String, ascii: bool) {
        let (mut whole, mut apart) = (String::new(), String::from("\""));
        string(&mut whole, &text, ascii);
        for letter in text.chars() {
            let mut one = String::new();
            string(&mut one, &letter.to_string(), ascii);
            apart.push_str(one.trim_start_matches('"').strip_suffix('"').unwrap_or_default());
        }
        apart.push('"');
        if !text.contains('"') {
            prop_assert_eq!(&whole, &apart);
        }
        prop_assert_eq!(serde_json::from_str::<String>(&whole).unwrap(), text);
        prop_assert!(!ascii || whole.is_ascii());
    }
}

#[test]
fn what_cannot_be_written_is_an_error_each_time() {
    let deep = (0..300).fold(json!({}), |inner, _| json!({ "a": inner }));
    let value = to_value(&deep);
    for _ in 0..2 {
        assert!(dumps(&value, &Style::default()).unwrap_err().contains("nested more than"));
    }
}
