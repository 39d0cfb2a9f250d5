//! The inner loop of everything: some rows against columns that lie side by side.

/// Adds to each of `R × N` sums, in order of `rows`' length, the products of a row's elements with
/// the `N` columns of `columns`. Each sum runs over its terms in order, one rounding per product
/// and one per sum.
///
/// The form matters (measured, with and without AVX-512 extensions and overflow checks): with each
/// row its own slice and the columns copied out first, the compiler keeps the sums in registers and
/// turns the innermost loop into vectors; with the rows' elements side by side it does neither.
#[inline(always)]
pub(crate) fn dots<const R: usize, const N: usize>(
    mut sums: [[f32; N]; R],
    rows: [&[f32]; R],
    columns: &[[f32; N]],
) -> [[f32; N]; R] {
    let rows: [&[f32]; R] = rows.map(|row| &row[..columns.len()]);
    for (term, columns) in columns.iter().enumerate() {
        let columns = *columns;
        for r in 0..R {
            let element = rows[r][term];
            for n in 0..N {
                sums[r][n] += element * columns[n];
            }
        }
    }
    sums
}
