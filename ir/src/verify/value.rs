//! Symbolic values: what a piece of memory holds, as a tree over the ranks' inputs.
//!
//! Values are interned, so two memories hold the same bits (whatever the inputs) exactly when their
//! ids are equal: addition in floating point is commutative and not associative, and a tree is kept
//! as it was built except for the order of its first two terms.

use super::bounds::{MAX_VALUE_WORDS, words_of_value};
use std::collections::HashMap;
use std::fmt::Write;

/// An interned value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(u32);

impl Value {
    /// Memory that nobody has written in this launch.
    pub(crate) const UNDEFINED: Self = Self(0);
    /// A message without payload.
    pub(crate) const EMPTY: Self = Self(1);
}

/// One rank's input: one tile of one chunk, in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Input {
    pub(crate) rank: u32,
    pub(crate) chunk: u32,
    pub(crate) tile: u16,
    pub(crate) launch: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    Undefined,
    Empty,
    Input(Input),
    /// The operation's first step applied to a raw input.
    Pre(Value),
    /// The operation over at least two terms, from left to right; the first two are sorted.
    Combine(Box<[Value]>),
    /// The operation's last step applied to a complete result.
    Post(Value),
}

/// What went into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing defined.
    Undefined,
    /// The inputs of `ranks` (a bit set) for the same chunk, tile and launch (`rank` is 0 in `of`).
    Parts { of: Input, ranks: Box<[u64]> },
    /// An input counted more than once; otherwise as `Parts`.
    Twice { of: Input },
    /// Terms that do not belong together: different chunks, tiles or launches.
    Mixed,
}

/// The interner.
pub(crate) struct Values {
    nodes: Vec<Node>,
    contents: Vec<Content>,
    ids: HashMap<Node, Value>,
    words: usize,
    /// Words of all nodes and contents.
    total_words: usize,
}

impl Values {
    /// An interner for `ranks` ranks.
    pub(crate) fn new(ranks: u32) -> Self {
        let mut values = Self {
            nodes: Vec::new(),
            contents: Vec::new(),
            ids: HashMap::new(),
            words: (ranks as usize).div_ceil(64).max(1),
            total_words: 0,
        };
        assert_eq!(values.intern(Node::Undefined), Value::UNDEFINED);
        assert_eq!(values.intern(Node::Empty), Value::EMPTY);
        values
    }

