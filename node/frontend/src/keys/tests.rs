use super::*;

fn spec(name: &str, keys: &[&str]) -> TenantSpec {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    TenantSpec { name: name.into(), keys, priority: 0, prompt_tokens_per_minute: None }
}

const A: &str = "aaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbb";

fn bearer(key: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
    headers
}

#[test]
fn wrong_tenants_are_refused_and_the_former_keys_stay() {
    let keys = Keys::open();
    keys.replace(&[spec("a", &[A])]).unwrap();
    for (specs, error) in [
        (vec![spec("", &[A])], KeyError::Name(String::new())),
        (vec![spec("a b", &[A])], KeyError::Name("a b".into())),
        (vec![spec("a", &[A]), spec("a", &[B])], KeyError::Twice("a".into())),
        (vec![spec("a", &[])], KeyError::NoKey("a".into())),
        (vec![spec("a", &["short"])], KeyError::BadKey("a".into())),
        (vec![spec("a", &["has a space in it, and more"])], KeyError::BadKey("a".into())),
        (vec![spec("a", &[A]), spec("b", &[A])], KeyError::SharedKey("b".into())),
    ] {
        assert_eq!(keys.replace(&specs), Err(error.clone()), "{error}");
        assert_eq!(keys.admit(&bearer(A)).unwrap().id.0, "a");
    }
}

#[test]
fn a_key_comes_in_either_header() {
    let keys = Keys::open();
    assert_eq!(keys.admit(&HeaderMap::new()).unwrap().id, TenantId::local());
    keys.replace(&[spec("a", &[A]), spec("b", &[B])]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", B.parse().unwrap());
    assert_eq!(keys.admit(&headers).unwrap().id.0, "b");
    assert_eq!(keys.admit(&bearer(A)).unwrap().id.0, "a");
    for (headers, words) in [
        (HeaderMap::new(), "is needed"),
        (bearer(""), "is needed"),
        (bearer("cccccccccccccccc"), "not known"),
    ] {
        let error = keys.admit(&headers).unwrap_err();
        assert_eq!(error.kind, Kind::Unauthorised);
        assert!(error.message.contains(words), "{}", error.message);
        assert!(!error.message.contains("cccc"), "a key is not repeated");
    }
}

#[test]
fn a_quota_is_kept_over_a_reload_and_a_huge_prompt_can_be_served() {
    let keys = Keys::open();
    let quota = |n| TenantSpec { prompt_tokens_per_minute: NonZeroU32::new(n), ..spec("a", &[A]) };
    keys.replace(&[quota(1000)]).unwrap();
    assert_eq!(keys.admit(&bearer(A)).unwrap().charge(1_000_000), Ok(()));
    keys.replace(&[quota(1000), spec("b", &[B])]).unwrap();
    let error = keys.admit(&bearer(A)).unwrap().charge(900).unwrap_err();
    assert_eq!(error.kind, Kind::RateLimited);
    assert!((1..=60).contains(&error.retry_after.unwrap()), "{error:?}");
    assert_eq!(keys.admit(&bearer(B)).unwrap().charge(u32::MAX), Ok(()));
    keys.replace(&[quota(2000)]).unwrap();
    assert_eq!(keys.admit(&bearer(A)).unwrap().charge(900), Ok(()), "a new quota begins anew");
}
