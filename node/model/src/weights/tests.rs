use super::names::{hugging_face_name, needed};
use super::{Opened, layout};
use crate::{Arch, ModelConfig, ModelError, RopeScaling, Weights};
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn config(arch: Arch) -> ModelConfig {
    ModelConfig {
        arch,
        hidden: 32,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 64,
        vocab: 6,
        rms_eps: 1e-6,
        rope_theta: 1e4,
        rope_scaling: RopeScaling::None,
        max_position: 64,
        tie_word_embeddings: false,
        bos: None,
        eos: vec![],
    }
}

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn tensors(config: &ModelConfig, dtype: Dtype) -> Tensors {
    let width = if dtype == Dtype::F32 { 4 } else { 2 };
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let len = shape.iter().product::<usize>() * width;
        (name, (dtype, shape, vec![0x3f; len]))
    };
    needed(config).into_iter().map(tensor).collect()
}

fn write(folder: &Path, name: &str, tensors: &Tensors) -> PathBuf {
    let path = folder.join(name);
    let view = |(name, (dtype, shape, data)): (&String, &(Dtype, Vec<usize>, Vec<u8>))| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap().data().to_vec())
    };
    let owned: Vec<(String, Vec<u8>)> = tensors.iter().map(view).collect();
    let views = owned.iter().map(|(name, data)| {
        let (dtype, shape, _) = &tensors[name];
        (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    path
}

fn open(config: &ModelConfig, tensors: &Tensors) -> Result<Weights, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "model.safetensors", tensors);
    Opened::safetensors(&[path]).and_then(|opened| opened.check(config, folder.path()))
}

#[test]
fn all_float_types_become_f32() {
    let config = config(Arch::Qwen3);
    let one_and_minus_two: [(Dtype, Vec<u8>); 3] = [
        (Dtype::F32, [1f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect()),
        (
            Dtype::F16,
            [1.0, -2.0].iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
        ),
        (
            Dtype::BF16,
            [1.0, -2.0].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        ),
    ];
    for (dtype, bytes) in one_and_minus_two {
        let mut tensors = tensors(&config, dtype);
        tensors.insert("extra".into(), (dtype, vec![1, 2], bytes));
        let weights = open(&config, &tensors).unwrap();
        let extra = weights.tensor("extra").unwrap();
        assert_eq!(extra.to_vec2::<f32>().unwrap(), [[1.0, -2.0]]);
        assert!(weights.qtensor("extra").is_none());
        assert!(matches!(weights.tensor("nothing"), Err(ModelError::Tensor { .. })));
    }
}

#[test]
fn what_is_missing_or_misshapen_is_found_at_open() {
    let config = config(Arch::Qwen3);
    let whole = tensors(&config, Dtype::BF16);
    assert!(open(&config, &whole).is_ok());
    for name in whole.keys() {
        let mut without = whole.clone();
        without.remove(name);
        let missing = open(&config, &without);
        assert!(matches!(missing, Err(ModelError::TensorMissing { name: n, .. }) if n == *name));
        let mut other = whole.clone();
        other.insert(name.clone(), (Dtype::BF16, vec![3, 5], vec![0; 30]));
        let shape = open(&config, &other);
        assert!(matches!(shape, Err(ModelError::TensorShape { name: n, .. }) if n == *name));
    }
    let mut biased = whole.clone();
    let bias = "model.layers.0.self_attn.q_proj.bias";
    biased.insert(bias.into(), (Dtype::BF16, vec![32], vec![0; 64]));
    assert!(matches!(open(&config, &biased), Err(ModelError::Unsupported { .. })));
    let mut whole_numbers = whole;
    whole_numbers.insert("model.norm.weight".into(), (Dtype::I16, vec![32], vec![0; 64]));
    let error = open(&config, &whole_numbers).unwrap_err();
    assert!(error.to_string().contains("model.norm.weight"), "{error}");
}

#[test]
fn tied_embeddings_answer_for_the_head() {
    let mut config = config(Arch::Llama);
    config.tie_word_embeddings = true;
    let mut tensors = tensors(&config, Dtype::BF16);
    assert!(!tensors.contains_key("lm_head.weight"));
    let tied = open(&config, &tensors).unwrap();
    assert!(tied.has("lm_head.weight"));
    assert_eq!(tied.tensor("lm_head.weight").unwrap().dims(), [6, 32]);
    // Files sometimes carry a head all the same; it is not used.
    tensors.insert("lm_head.weight".into(), (Dtype::BF16, vec![1, 1], vec![0; 2]));
    let tied = open(&config, &tensors).unwrap();
    assert_eq!(tied.tensor("lm_head.weight").unwrap().dims(), [6, 32]);
}

#[test]
fn a_tensor_in_two_files_is_damage() {
    let config = config(Arch::Llama);
    let folder = tempfile::tempdir().unwrap();
    let tensors = tensors(&config, Dtype::BF16);
    let (a, b) = (write(folder.path(), "a", &tensors), write(folder.path(), "b", &tensors));
    assert!(matches!(Opened::safetensors(&[a, b]), Err(ModelError::Damaged { .. })));
}

#[test]
fn truncated_files_are_damage() {
    let config = config(Arch::Llama);
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "model.safetensors", &tensors(&config, Dtype::BF16));
    let whole = std::fs::read(&path).unwrap();
    for len in [1, 7, 8, 9, 200, whole.len() / 2, whole.len() - 1] {
        let cut = folder.path().join(format!("cut{len}"));
        std::fs::write(&cut, &whole[..len]).unwrap();
        let error = Opened::safetensors(&[cut]).unwrap_err();
        assert!(matches!(error, ModelError::Damaged { .. }), "{len}: {error}");
    }
}

