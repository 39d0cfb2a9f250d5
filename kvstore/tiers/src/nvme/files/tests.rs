use super::*;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 % 251) as u8).collect()
}

#[test]
fn bytes_come_back_whatever_their_alignment() {
    let dir = tempfile::tempdir().unwrap();
    let disk = ExtentFiles::open(dir.path()).unwrap();
    let file = FileId(3);
    disk.reserve(file, 10 * SECTOR).unwrap();
    let mut page = super::super::AlignedBuffer::new(8192).unwrap();
    page.copy_from_slice(&content(8192));
    disk.write_at(file, 0, &page).unwrap();
    // From unaligned memory, and of an odd length.
    let odd = content(5001);
    disk.write_at(file, 2 * SECTOR, &odd[1..]).unwrap();
    disk.sync(file).unwrap();
    let again = ExtentFiles::open(dir.path()).unwrap();
    assert_eq!(again.files().unwrap(), [(file, 10 * SECTOR)]);
    let mut back = vec![0; 8192];
    again.read_at(file, 0, &mut back).unwrap();
    assert_eq!(back, *page);
    let mut back = vec![0; 5000];
    again.read_at(file, 2 * SECTOR, &mut back).unwrap();
    assert_eq!(back, odd[1..]);
    page.fill(1);
    again.read_at(file, 9 * SECTOR, &mut page[..4096]).unwrap();
    assert!(page[..4096].iter().all(|byte| *byte == 0), "reserved room reads as zeros");
    assert_eq!(again.read_at(file, 9 * SECTOR, &mut page), Err(DiskError::Short(file)));
    again.shrink(file, SECTOR).unwrap();
    assert_eq!(again.files().unwrap(), [(file, SECTOR)]);
    again.remove(file).unwrap();
    again.remove(file).unwrap();
    assert_eq!(again.files().unwrap(), []);
}

#[test]
fn room_that_cannot_be_had_is_an_error_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let disk = ExtentFiles::open(dir.path()).unwrap();
    assert!(disk.reserve(FileId(0), 1 << 60).is_err());
    assert_eq!(disk.files().unwrap(), []);
    disk.reserve(FileId(0), SECTOR).unwrap();
    assert!(disk.reserve(FileId(0), 1 << 60).is_err());
    assert_eq!(disk.files().unwrap(), [(FileId(0), SECTOR)]);
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let disk = ExtentFiles::open(dir.path()).unwrap();
    assert_eq!(disk.files().unwrap(), []);
}
