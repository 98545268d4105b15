//! Damage: changes to a right input that keep most of its form.

/// Numbers at which code goes wrong.
const EDGE_NUMBERS: [i128; 20] = [
    0,
    1,
    2,
    3,
    7,
    16,
    63,
    64,
    255,
    256,
    1023,
    1024,
    65_535,
    65_536,
    1 << 20,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    i64::MAX as i128,
    1 << 63,
];

/// Words and signs of the text forms.
const WORDS: [&str; 82] = [
    "program",
    "schedule",
    "kernel_plan",
    "collective",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "(sum)",
    "(avg)",
    "chunks",
    "lanes",
    "protocol",
    "simple",
    "ll",
    "ll128",
    "let",
    "buffer",
    "input",
    "output",
    "inout",
    "scratch",
    "link",
    "lane",
    "for",
    "in",
    "if",
    "else",
    "put",
    "get",
    "signal",
    "wait",
    "reduce",
    "copy",
    "via",
    "root",
    "ranks",
    "order",
    "any",
    "min",
    "max",
    "log2",
    "ceil_log2",
    "select",
    "pow2",
    "move",
    "pre",
    "post",
    "slot",
    "cell[0]",
    "full",
    "free",
    "of",
    "slots",
    "slot_bytes",
    "messages",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "->",
    "<-",
    "+=",
    "..",
    "@",
    "=",
    "==",
    "<=",
    "<<",
    ">>",
    "&&",
    "||",
    "%",
    "!",
    "//",
    "//! x",
];

/// A sequence of numbers that its seed decides (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 for 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    /// One of the things; they must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }
}

/// Damages a text in one to eight places, by tokens. `other` lends lines.
pub(crate) fn tokens(text: &str, other: &str, random: &mut Random) -> String {
    let mut parts: Vec<String> = split(text);
    for _ in 0..=random.below(8) {
        let at = random.below(parts.len());
        match random.below(9) {
            0 => {
                let end = (at + 1 + random.below(6)).min(parts.len());
                parts.drain(at.min(end)..end);
            }
            1 => {
                let end = (at + 1 + random.below(12)).min(parts.len());
                let copied = parts[at.min(end)..end].to_vec();
                parts.splice(at..at, copied);
            }
            2 => {
                let with = random.below(parts.len());
                if with < parts.len() {
                    parts.swap(at, with);
                }
            }
            3 | 4 => parts.insert(at, format!(" {} ", random.pick(&WORDS))),
            5 => parts.insert(at, random.pick(&EDGE_NUMBERS).to_string()),
            6 => {
                if let Some(number) = number_from(&mut parts, at) {
                    *number = random.pick(&EDGE_NUMBERS).to_string();
                }
            }
            7 => {
                let lent = split(other);
                let from = random.below(lent.len());
                let end = (from + random.below(30)).min(lent.len());
                parts.splice(at..at, lent[from..end].iter().cloned());
            }
            _ => parts.insert(at, char::from_u32(random.below(0x3000) as u32).unwrap_or('\u{FFFD}').into()),
        }
    }
    parts.concat()
}

/// Nests a sign so often that a parser without a bound overflows its stack.
pub(crate) fn nest(text: &str, random: &mut Random) -> String {
    let sign = *random.pick(&[
        "(",
        "{ ",
        "-",
        "!",
        "if 1 {\n",
        "for i in 0..1 {\n",
        "[",
        "1 + ",
        "a.",
        "select(1, ",
    ]);
    let mut at = random.below(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let count = 1 << random.below(18);
    format!("{}{}{}", &text[..at], sign.repeat(count), &text[at..])
}

/// Damages a flat text in one to three places, by lines and small numbers, so that it mostly still
/// parses.
pub(crate) fn lines(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is_op = |line: &String| line.starts_with("    ");
    for _ in 0..=random.below(3) {
        let ops: Vec<usize> = (0..lines.len()).filter(|&i| is_op(&lines[i])).collect();
        let any = random.below(lines.len());
        let at = if ops.is_empty() || random.below(8) == 0 { any } else { *random.pick(&ops) };
        match random.below(6) {
            0 if is_op(&lines[at]) => drop(lines.remove(at)),
            1 if is_op(&lines[at]) => lines.insert(at, lines[at].clone()),
            2 if !ops.is_empty() => {
                let with = *random.pick(&ops);
                lines.swap(at, with);
            }
            3 if at + 1 < lines.len() && is_op(&lines[at]) && is_op(&lines[at + 1]) => lines.swap(at, at + 1),
            _ => {
                let mut parts = split(&lines[at]);
                let from = random.below(parts.len());
                if let Some(number) = number_from(&mut parts, from) {
                    *number = random.below(5).to_string();
                }
                lines[at] = parts.concat();
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Damages bytes in one to eight places.
pub(crate) fn bytes(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.below(256) as u8),
            2 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            3 => {
                let word = (*random.pick(&EDGE_NUMBERS) as u64).to_le_bytes();
                let len = *random.pick(&[1, 2, 4, 8]);
                let end = (at + len).min(bytes.len());
                bytes[at.min(end)..end].copy_from_slice(&word[..end - at.min(end)]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

/// Words, numbers, spaces and single signs; joined, they are the text again.
fn split(text: &str) -> Vec<String> {
    let class = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '_' => 0,
        '0'..='9' => 1,
        ' ' | '\n' => 2,
        _ => 3,
    };
    let mut parts: Vec<String> = Vec::new();
    let mut last = 3;
    for c in text.chars() {
        let this = class(c);
        match parts.last_mut() {
            Some(part) if this == last && this != 3 => part.push(c),
            _ => parts.push(c.into()),
        }
        last = this;
    }
    parts
}

/// The first number at or after `at`.
fn number_from(parts: &mut [String], at: usize) -> Option<&mut String> {
    parts.iter_mut().skip(at).find(|part| part.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_damage() {
        let text = "schedule @a {\n  ranks 2\n}\n";
        let once = tokens(text, text, &mut Random::new(5));
        assert_eq!(once, tokens(text, text, &mut Random::new(5)));
        assert!((0..50).any(|seed| tokens(text, text, &mut Random::new(seed)) != once));
    }

    #[test]
    fn splitting_loses_nothing() {
        let text = "lane r.0 for r in 0..n {\n    put data[(r - k) % n] // é\n";
        assert_eq!(split(text).concat(), text);
    }
}
