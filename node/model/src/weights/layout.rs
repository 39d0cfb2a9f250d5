//! The order of rows in query and key projections.

/// Undoes llama.cpp's conversion of Llama models: inside each head it stores the rows of the two
/// rotary halves interleaved (row `2i + s` is row `i` of half `s`); here the halves follow each
/// other, as Hugging Face stores them. Rows move whole, so that quantised blocks stay intact.
///
/// Source: `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py, reversed.
pub(super) fn split_halves(bytes: &[u8], shape: &[usize], heads: usize) -> Vec<u8> {
    let rows = shape.first().copied().unwrap_or(0);
    let row_len = bytes.len().checked_div(rows).unwrap_or(0);
    let head_rows = rows.checked_div(heads).unwrap_or(0);
    let mut out = Vec::with_capacity(bytes.len());
    for head in 0..heads {
        for half in 0..2 {
            for pair in 0..head_rows / 2 {
                let row = head * head_rows + 2 * pair + half;
                out.extend_from_slice(
                    bytes.get(row * row_len..(row + 1) * row_len).unwrap_or_default(),
                );
            }
        }
    }
    out
}
