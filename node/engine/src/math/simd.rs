//! Loops written once, compiled for the processor's vectors.

pub(crate) use kernels::simd::{Vectorised, widest};
