//! The strokes of a picture: boxes, lines and words as SVG.
//!
//! Colours are classes of one style sheet, which follows the reader's light or dark theme. Everything
//! that a description says is escaped; nothing is loaded from anywhere.

use ringsmith_runtime::shown;
use std::fmt::Write;

/// A picture in the making. Lengths are in pixels.
#[derive(Default)]
pub(super) struct Drawing {
    /// Lines lie below boxes, boxes below words.
    lines: String,
    boxes: String,
    words: String,
}

/// How words stand to their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
}

/// A box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) x: i64,
    pub(super) y: i64,
    pub(super) width: i64,
    pub(super) height: i64,
}

const STYLE: &str = "\
svg{--paper:#fbfbf9;--ink:#1f2430;--soft:#667085;--edge:#c5cad3;--cpu:#e7eaf1;--bridge:#f0f1f4;--gpu:#dff3e4;--nic:#fdebd3;\
--nvlink:#2e9e5b;--xgmi:#d0453b;--c2c:#8457c9;--pcie:#7d8aa0;--socket:#5069c8;--net:#e08a1e}\
@media(prefers-color-scheme:dark){svg{--paper:#15181e;--ink:#e8eaf0;--soft:#9aa4b5;--edge:#3b4352;--cpu:#262c38;--bridge:#20252f;--gpu:#1c3a29;--nic:#42301a;\
--nvlink:#4cc27e;--xgmi:#ef6f65;--c2c:#a98be6;--pcie:#8793a8;--socket:#8196ee;--net:#f0a541}}\
.paper{fill:var(--paper)}\
text{fill:var(--ink);font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}\
.title{font-size:22px;font-weight:600}.head{font-size:14px;font-weight:600}.name{font-weight:600}\
.soft{fill:var(--soft);font-size:11px}.rate{fill:var(--soft);font-size:10px}.soft,.rate{paint-order:stroke;stroke:var(--paper);stroke-width:3px}.inside{stroke:none}.way{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px}\
rect{stroke:var(--edge);stroke-width:1}\
.cpu{fill:var(--cpu)}.bridge{fill:var(--bridge)}.gpu{fill:var(--gpu);stroke:var(--nvlink)}.nic{fill:var(--nic);stroke:var(--net)}\
.bar{stroke:none}.bar.nvlink{fill:var(--nvlink)}.bar.net{fill:var(--net)}.onbar{fill:var(--paper);font-weight:600}\
.host{fill:none;stroke-dasharray:4 4}\
path{fill:none;stroke-linecap:round;stroke-linejoin:round}\
.l-pcie{stroke:var(--pcie)}.l-nvlink{stroke:var(--nvlink)}.l-xgmi{stroke:var(--xgmi)}.l-c2c{stroke:var(--c2c)}.l-socket{stroke:var(--socket)}.l-net{stroke:var(--net)}\
.assumed{stroke-dasharray:5 4}";

impl Drawing {
    /// A box with rounded corners; `tip` is shown where the pointer rests.
    pub(super) fn area(&mut self, class: &str, area: Area, round: i64, tip: &str) {
        let Area { x, y, width, height } = area;
        let _ = writeln!(
            self.boxes,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\">{}</rect>",
            titled(tip)
        );
    }

    /// A line along an SVG path, as wide as what it stands for carries.
    pub(super) fn line(&mut self, class: &str, width_tenths: i64, path: &str, tip: &str) {
        let width = format!("{}.{}", width_tenths / 10, width_tenths % 10);
        let _ = writeln!(
            self.lines,
            "<path class=\"{class}\" stroke-width=\"{width}\" d=\"{path}\">{}</path>",
            titled(tip)
        );
    }

    /// Words.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (i64, i64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
        };
        let _ = writeln!(
            self.words,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>",
            escaped(text)
        );
    }

    /// The file.
    pub(super) fn finish(self, width: i64, height: i64, title: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" style=\"stroke:none\"/>\n{}{}{}</svg>\n",
            escaped(title),
            self.lines,
            self.boxes,
            self.words
        )
    }
}

fn titled(tip: &str) -> String {
    if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(tip)) }
}

/// Text that can stand in XML, controls made visible.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in shown::escaped(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The first characters of a text that has no room.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A text in lines of at most `most` characters, cut between words.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = cut(word, most);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_description_says_stays_text() {
        let mut drawing = Drawing::default();
        let hostile = "</text><script>alert(1)</script>\u{1b}[31m\"&";
        drawing.text("name", Anchor::Start, (0, 0), hostile);
        drawing.area("gpu", Area { x: 0, y: 0, width: 1, height: 1 }, 0, hostile);
        let svg = drawing.finish(1, 1, hostile);
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
        assert_eq!(svg.matches("&lt;script&gt;").count(), 3);
    }

    #[test]
    fn long_texts_are_cut_and_wrapped() {
        assert_eq!(cut("mlx5_0", 6), "mlx5_0");
        assert_eq!(cut("enp1s0f0np0", 6), "enp1s…");
        assert_eq!(wrapped("one two three fourteen", 9), ["one two", "three", "fourteen"]);
        assert_eq!(wrapped("  ", 9), [""; 0]);
    }
}
