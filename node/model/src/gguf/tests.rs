use super::{GgufError, Header, Value};
use candle_core::quantized::GgmlDType;

/// Writes GGUF files for tests.
#[derive(Default, Clone)]
pub(crate) struct Writer {
    entries: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

fn text(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

impl Writer {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(value);
        self.entries.push((key.to_owned(), bytes));
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[u8::from(value)])
    }

    pub(crate) fn texts(self, key: &str, values: &[String]) -> Self {
        let mut bytes = 8u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| bytes.extend(text(value)));
        self.entry(key, 9, &bytes)
    }

    pub(crate) fn ints(self, key: &str, values: &[i32]) -> Self {
        let mut bytes = 5u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        self.entry(key, 9, &bytes)
    }

    /// A tensor with its shape slowest dimension first, its type's number and its bytes.
    pub(crate) fn tensor(mut self, name: &str, shape: &[usize], kind: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, bytes));
        self
    }

    pub(crate) fn floats(self, name: &str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, shape, 0, bytes)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            out.extend(text(key));
            out.extend(value);
        }
        let mut data = Vec::new();
        for (name, shape, kind, bytes) in &self.tensors {
            out.extend(text(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|size| out.extend((*size as u64).to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
        out
    }
}

fn sample() -> Writer {
    Writer::default()
        .text("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .f32("llama.rope.freq_base", 0.5)
        .flag("yes", true)
        .texts("list", &["a".into(), "bc".into()])
        .ints("numbers", &[-1, 2])
        .floats("x.weight", &[2, 3], &[1.0; 6])
        .tensor("q.weight", &[1, 32], 8, vec![7; 34])
}

#[test]
fn reads_what_was_written() {
    let bytes = sample().bytes();
    let header = Header::read(&bytes).unwrap();
    assert_eq!(header.metadata["llama.block_count"], Value::Unsigned(2));
    assert_eq!(header.metadata["llama.rope.freq_base"], Value::Float(0.5));
    assert_eq!(header.metadata["yes"], Value::Bool(true));
    let numbers = Value::Array(vec![Value::Signed(-1), Value::Signed(2)]);
    assert_eq!(header.metadata["numbers"], numbers);
    assert_eq!(header.metadata["list"].array().unwrap()[1].text(), Some("bc"));
    let x = &header.tensors["x.weight"];
    assert_eq!((x.shape.as_slice(), x.dtype, x.len), ([2, 3].as_slice(), GgmlDType::F32, 24));
    assert_eq!(&bytes[x.start..x.start + 4], 1.0f32.to_le_bytes());
    let q = &header.tensors["q.weight"];
    assert_eq!((q.dtype, q.len), (GgmlDType::Q8_0, 34));
    assert_eq!(bytes[q.start..q.start + q.len], [7; 34]);
    assert!(!header.scalars().contains_key("list"));
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = sample().bytes();
    let needed = bytes.len() - 30; // the last tensor's 34 bytes are padded to 64
    for len in 0..needed {
        let error = Header::read(&bytes[..len]).unwrap_err();
        let noticed = matches!(error, GgufError::Truncated(_) | GgufError::Magic);
        assert!(noticed, "{len} bytes: {error}");
    }
    assert!(Header::read(&bytes[..needed]).is_ok());
}

#[test]
fn names_the_tensor_that_is_cut_off() {
    let bytes = sample().bytes();
    let error = Header::read(&bytes[..bytes.len() - 40]).unwrap_err().to_string();
    assert!(error.contains("q.weight"), "{error}");
}

#[test]
fn refuses_what_it_cannot_decode() {
    let iq = Writer::default().tensor("w", &[1, 32], 20, vec![0; 32]).bytes();
    let Err(GgufError::Unsupported { field, .. }) = Header::read(&iq) else { panic!() };
    assert!(field.contains('w'));
    let mut old = sample().bytes();
    old[4] = 1;
    assert!(matches!(Header::read(&old), Err(GgufError::Unsupported { .. })));
    let odd = Writer::default().tensor("w", &[32, 1], 8, vec![0; 34]).bytes();
    assert!(Header::read(&odd).unwrap_err().to_string().contains("whole blocks"));
}

#[test]
fn absurd_counts_take_no_memory() {
    let mut bytes = sample().bytes();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(Header::read(&bytes), Err(GgufError::Truncated(_))));
    let mut list = 0u32.to_le_bytes().to_vec();
    list.extend((1u64 << 40).to_le_bytes());
    let file = Writer::default().entry("list", 9, &list).bytes();
    assert!(matches!(Header::read(&file), Err(GgufError::Truncated(_))));
    // Arrays of arrays of arrays …
    let mut deep = Vec::new();
    for _ in 0..100 {
        deep.extend(9u32.to_le_bytes());
        deep.extend(1u64.to_le_bytes());
    }
    let file = Writer::default().entry("deep", 9, &deep).bytes();
    assert!(matches!(Header::read(&file), Err(GgufError::Broken(_))));
    let huge = Writer::default().tensor("w", &[1 << 40, 1 << 40], 0, Vec::new()).bytes();
    assert!(matches!(Header::read(&huge), Err(GgufError::Broken(_))));
}

#[test]
fn twice_the_same_name_is_damage() {
    let keys = Writer::default().u32("a", 1).u32("a", 2).bytes();
    assert!(matches!(Header::read(&keys), Err(GgufError::Broken(_))));
    let tensors = Writer::default().floats("w", &[1], &[0.0]).floats("w", &[1], &[0.0]).bytes();
    assert!(matches!(Header::read(&tensors), Err(GgufError::Broken(_))));
}

/// All tensors that a header promises lie inside the file.
fn check(bytes: &[u8]) {
    if let Ok(header) = Header::read(bytes) {
        for info in header.tensors.values() {
            assert!(info.start + info.len <= bytes.len());
        }
    }
}

#[test]
fn fuzz_any_bytes() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend_from_slice(bytes);
        check(bytes);
        check(&file);
    });
}

#[test]
fn fuzz_changed_files() {
    let original = sample().bytes();
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut bytes = original.clone();
        for (at, value) in changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        check(&bytes);
    });
}
