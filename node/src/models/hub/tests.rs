//! Names of the hub, and what of a repository is taken.

use super::{Choice, Name, choose};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap_or_else(|| panic!("{text:?} is a name"))
}

#[test]
fn names_with_revision_and_file() {
    let plain = name("Qwen/Qwen3-0.6B");
    assert_eq!((plain.repo.as_str(), plain.revision.as_str()), ("Qwen/Qwen3-0.6B", "main"));
    assert_eq!(plain.file, None);
    assert_eq!(name("a/b@refs/pr/1").revision, "refs/pr/1");
    let file = name("a/b-GGUF@v1:Q4/b.Q4_K_M.gguf");
    assert_eq!((file.repo.as_str(), file.revision.as_str()), ("a/b-GGUF", "v1"));
    assert_eq!(file.file.as_deref(), Some("Q4/b.Q4_K_M.gguf"));
}

#[test]
fn what_is_no_name() {
    for text in [
        "name",
        "/a/b",
        "./b",
        "../b",
        "~/b",
        "a/b/c",
        "a/",
        "a/b.gguf",
        "a/b:c.bin",
        "a/b:../c.gguf",
        "a/b:/c.gguf",
        "a/b@..",
        "a/b@",
        "a/b@../../x",
        "a b/c",
        "a/..",
        "a--b/c",
        "https://huggingface.co/a/b",
    ] {
        assert_eq!(Name::parse(text), None, "{text}");
    }
}

#[test]
fn what_of_a_repository_is_the_model() {
    let list = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>();
    let chosen = |text: &str, files: &[&str]| {
        choose(&name(text), &list(files)).map_err(|fault| fault.to_string())
    };
    let folder = ["config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin"];
    assert_eq!(chosen("a/b", &folder), Ok(Choice::Folder));
    let gguf = Choice::File("x.gguf".into());
    assert_eq!(chosen("a/b", &["README.md", "x.gguf"]), Ok(gguf));
    let y = Choice::File("y.gguf".into());
    assert_eq!(chosen("a/b:y.gguf", &["x.gguf", "y.gguf"]), Ok(y));
    let several = chosen("a/b", &["x.gguf", "y.gguf"]).unwrap_err();
    assert!(several.contains("x.gguf, y.gguf") && several.contains("a/b:FILE.gguf"), "{several}");
    let other = chosen("a/b:z.gguf", &["x.gguf", "y.gguf"]).unwrap_err();
    assert!(other.contains("no file z.gguf") && other.contains("x.gguf, y.gguf"), "{other}");
    for files in [&["pytorch_model.bin", "config.json"][..], &["adapter_model.safetensors"], &[]] {
        let nothing = chosen("a/b", files).unwrap_err();
        assert!(nothing.contains("nothing that can be used"), "{nothing}");
    }
}
