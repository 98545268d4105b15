//! Reads NCCL's graph files: the rings and trees that a search of NCCL has found, or that somebody
//! has written down for it (`NCCL_GRAPH_FILE`).
//!
//! The form is that of NCCL's `src/graph/search.cc`. A graph file speaks of GPUs by their number on
//! the host and says nothing about the machine; it is recognised and shown, and planned with no further.

use super::xml::{self, Attributes, elements, span};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::topology::codes;
use roxmltree::Document;
use std::fmt;

/// The graphs of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphs {
    /// In the order of the file.
    pub graphs: Vec<Graph>,
}

/// One graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// NCCL's number for the algorithm: 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct.
    pub id: u32,
    /// NCCL's number for the shape of the search: 4 is a ring, 1 to 3 are trees.
    pub pattern: u32,
    /// What a channel carries within a node, in GB/s, as the file has it.
    pub speed_intra: String,
    /// What a channel carries between nodes, in GB/s, as the file has it.
    pub speed_inter: String,
    /// The worst path within a node.
    pub type_intra: String,
    /// The worst path to a network card.
    pub type_inter: String,
    /// What each channel goes through.
    pub channels: Vec<Vec<Stop>>,
}

/// One place of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A port of a network card, by its number.
    Net(u32),
    /// A GPU, by its number on the host.
    Gpu(u32),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(dev) => write!(f, "net{dev}"),
            Self::Gpu(dev) => write!(f, "g{dev}"),
        }
    }
}

impl Graph {
    /// What kind of graph it is, in a word.
    pub fn shape(&self) -> &'static str {
        match self.pattern {
            4 => "ring",
            1 => "balanced tree",
            2 => "split tree",
            3 => "tree",
            5 => "nvls",
            6 => "collnet direct",
            _ => "unknown shape",
        }
    }
}

/// Reads a graph file.
///
/// Errors: everything that is wrong, in the order of the file.
pub fn read_graphs(text: &str) -> Result<Graphs, Vec<Diagnostic>> {
    read_document(&xml::parse(text)?)
}

pub(super) fn read_document(document: &Document<'_>) -> Result<Graphs, Vec<Diagnostic>> {
    let root = document.root_element();
    let mut wrong = Vec::new();
    if root.tag_name().name() != "graphs" {
        let label = "a graph file begins with `graphs`";
        return Err(vec![Diagnostic::new(codes::FORM, "this is no graph file of NCCL", span(&root), label)]);
    }
    let mut graphs = Vec::new();
    for node in elements(&root) {
        if !node.has_tag_name("graph") {
            wrong.push(Diagnostic::new(
                codes::STATEMENT,
                "this cannot stand here",
                span(&node),
                "expected `graph`",
            ));
            continue;
        }
        let mut attributes = Attributes::of(node);
        let text = |key| attributes.text(key).unwrap_or_default().to_owned();
        let (speed_intra, speed_inter) = (text("speedintra"), text("speedinter"));
        let (type_intra, type_inter) = (text("typeintra"), text("typeinter"));
        let (id, pattern) = (attributes.needed_number("id"), attributes.needed_number("pattern"));
        wrong.append(&mut attributes.wrong);
        let mut channels = Vec::new();
        for channel in elements(&node) {
            if !channel.has_tag_name("channel") {
                let label = "expected `channel`";
                wrong.push(Diagnostic::new(
                    codes::STATEMENT,
                    "this cannot stand here",
                    span(&channel),
                    label,
                ));
                continue;
            }
            let mut stops = Vec::new();
            for stop in elements(&channel) {
                let mut attributes = Attributes::of(stop);
                let key = if attributes.text("dev").is_some() { "dev" } else { "rank" };
                match stop.tag_name().name() {
                    "gpu" => stops.push(Stop::Gpu(attributes.needed_number(key))),
                    "net" => stops.push(Stop::Net(attributes.needed_number("dev"))),
                    _ => {
                        let label = "expected `gpu` or `net`";
                        wrong.push(Diagnostic::new(
                            codes::STATEMENT,
                            "this cannot stand here",
                            span(&stop),
                            label,
                        ));
                    }
                }
                wrong.append(&mut attributes.wrong);
            }
            channels.push(stops);
        }
        graphs.push(Graph { id, pattern, speed_intra, speed_inter, type_intra, type_inter, channels });
    }
    if graphs.is_empty() && wrong.is_empty() {
        let label = "it needs at least one `graph`";
        wrong.push(Diagnostic::new(codes::EMPTY, "a graph file without a graph", span(&root), label));
    }
    wrong.truncate(100);
    if wrong.is_empty() { Ok(Graphs { graphs }) } else { Err(wrong) }
}
