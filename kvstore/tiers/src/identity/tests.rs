use super::*;

fn load(dir: &Path, seed: u8, machine: u8) -> Result<Identity, IdentityError> {
    Identity::on_machine(dir, false, move || [seed; 32], [machine; 32])
}

#[test]
fn a_key_is_made_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(load(dir.path(), 1, 9).unwrap().seed(), &[1; 32]);
    assert_eq!(load(dir.path(), 2, 9).unwrap().seed(), &[1; 32]);
    let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn another_machine_is_refused_until_the_identity_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    load(dir.path(), 1, 9).unwrap();
    let refused = load(dir.path(), 1, 8);
    assert!(matches!(refused, Err(IdentityError::OtherMachine)), "{refused:?}");
    let renewed = Identity::on_machine(dir.path(), true, || [3; 32], [8; 32]).unwrap();
    assert_eq!(renewed.seed(), &[3; 32]);
    assert_eq!(load(dir.path(), 4, 8).unwrap().seed(), &[3; 32]);
}

#[test]
fn a_key_without_a_machine_id_runs_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    load(dir.path(), 1, 0).unwrap();
    assert_eq!(load(dir.path(), 2, 5).unwrap().seed(), &[1; 32]);
}

#[test]
fn exposed_and_malformed_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    load(dir.path(), 1, 9).unwrap();
    let path = dir.path().join(FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(load(dir.path(), 1, 9), Err(IdentityError::Exposed { mode: 0o644, .. })));
    let damaged = good.replacen("01", "02", 1);
    for text in ["", "dynamo-node key 2\n", "dynamo-node key 1\nabc\n", &damaged] {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load(dir.path(), 1, 9), Err(IdentityError::Malformed(_))), "{text:?}");
    }
}
