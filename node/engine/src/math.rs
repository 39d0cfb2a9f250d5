//! The arithmetic of the CPU path, in plain Rust over slices.
//!
//! Every result is a fixed sequence of f32 operations that depends on the row's own inputs only:
//! sums run in one order, products and sums are rounded one by one (never fused), and `exp` is
//! computed here and not by the C library. So a row's bits do not depend on the rows beside it, on
//! how many threads share the work, or on how wide the processor's vectors are; vector lanes run
//! over outputs, never over the terms of one sum.

pub(crate) mod attention;
mod dots;
pub(crate) mod linear;
pub(crate) mod parallel;
pub(crate) mod simd;
pub(crate) mod vector;
