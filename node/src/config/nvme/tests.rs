use super::*;

#[test]
fn auto_takes_a_tenth_in_whole_steps_and_eight_gib_at_most() {
    const GIB: u64 = 1 << 30;
    let auto = |room| NvmeSize::Auto.bytes(room);
    assert_eq!([auto(0), auto(5 * GIB / 2 - 1)], [0, 0]);
    assert_eq!(auto(5 * GIB / 2), GIB / 4);
    assert_eq!(auto(34 * GIB), 13 * GIB / 4);
    assert_eq!([auto(80 * GIB), auto(u64::MAX)], [8 * GIB, 8 * GIB]);
    assert_eq!(NvmeSize::Mib(64).bytes(0), 64 << 20, "what is asked for is not cut");
}

#[test]
fn a_size_is_a_number_or_auto() {
    let parse = |text: &str| toml::from_str::<NvmeSettings>(text).map(|nvme| nvme.mib);
    assert_eq!(parse("mib = 7"), Ok(NvmeSize::Mib(7)));
    assert_eq!(parse("mib = 0"), Ok(NvmeSize::Mib(0)));
    assert_eq!(parse("mib = \"auto\""), Ok(NvmeSize::Auto));
    for wrong in ["mib = \"much\"", "mib = -1", "mib = 1.5"] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("number of MiB, or \"auto\""), "{error}");
    }
}