    /// Whether there are more values than the verifier keeps.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.total_words > MAX_VALUE_WORDS
    }

    /// The value of a rank's input.
    pub(crate) fn input(&mut self, input: Input) -> Value {
        self.intern(Node::Input(input))
    }

    /// The first step of the operation; idempotent only on what is not an input.
    pub(crate) fn pre(&mut self, value: Value) -> Value {
        self.intern(Node::Pre(value))
    }

    /// The last step of the operation.
    pub(crate) fn post(&mut self, value: Value) -> Value {
        self.intern(Node::Post(value))
    }

    /// `terms` combined from left to right.
    pub(crate) fn combine(&mut self, terms: &[Value]) -> Value {
        match terms {
            [] => Value::EMPTY,
            [one] => *one,
            _ => {
                let mut terms: Box<[Value]> = terms.into();
                terms[..2].sort_unstable();
                self.intern(Node::Combine(terms))
            }
        }
    }

    /// What went into `value`.
    pub(crate) fn content(&self, value: Value) -> &Content {
        &self.contents[value.0 as usize]
    }

    /// Whether every one of `ranks` ranks is in `value` exactly once.
    pub(crate) fn complete(&self, value: Value, ranks: u32) -> bool {
        match self.content(value) {
            Content::Parts { ranks: set, .. } => set.iter().map(|w| w.count_ones()).sum::<u32>() == ranks,
            Content::Undefined | Content::Twice { .. } | Content::Mixed => false,
        }
    }

    /// The chunk whose contributions `value` holds, if they belong together.
    pub(crate) fn chunk(&self, value: Value) -> Option<u32> {
        match self.content(value) {
            Content::Parts { of, .. } | Content::Twice { of } => Some(of.chunk),
            Content::Undefined | Content::Mixed => None,
        }
    }

    /// Whether `value` is an input that the operation's first step has not touched.
    pub(crate) fn is_raw(&self, value: Value) -> bool {
        matches!(self.nodes[value.0 as usize], Node::Input(_))
    }

    /// Whether the operation's last step was the last thing done to `value`.
    pub(crate) fn is_post(&self, value: Value) -> bool {
        matches!(self.nodes[value.0 as usize], Node::Post(_))
    }

    /// The value in words: `r0 + r1 of chunk 2`, `r0 + (r1 + r2)` and so on, cut short when long.
    pub(crate) fn describe(&self, value: Value) -> String {
        if value == Value::UNDEFINED {
            return "nothing defined".to_owned();
        }
        let mut text = String::new();
        self.write(value, &mut text, 0);
        if text.len() > 160 {
            let mut cut = 150;
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            text.truncate(cut);
            text.push_str(" …");
        }
        text
    }

    fn write(&self, value: Value, text: &mut String, depth: u32) {
        if text.len() > 200 {
            return;
        }
        if depth > 64 {
            text.push('…');
            return;
        }
        match &self.nodes[value.0 as usize] {
            Node::Undefined => text.push_str("undefined"),
            Node::Empty => text.push_str("no payload"),
            Node::Input(i) => {
                let _ = write!(text, "r{}[{}]", i.rank, i.chunk);
                if i.tile != 0 || i.launch != 0 {
                    let _ = write!(text, " (tile {}, launch {})", i.tile + 1, i.launch + 1);
                }
            }
            Node::Pre(v) => {
                text.push_str("pre ");
                self.write(*v, text, depth + 1);
            }
            Node::Post(v) => {
                text.push_str("post(");
                self.write(*v, text, depth + 1);
                text.push(')');
            }
            Node::Combine(terms) => {
                for (i, term) in terms.iter().enumerate() {
                    if i > 0 {
                        text.push_str(" + ");
                    }
                    let nested = matches!(self.nodes[term.0 as usize], Node::Combine(_));
                    if nested {
                        text.push('(');
                    }
                    self.write(*term, text, depth + 1);
                    if nested {
                        text.push(')');
                    }
                }
            }
        }
    }

    fn intern(&mut self, node: Node) -> Value {
        if let Some(&value) = self.ids.get(&node) {
            return value;
        }
        let content = self.derive(&node);
        let terms = if let Node::Combine(terms) = &node { terms.len() } else { 0 };
        self.total_words += words_of_value(64 * self.words as u32, terms);
        let value =
            Value(u32::try_from(self.nodes.len()).expect("the run is bounded well below 2^32 values"));
        self.nodes.push(node.clone());
        self.contents.push(content);
        self.ids.insert(node, value);
        value
    }

    fn derive(&self, node: &Node) -> Content {
        match node {
            Node::Undefined | Node::Empty => Content::Undefined,
            Node::Input(input) => {
                let mut ranks = vec![0; self.words].into_boxed_slice();
                ranks[input.rank as usize / 64] |= 1 << (input.rank % 64);
                Content::Parts { of: Input { rank: 0, ..*input }, ranks }
            }
            Node::Pre(v) | Node::Post(v) => self.content(*v).clone(),
            Node::Combine(terms) => {
                let mut sum: Option<(Input, Box<[u64]>)> = None;
                let mut twice = false;
                for term in terms {
                    let (of, ranks) = match self.content(*term) {
                        Content::Undefined | Content::Mixed => return Content::Mixed,
                        Content::Twice { of } => (of, None),
                        Content::Parts { of, ranks } => (of, Some(ranks)),
                    };
                    let (first, set) =
                        sum.get_or_insert_with(|| (*of, vec![0; self.words].into_boxed_slice()));
                    if first != of {
                        return Content::Mixed;
                    }
                    let Some(ranks) = ranks else {
                        twice = true;
                        continue;
                    };
                    for (a, b) in set.iter_mut().zip(ranks.iter()) {
                        twice |= *a & b != 0;
                        *a |= b;
                    }
                }
                let (of, ranks) = sum.expect("a combination has terms");
                if twice { Content::Twice { of } } else { Content::Parts { of, ranks } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(rank: u32) -> Input {
        Input { rank, chunk: 3, tile: 0, launch: 0 }
    }

    #[test]
    fn addition_commutes_and_does_not_associate() {
        let mut values = Values::new(3);
        let [a, b, c] = [0, 1, 2].map(|r| values.input(input(r)));
        assert_eq!(values.combine(&[a, b]), values.combine(&[b, a]));
        let ab = values.combine(&[a, b]);
        let bc = values.combine(&[b, c]);
        assert_ne!(values.combine(&[ab, c]), values.combine(&[a, bc]));
        assert_ne!(values.combine(&[ab, c]), values.combine(&[a, b, c]), "one move rounds once");
    }

    #[test]
    fn an_input_counted_twice_is_no_sum() {
        let mut values = Values::new(2);
        let [a, b] = [0, 1].map(|r| values.input(input(r)));
        let ab = values.combine(&[a, b]);
        assert!(values.complete(ab, 2));
        let aba = values.combine(&[ab, a]);
        assert_eq!(values.content(aba), &Content::Twice { of: input(0) });
        let other = values.input(Input { chunk: 4, ..input(0) });
        let mixed = values.combine(&[ab, other]);
        assert_eq!(values.content(mixed), &Content::Mixed);
        assert_eq!(values.describe(aba), "r0[3] + (r0[3] + r1[3])");
    }
}
