use super::*;

#[test]
fn a_small_run_measures_everything() {
    let dir = tempfile::tempdir().unwrap();
    let bench = StoreBench {
        sizes: vec![64 << 10, 100_000],
        bytes: 2 << 20,
        rounds: 1,
        threads: 2,
        records: 2000,
        ..StoreBench::new(dir.path().join("bench"))
    };
    let report = bench_store(&bench, |_| {}).unwrap();
    assert_eq!(report.sizes.len(), 2);
    for size in &report.sizes {
        assert!(size.tier.put > 0.0 && size.tier.get > 0.0 && size.blobdb.get > 0.0);
        assert!((1.0..1.05).contains(&size.data_amplification), "{}", size.data_amplification);
    }
    assert!(report.restart.lookups_per_second > 0.0);
    assert!(report.table().contains("restart"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "everything is removed");
}
