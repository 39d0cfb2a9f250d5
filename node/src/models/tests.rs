use super::{cache_home_of, find};
use std::path::Path;

#[test]
fn an_empty_variable_is_none() {
    let of = |xdg: Option<&str>, home: Option<&str>| {
        cache_home_of(xdg.map(Into::into), home.map(Into::into))
    };
    assert_eq!(of(Some("/cache"), Some("/me")), Path::new("/cache"));
    for xdg in [None, Some("")] {
        assert_eq!(of(xdg, Some("/me")), Path::new("/me/.cache"));
        assert_eq!(of(xdg, Some("")), Path::new("/var/lib/.cache"));
        assert_eq!(of(xdg, None), Path::new("/var/lib/.cache"));
    }
}

#[test]
fn a_short_name_must_fit_one_model_only() {
    let folder = tempfile::tempdir().unwrap();
    let add = |file: &str| {
        let path = folder.path().join(file);
        std::fs::write(&path, "").unwrap();
        path
    };
    let find = |name: &str| find(folder.path(), name).map_err(|fault| fault.to_string());
    assert!(find("tiny").unwrap_err().contains("it is empty"));
    let (q8, other) = (add("Tiny.Q8_0.gguf"), add("Other.Q4_1.gguf"));
    assert_eq!(find("tiny"), Ok(q8.clone()));
    let q4 = add("Tiny.Q4_1.gguf");
    let several = find("Tiny").unwrap_err();
    assert!(several.contains("any of tiny.q4_1, tiny.q8_0 in"), "{several}");
    let found = [find("tiny.q4_1"), find("TINY.Q8_0"), find("other")];
    assert_eq!(found, [Ok(q4), Ok(q8), Ok(other)]);
    let none = find("none").unwrap_err();
    assert!(none.contains("it holds other.q4_1, tiny.q4_1, tiny.q8_0"), "{none}");
    // A whole name comes before those that only begin so.
    let whole = add("tiny.gguf");
    assert_eq!(find("tiny"), Ok(whole));
}
