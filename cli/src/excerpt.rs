//! Long lines cut to what a screen can hold, for drawing: a window around each mistake, `…` where
//! something is left out. Lines and columns keep their numbers.

use codespan_reporting::files::{Error, Files};
use std::collections::BTreeMap;
use std::ops::Range;

/// Lines up to this many bytes are shown whole. Ours: two or three lines of a terminal.
const LONG_BYTES: usize = 240;
/// Bytes of a long line that are shown before a mistake, and in all.
const BEFORE_BYTES: usize = 60;
const WINDOW_BYTES: usize = 160;

const MARK: &str = "…";

/// The lines of a text that a diagnostic points at, cut.
pub(crate) struct Excerpt<'a> {
    name: &'a str,
    /// The cut lines, each with its end.
    text: String,
    /// By index in the whole text.
    pieces: BTreeMap<usize, Piece>,
}

/// A cut line.
struct Piece {
    /// Where it lies in the excerpt, without the line's end.
    range: Range<usize>,
    /// The column, from 0, of the first character behind the mark at its start.
    first_column: usize,
    /// The length of that mark.
    mark_bytes: usize,
}

impl<'a> Excerpt<'a> {
    /// The excerpt for labels at `ranges` of `text`, which become ranges of the excerpt; none if all
    /// their lines are short enough to be shown whole.
    ///
    /// A label of several lines is cut to its first one.
    pub(crate) fn of(name: &'a str, text: &str, ranges: &mut [Range<usize>]) -> Option<Self> {
        let line_of = |at: usize| {
            let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
            start..text[at..].find('\n').map_or(text.len(), |len| at + len)
        };
        let long = |at: usize| line_of(at).len() > LONG_BYTES;
        if !ranges.iter().any(|range| long(range.start) || long(range.end)) {
            return None;
        }
        let mut windows: BTreeMap<usize, (Range<usize>, Range<usize>)> = BTreeMap::new();
        for range in ranges.iter() {
            let line = line_of(range.start);
            windows.entry(line.start).or_insert_with(|| (line.clone(), window(text, &line, range.start)));
        }
        let mut excerpt = Self { name, text: String::new(), pieces: BTreeMap::new() };
        let (mut counted, mut index) = (0, 0);
        let mut moved = ranges.to_vec();
        for (start, (line, window)) in windows {
            index += text[counted..start].matches('\n').count();
            counted = start;
            let mark = |left_out: bool| if left_out { MARK } else { "" };
            let front = mark(window.start > line.start);
            let first = excerpt.text.len();
            excerpt.text += front;
            excerpt.text += &text[window.clone()];
            excerpt.text += mark(window.end < line.end);
            let piece = Piece {
                range: first..excerpt.text.len(),
                first_column: text[line.start..window.start].chars().count(),
                mark_bytes: front.len(),
            };
            excerpt.text.push('\n');
            let place = |at: usize| match at {
                at if at < window.start => piece.range.start,
                at if at > window.end => piece.range.end,
                at => piece.range.start + piece.mark_bytes + (at - window.start),
            };
            for (range, moved) in ranges.iter().zip(&mut moved) {
                if (line.start..=line.end).contains(&range.start) {
                    *moved = place(range.start)..place(range.end.min(line.end));
                }
            }
            excerpt.pieces.insert(index, piece);
        }
        ranges.clone_from_slice(&moved);
        Some(excerpt)
    }
}

/// What is shown of a line for a mistake at `at`.
fn window(text: &str, line: &Range<usize>, at: usize) -> Range<usize> {
    if line.len() <= LONG_BYTES {
        return line.clone();
    }
    let start = at.saturating_sub(BEFORE_BYTES).max(line.start);
    let end = (start + WINDOW_BYTES).min(line.end);
    text.floor_char_boundary(start)..text.ceil_char_boundary(end)
}

