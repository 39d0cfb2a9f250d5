//! Texts of many kinds and lengths, always the same ones.

/// Pieces of several scripts and shapes: letters outside ASCII, combining marks, emoji joined from
/// several, code, numbers, white space.
const PIECES: [&str; 14] = [
    "Grüße aus Köln, ",
    "κόσμε και φως, ",
    "привет, мир! ",
    "你好，世界。",
    "こんにちは、",
    "नमस्ते दुनिया ",
    "مرحبا بالعالم ",
    "🌍🚀👩‍👩‍👧‍👦 ",
    "e\u{301}cole a\u{30a}ngstro\u{308}m ",
    "fn main() { println!(\"{}\", 1 << 4); }\n",
    "{\"tool\": \"read\", \"path\": \"/etc/hosts\"} ",
    "1, 2, 3, 5, 8, 13, 21 ",
    "\t- a list\n\n",
    "the quick brown fox jumps over the lazy dog, ",
];

/// A text of about so many bytes; another seed gives other pieces in another order.
pub(crate) fn text(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    let mut text = format!("{seed}: ");
    while text.len() < bytes {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(PIECES[(state >> 33) as usize % PIECES.len()]);
    }
    text
}

/// Plain English of about so many words; short in tokens for every tokenizer.
pub(crate) fn words(seed: u64, count: usize) -> String {
    const WORDS: [&str; 12] = [
        "time", "house", "green", "river", "walks", "slowly", "under", "seven", "stones", "and",
        "the", "light",
    ];
    let mut state = seed.wrapping_add(0x5851_f42d_4c95_7f2d);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        WORDS[(state >> 33) as usize % WORDS.len()]
    };
    std::iter::repeat_with(next).take(count).collect::<Vec<_>>().join(" ")
}