#[test]
fn the_digest_sees_each_byte_and_the_rotation() {
    let config = config(Arch::Llama);
    let whole = tensors(&config, Dtype::BF16);
    let digest =
        |config: &ModelConfig, tensors: &Tensors| open(config, tensors).unwrap().digest(config);
    let before = digest(&config, &whole);
    assert_eq!(before, digest(&config, &whole));
    let mut changed = whole.clone();
    changed.get_mut("model.layers.0.mlp.up_proj.weight").unwrap().2[17] ^= 1;
    assert_ne!(before, digest(&config, &changed));
    let rotated = ModelConfig { rope_theta: 2e4, ..config.clone() };
    assert_ne!(before, digest(&rotated, &whole));
    let longer = ModelConfig { max_position: 128, eos: vec![1], ..config };
    assert_eq!(before, digest(&longer, &whole));
}

#[test]
fn gguf_names() {
    let name = |gguf: &str| hugging_face_name(gguf);
    assert_eq!(name("blk.12.attn_q.weight").unwrap(), "model.layers.12.self_attn.q_proj.weight");
    assert_eq!(name("blk.0.attn_q.bias").unwrap(), "model.layers.0.self_attn.q_proj.bias");
    assert_eq!(name("output.weight").unwrap(), "lm_head.weight");
    assert_eq!(name("rope_freqs.weight"), None);
    assert_eq!(name("blk.x.attn_q.weight"), None);
    assert_eq!(name("blk.1.ffn_gate_exps.weight"), None);
}

proptest! {
    /// `split_halves` undoes what llama.cpp does: reshape [heads, 2, half, row], swap 1 and 2.
    #[test]
    fn split_halves_undoes_interleaving(heads in 1usize..4, half in 1usize..5, row in 1usize..4) {
        let rows = heads * 2 * half;
        let original: Vec<u8> = (0..rows * row).map(|i| i as u8).collect();
        let mut interleaved = Vec::new();
        for head in 0..heads {
            for pair in 0..half {
                for side in 0..2 {
                    let from = (head * 2 * half + side * half + pair) * row;
                    interleaved.extend_from_slice(&original[from..from + row]);
                }
            }
        }
        prop_assert_eq!(layout::split_halves(&interleaved, &[rows, row], heads), original);
    }
}

#[test]
fn fuzz_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let whole =
        std::fs::read(write(folder.path(), "w", &tensors(&config(Arch::Llama), Dtype::BF16)));
    let whole = whole.unwrap();
    bolero::check!().with_iterations(300).with_type::<(Vec<(u16, u8)>, u16)>().for_each(
        |(changes, cut)| {
            let mut bytes = whole.clone();
            bytes.truncate(bytes.len().saturating_sub(usize::from(*cut % 64)));
            for (at, value) in changes {
                let at = usize::from(*at) % 3000.min(bytes.len());
                bytes[at] = *value;
            }
            std::fs::remove_file(&path).ok();
            std::fs::write(&path, &bytes).unwrap();
            let opened = Opened::safetensors(std::slice::from_ref(&path));
            let config = config(Arch::Llama);
            if let Ok(weights) = opened.and_then(|opened| opened.check(&config, folder.path())) {
                let names: Vec<String> = weights.names().map(str::to_owned).collect();
                for name in names {
                    weights.tensor(&name).unwrap();
                }
            }
        },
    );
}