impl<'a> Files<'a> for Excerpt<'_> {
    type FileId = ();
    type Name = &'a str;
    type Source = &'a str;

    fn name(&'a self, (): ()) -> Result<&'a str, Error> {
        Ok(self.name)
    }

    fn source(&'a self, (): ()) -> Result<&'a str, Error> {
        Ok(&self.text)
    }

    fn line_index(&'a self, (): (), byte: usize) -> Result<usize, Error> {
        let max = self.text.len();
        let found = self.pieces.iter().find(|(_, piece)| byte <= piece.range.end);
        found.map(|(&index, _)| index).ok_or(Error::IndexTooLarge { given: byte, max })
    }

    fn line_range(&'a self, (): (), line: usize) -> Result<Range<usize>, Error> {
        // A line that no label is on is shown empty.
        Ok(self.pieces.get(&line).map_or(0..0, |piece| piece.range.clone()))
    }

    fn column_number(&'a self, (): (), line: usize, byte: usize) -> Result<usize, Error> {
        let Some(piece) = self.pieces.get(&line) else { return Ok(1) };
        let first = piece.range.start + piece.mark_bytes;
        Ok(piece.first_column + self.text.get(first..byte).map_or(0, |text| text.chars().count()) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one label's line, what stands at the label, and its line and column.
    fn cut(text: &str, at: Range<usize>) -> (String, String, usize, usize) {
        let mut ranges = [at];
        let excerpt = Excerpt::of("name", text, &mut ranges).expect("a long line");
        let [range] = ranges;
        let place = excerpt.location((), range.start).unwrap();
        let line = excerpt.line_range((), place.line_number - 1).unwrap();
        let shown = |range: Range<usize>| excerpt.source(()).unwrap()[range].to_owned();
        (shown(line), shown(range), place.line_number, place.column_number)
    }

    #[test]
    fn short_lines_need_none() {
        assert!(Excerpt::of("name", "a\nb\n", &mut [0..1, 2..3]).is_none());
        let start = std::iter::once(0..0);
        assert!(Excerpt::of("name", "", &mut start.collect::<Vec<_>>()).is_none());
    }

    #[test]
    fn a_window_shows_the_mistake_and_keeps_its_place() {
        let text = format!("first\n{}MISTAKE{}\nlast", "é".repeat(1 << 20), "x".repeat(1 << 20));
        let at = text.find("MISTAKE").unwrap();
        let (line, shown, number, column) = cut(&text, at..at + 7);
        assert_eq!((shown.as_str(), number, column), ("MISTAKE", 2, (1 << 20) + 1));
        assert!(line.starts_with("…é") && line.ends_with("x…") && line.len() < 200, "{line}");
    }

    #[test]
    fn ends_of_long_lines_have_one_mark() {
        let text = "x".repeat(10_000);
        let (line, shown, _, column) = cut(&text, 0..3);
        assert!(line.starts_with("xxx") && line.ends_with("x…"));
        assert_eq!((shown.as_str(), column), ("xxx", 1));
        let (line, shown, _, column) = cut(&text, 10_000..10_000);
        assert!(line.starts_with('…') && line.ends_with('x'));
        assert_eq!((shown.as_str(), column), ("", 10_001));
        let (_, shown, ..) = cut(&text, 500..9_000);
        assert!(shown.ends_with("x…") && shown.len() < 200, "a long label is cut with its line");
    }

    #[test]
    fn every_label_lands_on_its_line() {
        let long = "y".repeat(1000);
        let text = format!("a short line\n{long}\n{long}\n");
        let mut ranges = [2..7, 13 + 990..13 + 995, 13 + 5..13 + 8, 1014 + 3..text.len()];
        let excerpt = Excerpt::of("name", &text, &mut ranges).unwrap();
        let line = |range: &Range<usize>| excerpt.line_index((), range.start).unwrap();
        assert_eq!(ranges.iter().map(line).collect::<Vec<_>>(), [0, 1, 1, 2]);
        for range in &ranges {
            assert_eq!(excerpt.line_index((), range.end).unwrap(), line(range), "{range:?}");
        }
        assert_eq!(&excerpt.text[ranges[0].clone()], "short");
    }
}
