//! XML as the importers need it: bounded, without document types, with places.
//!
//! roxmltree reads; it expands no entity but the five of XML itself once document types are refused,
//! and walks elements without recursion. It compares every attribute of an element with every other
//! one, and copies an element's namespaces to what lies below, so that both are bounded before it
//! reads; depth and the number of elements are bounded as well.

use ringsmith_ir::diagnostic::{Code, Diagnostic, Span};
use ringsmith_ir::topology::codes;
use roxmltree::{Document, Error, Node, ParsingOptions};

/// The largest file, in bytes. Ours: a rack of 72 GPUs takes some 200 KB.
pub const MAX_BYTES: usize = 1 << 24;

/// The most elements, comments and texts. Ours; NCCL itself stops at 256 elements of a topology and
/// 65,536 of a graph.
pub const MAX_ELEMENTS: u32 = 1 << 18;

/// How deeply elements may be nested. Ours: PCIe has a handful of levels.
pub const MAX_DEPTH: usize = 64;

/// The most attributes of an element. Ours: NCCL's have at most fifteen, and NCCL itself reads 16.
const MAX_ATTRIBUTES: usize = 256;

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Vec<Diagnostic>> {
    let one = |code, message: String, span, label: &str| vec![Diagnostic::new(code, message, span, label)];
    if text.len() > MAX_BYTES {
        let message = format!("this file has {} bytes; at most {MAX_BYTES} are read", text.len());
        return Err(one(codes::TOO_MUCH, message, super::NOWHERE, "nothing of it was read"));
    }
    if let Some(diagnostic) = bounded(text) {
        return Err(vec![diagnostic]);
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MAX_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| match error {
        Error::NodesLimitReached => {
            let message = format!("this file has more than {MAX_ELEMENTS} elements");
            one(codes::TOO_MUCH, message, super::NOWHERE, "no more are read")
        }
        Error::DtdDetected => {
            let at = text.find("<!DOCTYPE").unwrap_or(0);
            let span = Span::new(at, (at + 9).min(text.len()));
            let message = "a document type is declared".to_owned();
            one(codes::XML, message, span, "it could stand for anything, and is not read")
        }
        Error::NoRootNode => {
            let message = "this is not well-formed XML: it ends before its first element does".to_owned();
            one(codes::XML, message, Span::new(text.len(), text.len()), "the end")
        }
        error => {
            let at = error.pos();
            let span = place(text, at.row as usize, at.col as usize);
            let message = error.to_string();
            // The place is drawn; the message need not repeat it.
            let message = message.split(" at ").next().unwrap_or(&message).to_owned();
            let short: String = message.chars().take(200).collect();
            one(codes::XML, format!("this is not well-formed XML: {short}"), span, "here")
        }
    })?;
    let depth = |node: Node<'_, '_>| {
        let mut depth = 0;
        let mut at = node;
        while let Some(parent) = at.parent().filter(|_| depth <= MAX_DEPTH + 1) {
            at = parent;
            depth += 1;
        }
        depth
    };
    let deep = document.root().descendants().find(|node| node.is_element() && depth(*node) > MAX_DEPTH);
    if let Some(deep) = deep {
        let message = format!("elements are nested more than {MAX_DEPTH} deep");
        return Err(one(codes::TOO_MUCH, message, span(&deep), "from here on"));
    }
    Ok(document)
}

/// What would make reading take long: namespaces, and elements of very many attributes.
fn bounded(text: &str) -> Option<Diagnostic> {
    if let Some(at) = text.find("xmlns:") {
        let label = "NCCL's files have none, and they are not read";
        return Some(Diagnostic::new(codes::XML, "a namespace is declared", Span::new(at, at + 6), label));
    }
    let mut start = 0;
    // No `<` can stand inside an element's tag.
    for part in text.split('<') {
        let many = part.bytes().filter(|byte| *byte == b'=').nth(MAX_ATTRIBUTES).is_some();
        if many && !part.starts_with("!--") {
            let message = format!("this element has more than {MAX_ATTRIBUTES} attributes");
            let at = start.min(text.len());
            return Some(Diagnostic::new(codes::TOO_MUCH, message, Span::new(at, at), "no more are read"));
        }
        start += part.len() + 1;
    }
    None
}

/// The place of a row and column, both from 1.
fn place(text: &str, row: usize, column: usize) -> Span {
    let mut start = 0;
    for line in text.split('\n').take(row.saturating_sub(1)) {
        start += line.len() + 1;
    }
    let start = start.min(text.len());
    let rest = text.get(start..).unwrap_or_default();
    let at = rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at);
    let at = start + at;
    let next = text[at..].chars().next().map_or(0, char::len_utf8);
    Span::new(at, at + next)
}

/// The name in an element's first tag.
pub(super) fn span(node: &Node<'_, '_>) -> Span {
    let range = node.range();
    let end = (range.start + 1 + node.tag_name().name().len()).min(range.end);
    Span::new(range.start, end)
}

/// The elements right below one.
pub(super) fn elements<'a, 'i>(node: &Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

/// Attributes of an element, with what was wrong with them.
pub(super) struct Attributes<'a, 'i> {
    node: Node<'a, 'i>,
    pub(super) wrong: Vec<Diagnostic>,
}

impl<'a, 'i> Attributes<'a, 'i> {
    pub(super) fn of(node: Node<'a, 'i>) -> Self {
        Self { node, wrong: Vec::new() }
    }

    /// The text of an attribute, if it is there.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.node.attribute(key)
    }

    /// The place of an attribute, or of its element.
    pub(super) fn place(&self, key: &str) -> Span {
        match self.node.attribute_node(key) {
            Some(attribute) => Span::new(attribute.range().start, attribute.range().end),
            None => span(&self.node),
        }
    }

    /// A number, if it is there and not below zero, which stands for unknown.
    pub(super) fn number(&mut self, key: &str) -> Option<u32> {
        self.signed(key).and_then(|number| u32::try_from(number).ok())
    }

    /// A number of any sign, if it is there and not empty.
    pub(super) fn signed(&mut self, key: &str) -> Option<i64> {
        let text = self.text(key)?.trim();
        if text.is_empty() {
            return None;
        }
        let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let number = parsed.filter(|number| (-i64::from(u32::MAX)..=i64::from(u32::MAX)).contains(number));
        if number.is_none() {
            let short: String = text.chars().take(40).collect();
            self.refuse(codes::VALUE, format!("`{short}` is no number of 32 bits"), key, "expected a number");
        }
        number
    }

    /// The number of an attribute that must be there.
    pub(super) fn needed_number(&mut self, key: &str) -> u32 {
        if self.text(key).is_none() {
            self.missing(key);
        }
        self.number(key).unwrap_or(0)
    }

    pub(super) fn missing(&mut self, key: &str) {
        let message = format!("`{}` needs an attribute `{key}`", self.node.tag_name().name());
        self.refuse(codes::ATTRIBUTE, message, key, "it is missing");
    }

    pub(super) fn refuse(&mut self, code: Code, message: String, key: &str, label: &str) {
        let place = self.place(key);
        self.wrong.push(Diagnostic::new(code, message, place, label));
    }

    /// The attributes that are not among `known` and can be carried.
    pub(super) fn others(&self, known: &[&str]) -> Vec<(String, String)> {
        let plain = self.node.attributes().filter(|attribute| attribute.namespace().is_none());
        let kept = plain.filter(|attribute| {
            !known.contains(&attribute.name()) && ringsmith_ir::topology::is_key(attribute.name())
        });
        kept.map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned())).collect()
    }
}
