//! Loops written once, compiled for each vector width, chosen by what the processor has.

/// A loop nest that the compiler turns into vector code.
///
/// `LANES` is the number of f32 in one vector register; it guides the choice of tile sizes and must
/// never change a result. Implementations are `#[inline(always)]`, so that they are compiled anew
/// for each width. Products and sums are not fused: each width gives the same bits.
pub trait Vectorised {
    /// What it computes.
    type Out;
    /// Runs the loops.
    fn run<const LANES: usize>(self) -> Self::Out;
}

/// Runs `work` with the widest vectors of this processor.
pub fn widest<W: Vectorised>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512vl") && has!("avx512dq") && has!("avx512bw") {
            // SAFETY: the processor has every feature that the function is compiled for.
            return unsafe { avx512(work) };
        }
        if has!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(work) };
        }
    }
    work.run::<4>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
fn avx512<W: Vectorised>(work: W) -> W::Out {
    work.run::<16>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<W: Vectorised>(work: W) -> W::Out {
    work.run::<8>()
}

#[cfg(test)]
mod tests {
    use super::{Vectorised, widest};

    struct Dot<'a>(&'a [f32], &'a [f32]);

    impl Vectorised for Dot<'_> {
        type Out = [f32; 32];

        #[inline(always)]
        fn run<const LANES: usize>(self) -> [f32; 32] {
            let mut sums = [0f32; 32];
            for (a, b) in self.0.chunks_exact(32).zip(self.1.chunks_exact(32)) {
                for lane in 0..32 {
                    sums[lane] += a[lane] * b[lane];
                }
            }
            sums
        }
    }

    #[test]
    fn every_width_gives_the_same_bits() {
        let a: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.11).cos() * 1e3).collect();
        let bits = |sums: [f32; 32]| sums.map(f32::to_bits);
        let narrow = bits(Dot(&a, &b).run::<4>());
        assert_eq!(bits(widest(Dot(&a, &b))), narrow);
    }
}
