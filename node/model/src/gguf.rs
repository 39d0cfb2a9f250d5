//! The header of a GGUF file: metadata and the table of tensors.
//!
//! Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian.
//! The bytes are foreign: every count is held against what is left of the file before memory is
//! taken, and every tensor is checked to lie inside the file.

mod cursor;
#[cfg(test)]
pub(crate) mod tests;

use candle_core::quantized::GgmlDType;
use cursor::Cursor;
use std::collections::BTreeMap;

/// Tensors have at most so many dimensions (`GGML_MAX_DIMS`).
const MAX_DIMS: u32 = 4;
/// Elements of all metadata arrays together; the largest vocabularies and merge lists stay below
/// two million.
const MAX_ELEMENTS: u64 = 4 << 20;
/// Arrays within arrays.
const MAX_DEPTH: u8 = 3;
const DEFAULT_ALIGNMENT: u64 = 32;

/// A metadata value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    pub(crate) fn array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(list) => Some(list),
            _ => None,
        }
    }

    /// As JSON; arrays are left out (`None`): only the tokenizer has them, and reads them itself.
    fn scalar(&self) -> Option<serde_json::Value> {
        match self {
            Self::Unsigned(n) => Some((*n).into()),
            Self::Signed(n) => Some((*n).into()),
            Self::Float(n) => Some((*n).into()),
            Self::Bool(flag) => Some((*flag).into()),
            Self::Text(text) => Some(text.as_str().into()),
            Self::Array(_) => None,
        }
    }
}

/// One tensor, checked to lie inside the file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TensorInfo {
    pub(crate) dtype: GgmlDType,
    /// Slowest dimension first, as everywhere but in the file itself.
    pub(crate) shape: Vec<usize>,
    /// First byte, from the start of the file.
    pub(crate) start: usize,
    /// Number of bytes.
    pub(crate) len: usize,
}

/// What a GGUF file says before its data.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, TensorInfo>,
}

/// Why the bytes are not a usable GGUF file.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum GgufError {
    #[error("it does not begin with GGUF")]
    Magic,
    #[error("it ends inside {0}")]
    Truncated(String),
    #[error("{0}")]
    Broken(String),
    /// Not damage: a version or a type that is not supported.
    #[error("{field} is {found}")]
    Unsupported { field: String, found: String, supported: &'static str },
}

impl Header {
    /// Reads the header of a whole file's bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, GgufError> {
        let mut at = Cursor::new(bytes);
        if at.take(4, "the magic number") != Ok(b"GGUF") {
            return Err(GgufError::Magic);
        }
        let version = at.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(unsupported("GGUF version", version, "2, 3 (little-endian)"));
        }
        let tensor_count = at.u64("the header")?;
        let entry_count = at.u64("the header")?;
        // The smallest entry is a key's length, a type and a byte; the smallest tensor a name's
        // length, a number of dimensions, a type and an offset.
        at.expect(entry_count, 13, "the metadata")?;
        at.expect(tensor_count, 24, "the table of tensors")?;
        let mut metadata = BTreeMap::new();
        let mut budget = MAX_ELEMENTS;
        for _ in 0..entry_count {
            let key = name(&mut at, "a metadata key")?;
            let kind = at.u32(&key)?;
            let value = value(&mut at, kind, 0, &mut budget, &key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(GgufError::Broken(format!("the metadata key {key} occurs twice")));
            }
        }
        let alignment = alignment(&metadata)?;
        let tensors = tensors(&mut at, tensor_count, alignment)?;
        Ok(Self { metadata, tensors })
    }

    /// The metadata without its arrays, as a JSON object.
    pub(crate) fn scalars(&self) -> serde_json::Map<String, serde_json::Value> {
        let scalar = |(key, value): (&String, &Value)| Some((key.clone(), value.scalar()?));
        self.metadata.iter().filter_map(scalar).collect()
    }
}

fn unsupported(field: &str, found: impl ToString, supported: &'static str) -> GgufError {
    GgufError::Unsupported { field: field.to_owned(), found: found.to_string(), supported }
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value.unsigned() {
        Some(n) if n >= 8 && n.is_power_of_two() && n <= 1 << 20 => Ok(n),
        _ => Err(GgufError::Broken(format!("{KEY} is {value:?}, expected a power of two from 8"))),
    }
}

/// A name: UTF-8, of sensible length.
fn name(at: &mut Cursor<'_>, what: &str) -> Result<String, GgufError> {
    const MAX: u64 = 65_535; // the specification's limit for keys
    let len = at.u64(what)?;
    if len > MAX {
        return Err(GgufError::Broken(format!(
            "{what} is {len} bytes long, at most {MAX} are allowed"
        )));
    }
    let bytes = at.take(len, what)?;
    let name = std::str::from_utf8(bytes);
    name.map(str::to_owned).map_err(|_| GgufError::Broken(format!("{what} is not UTF-8")))
}

