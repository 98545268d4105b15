//! "Did you mean": the nearest known word.

/// The candidate that `word` is most likely a misspelling of, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word of hostile length is no misspelling, and comparing it would take long.
    if word.len() > 64 {
        return None;
    }
    let limit = (word.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    // Only so many are compared: a text may declare millions of names.
    for candidate in candidates.into_iter().take(4096).filter(|c| c.len() <= 64) {
        let distance = distance(word, candidate);
        if distance <= limit && best.is_none_or(|(d, _)| distance < d) {
            best = Some((distance, candidate));
        }
    }
    // Replacing every letter of a short name makes any other: that is no likeness.
    best.filter(|(d, c)| *d < c.chars().count().max(word.chars().count())).map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, whatever the
/// case of letters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let [before, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

/// The word of `known` that `word` is or was meant to be, or else itself.
pub(crate) fn meant<'a>(word: &'a str, known: &[&'static str]) -> &'a str {
    nearest(word, known.iter().copied()).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn counts_edits() {
        assert_eq!(distance("wait", "wait"), 0);
        assert_eq!(distance("wiat", "wait"), 1);
        assert_eq!(distance("signl", "signal"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("Data", "data"), 0);
    }

    #[test]
    fn suggests_only_what_is_near() {
        assert_eq!(nearest("inbx", ["data", "inbox"]), Some("inbox"));
        assert_eq!(nearest("q", ["r", "k"]), None);
        assert_eq!(nearest("completely", ["data", "inbox"]), None);
    }
}
