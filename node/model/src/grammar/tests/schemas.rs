//! Random schemas, with values that conform and values that do not.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, json};

/// A schema and a value that conforms to it, keys in the order of the schema.
fn pairs(depth: u32) -> BoxedStrategy<(Value, Value)> {
    let text = || "([a-z\"\\\\/ üß日🙂]|\\PC){0,8}";
    let leaf = prop_oneof![
        Just((json!({"type": "null"}), Value::Null)),
        any::<bool>().prop_map(|b| (json!({"type": "boolean"}), b.into())),
        any::<i32>().prop_map(|n| (json!({"type": "integer"}), n.into())),
        (-50i32..50).prop_map(|n| {
            (json!({"type": "integer", "minimum": n - 3, "maximum": n + 20}), n.into())
        }),
        (-1e6..1e6f64).prop_map(|x| (json!({"type": "number"}), x.into())),
        text().prop_map(|s| (json!({"type": "string"}), s.into())),
        text().prop_map(|s| {
            let length = s.chars().count();
            (json!({"type": "string", "minLength": length.min(2), "maxLength": length}), s.into())
        }),
        "[a-f]{1,4}[0-9]?".prop_map(|s| {
            (json!({"type": "string", "pattern": "^[a-f]{1,4}[0-9]?$"}), s.into())
        }),
        (text(), text()).prop_map(|(a, b)| (json!({"enum": [a, 7, b, null]}), b.into())),
        Just((json!({"type": "string", "format": "date"}), "2026-11-30".into())),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let list = (pairs(depth - 1), 0usize..3).prop_map(|((schema, value), n)| {
        (json!({"type": "array", "items": schema, "maxItems": n + 1}), vec![value; n].into())
    });
    let fields = prop::collection::vec((text(), pairs(depth - 1), any::<bool>()), 0..4);
    let object = (fields, any::<bool>()).prop_map(|(fields, closed)| {
        let (mut properties, mut value) = (Map::new(), Map::new());
        let mut required: Vec<String> = Vec::new();
        for (name, (schema, inner), there) in fields {
            if properties.contains_key(&name) {
                continue;
            }
            properties.insert(name.clone(), schema);
            if there {
                required.push(name.clone());
                value.insert(name, inner);
            }
        }
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if closed {
            schema["additionalProperties"] = false.into();
        } else {
            value.insert("another, longer name".into(), json!([1, {"x": "y"}]));
        }
        (schema, Value::Object(value))
    });
    let either = (pairs(depth - 1), pairs(depth - 1), any::<bool>()).prop_map(
        |((one, value), (two, other), first)| {
            (json!({"anyOf": [one, two]}), if first { value } else { other })
        },
    );
    let named = pairs(depth - 1).prop_map(|(schema, value)| {
        (json!({"$defs": {"it": schema}, "$ref": "#/$defs/it"}), value)
    });
    let within = named.prop_map(|(schema, value)| {
        let inner = json!({"properties": {"a": {"$ref": "#/$defs/it"}}, "required": ["a"]});
        let mut whole = json!({"type": "object", "$defs": schema["$defs"]});
        whole["properties"] = inner["properties"].clone();
        whole["required"] = inner["required"].clone();
        (whole, json!({"a": value}))
    });
    let deep = prop_oneof![2 => object, 1 => list, 1 => either];
    if depth == 2 { prop_oneof![4 => deep, 1 => within].boxed() } else { deep.boxed() }
}

/// Another value than the one that conforms.
fn changed(value: &Value, how: u8) -> Value {
    match (value, how % 4) {
        (Value::Object(map), 0) if !map.is_empty() => {
            let mut map = map.clone();
            let name = map.keys().next().cloned().unwrap_or_default();
            map.shift_remove(&name);
            Value::Object(map)
        }
        (Value::Object(map), 1 | 2) if !map.is_empty() => {
            let mut map = map.clone();
            for inner in map.values_mut() {
                *inner = changed(inner, how / 4);
            }
            Value::Object(map)
        }
        (Value::Object(map), _) => {
            let mut map = map.clone();
            map.insert("unheard of".into(), Value::Null);
            Value::Object(map)
        }
        (Value::Array(list), _) => {
            let mut list = list.clone();
            list.extend([json!({"odd": true}), json!({"odd": true})]);
            Value::Array(list)
        }
        (Value::String(text), 0) => format!("{text}{text}!!").into(),
        (Value::String(_), _) => 1.into(),
        (Value::Number(n), 0) => (n.as_f64().unwrap_or(0.0) + 1000.5).into(),
        _ => "something else".into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_conforms_is_accepted_and_nothing_else(
        (described, value) in pairs(2),
        how in any::<u8>(),
    ) {
        let valid = jsonschema::validator_for(&described).unwrap();
        prop_assert!(valid.is_valid(&value), "{described} {value}");
        let grammar = tiny().compile(&schema(&described, true));
        let grammar = grammar.map_err(|e| TestCaseError::fail(format!("{e}: {described}")))?;
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            // The tokenizer writes some letters in another form (NFC).
            let tokens = TINY.encode(&text, false);
            prop_assume!(TINY.decode(&tokens) == text);
            let fate = fate(&grammar, &tokens);
            prop_assert!(matches!(fate, Fate::May | Fate::Must), "{fate:?}: {described}\n{text}");
        }
        let other = changed(&value, how);
        if !valid.is_valid(&other) {
            let fate = says(&grammar, &other.to_string());
            let refused = matches!(fate, Fate::Refused(_) | Fate::Unfinished);
            prop_assert!(refused, "{fate:?}: {described}\n{other}");
        }
    }

    /// Whatever way through the masks leads to the end, what was said conforms.
    #[test]
    fn any_way_through_the_masks_conforms(
        (described, _) in pairs(2),
        choices in prop::collection::vec(any::<u16>(), 150),
    ) {
        let valid = jsonschema::validator_for(&described).unwrap();
        let grammar = tiny().compile(&schema(&described, true)).unwrap();
        let mut guide = grammar.begin();
        let mut answer = Vec::new();
        for choice in choices {
            let mask = guide.mask().unwrap();
            if mask.may_end() {
                let text = TINY.decode(&answer);
                match serde_json::from_str::<Value>(&text) {
                    Ok(said) => prop_assert!(valid.is_valid(&said), "{described}\n{text}"),
                    // JSON knows no largest number, the reader does.
                    Err(error) => prop_assert!(error.to_string().contains("out of range")),
                }
            }
            let mut allowed = Vec::new();
            mask.for_each(|token| allowed.push(token));
            if mask.must_end() || allowed.is_empty() {
                break;
            }
            let token = allowed[usize::from(choice) % allowed.len()];
            prop_assert!(!TINY.is_special(token));
            answer.push(token);
            guide.accept(token).unwrap();
        }
    }
}