fn value(
    at: &mut Cursor<'_>,
    kind: u32,
    depth: u8,
    budget: &mut u64,
    key: &str,
) -> Result<Value, GgufError> {
    Ok(match kind {
        0 => Value::Unsigned(u8::from_le_bytes(at.array(key)?).into()),
        1 => Value::Signed(i8::from_le_bytes(at.array(key)?).into()),
        2 => Value::Unsigned(u16::from_le_bytes(at.array(key)?).into()),
        3 => Value::Signed(i16::from_le_bytes(at.array(key)?).into()),
        4 => Value::Unsigned(at.u32(key)?.into()),
        5 => Value::Signed(i32::from_le_bytes(at.array(key)?).into()),
        6 => Value::Float(f32::from_le_bytes(at.array(key)?).into()),
        7 => match at.array::<1>(key)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            [other] => {
                return Err(GgufError::Broken(format!("{key} is the truth value {other}")));
            }
        },
        8 => {
            let len = at.u64(key)?;
            // Tokens of some vocabularies are not UTF-8; such a vocabulary is refused later, where
            // it matters.
            Value::Text(String::from_utf8_lossy(at.take(len, key)?).into_owned())
        }
        9 => array(at, depth, budget, key)?,
        10 => Value::Unsigned(at.u64(key)?),
        11 => Value::Signed(i64::from_le_bytes(at.array(key)?)),
        12 => Value::Float(f64::from_le_bytes(at.array(key)?)),
        other => {
            return Err(GgufError::Broken(format!("{key} has the unknown value type {other}")));
        }
    })
}

fn array(at: &mut Cursor<'_>, depth: u8, budget: &mut u64, key: &str) -> Result<Value, GgufError> {
    if depth >= MAX_DEPTH {
        return Err(GgufError::Broken(format!("{key} nests arrays more than {MAX_DEPTH} deep")));
    }
    let kind = at.u32(key)?;
    let len = at.u64(key)?;
    at.expect(len, smallest(kind), key)?;
    *budget = budget.checked_sub(len).ok_or_else(|| {
        GgufError::Broken(format!(
            "{key} has {len} elements; at most {MAX_ELEMENTS} are read in all"
        ))
    })?;
    let list = (0..len).map(|_| value(at, kind, depth + 1, budget, key));
    Ok(Value::Array(list.collect::<Result<_, _>>()?))
}

/// The least bytes that a value of a type takes.
fn smallest(kind: u32) -> u64 {
    match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        8 | 10..=12 => 8,
        9 => 12,
        _ => 4,
    }
}

fn tensors(
    at: &mut Cursor<'_>,
    count: u64,
    alignment: u64,
) -> Result<BTreeMap<String, TensorInfo>, GgufError> {
    let mut raw = Vec::new();
    for _ in 0..count {
        let name = name(at, "a tensor's name")?;
        let shape = shape(at, &name)?;
        let dtype = dtype(at.u32(&name)?, &name)?;
        let offset = at.u64(&name)?;
        raw.push((name, shape, dtype, offset));
    }
    let data = at.position().next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for (name, shape, dtype, offset) in raw {
        let info = place(shape, dtype, offset, data, alignment, at.len(), &name)?;
        if tensors.insert(name.clone(), info).is_some() {
            return Err(GgufError::Broken(format!("the tensor {name} occurs twice")));
        }
    }
    Ok(tensors)
}

fn shape(at: &mut Cursor<'_>, name: &str) -> Result<Vec<usize>, GgufError> {
    let dims = at.u32(name)?;
    if dims == 0 || dims > MAX_DIMS {
        let detail = format!("the tensor {name} has {dims} dimensions, expected 1 to {MAX_DIMS}");
        return Err(GgufError::Broken(detail));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let size = at.u64(name)?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0);
        let bad = || GgufError::Broken(format!("the tensor {name} has a dimension out of range"));
        shape.push(size.ok_or_else(bad)?);
    }
    shape.reverse();
    Ok(shape)
}

/// Numbers of tensor types in the specification. The types 9 and 15 exist only during
/// computation, the others that are missing here cannot be decoded.
fn dtype(code: u32, name: &str) -> Result<GgmlDType, GgufError> {
    Ok(match code {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        other => {
            let field = format!("the type of the tensor {name}");
            const SUPPORTED: &str =
                "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K (no IQ types)";
            return Err(unsupported(&field, format!("number {other}"), SUPPORTED));
        }
    })
}

fn place(
    shape: Vec<usize>,
    dtype: GgmlDType,
    offset: u64,
    data: u64,
    alignment: u64,
    file: u64,
    name: &str,
) -> Result<TensorInfo, GgufError> {
    let broken = |detail: String| GgufError::Broken(format!("the tensor {name} {detail}"));
    let row = shape.last().copied().unwrap_or(0);
    if !row.is_multiple_of(dtype.block_size()) {
        return Err(broken(format!("has rows of {row}, not whole blocks of {dtype:?}")));
    }
    if !offset.is_multiple_of(alignment) {
        return Err(broken(format!("begins at {offset}, not a multiple of {alignment}")));
    }
    let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let len = elements.and_then(|n| (n / dtype.block_size()).checked_mul(dtype.type_size()));
    let start = data.checked_add(offset);
    let end = start.zip(len).and_then(|(start, len)| start.checked_add(len as u64));
    let too_large = || broken(format!("has the impossible shape {shape:?}"));
    let (Some(start), Some(len), Some(end)) = (start, len, end) else {
        return Err(too_large());
    };
    if end > file {
        return Err(GgufError::Truncated(format!(
            "the tensor {name}: that needs {end} bytes, the file has {file}"
        )));
    }
    let start = usize::try_from(start).map_err(|_| too_large())?;
    Ok(TensorInfo { dtype, shape, start, len })
}
