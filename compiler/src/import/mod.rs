//! Files of other projects: NCCL's topologies and graphs, read and written.
//!
//! What is read is hostile until it is checked: sizes, depths and numbers of elements are bounded, and
//! no document type or entity of one is read. Mistakes are diagnostics with places in the file; what
//! is odd and can be left out is a remark of the topology. Nothing here opens a file.

mod nccl_graph;
mod nccl_topology;
mod nccl_topology_write;
mod xml;

pub use nccl_graph::{Graph, Graphs, Stop, read_graphs};
pub use nccl_topology::read_topology;
pub use nccl_topology_write::{TooLarge, write_topology};
pub use xml::{MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS};

use ringsmith_ir::diagnostic::{Diagnostic, Span};
use ringsmith_ir::topology::{self, Topology, codes};
use std::collections::BTreeSet;

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Described {
    /// Machines.
    Topology(Topology),
    /// Rings and trees over the GPUs of a machine that the file does not describe.
    Graphs(Graphs),
}

/// Reads a description of machines, by its content: our text, or NCCL's XML.
///
/// Errors: everything that is wrong, in the order of the file.
pub fn read(name: &str, text: &str) -> Result<Described, Vec<Diagnostic>> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if !start.starts_with('<') {
        return topology::parse(text).map(Described::Topology);
    }
    let document = xml::parse(text)?;
    let root = document.root_element();
    match root.tag_name().name() {
        "system" => nccl_topology::read_document(name, &document).map(Described::Topology),
        "graphs" => nccl_graph::read_document(&document).map(Described::Graphs),
        "topology" => {
            let (span, label) = (xml::span(&root), "NCCL's begin with `system` or `graphs`");
            let message = "this is hwloc's description of a host, which is not read";
            let help = "let NCCL write its own with NCCL_TOPO_DUMP_FILE, or `ringsmith topo --dump FILE` on that host";
            Err(vec![Diagnostic::new(codes::FORM, message, span, label).help(help)])
        }
        "algo" => {
            let message = "this is an MSCCL algorithm and describes no machine";
            let span = xml::span(&root);
            Err(vec![Diagnostic::new(codes::FORM, message, span, "NCCL's begin with `system` or `graphs`")])
        }
        other => {
            let short: String = other.chars().take(40).collect();
            let message = format!("expected `system` or `graphs`, found `{short}`");
            Err(vec![Diagnostic::new(
                codes::FORM,
                message,
                xml::span(&root),
                "this is the whole of the file",
            )])
        }
    }
}

/// Joins the descriptions of several nodes into one, in their order. Nodes that are alike share a
/// description. None if there are more nodes than a topology may have.
pub fn merge(name: &str, parts: impl IntoIterator<Item = Topology>) -> Option<Topology> {
    let mut whole =
        Topology { name: name.to_owned(), assumed: Vec::new(), machines: Vec::new(), nodes: Vec::new() };
    let mut assumed = BTreeSet::new();
    let mut count = 0u64;
    for part in parts {
        count += u64::from(part.node_count());
        if count > u64::from(topology::MAX_NODES) {
            return None;
        }
        whole.assumed.extend(part.assumed.into_iter().filter(|remark| assumed.insert(remark.clone())));
        for nodes in part.nodes {
            whole.push(part.machines[nodes.machine].clone(), nodes.count);
        }
    }
    Some(whole)
}

/// A place that nothing in a file is.
const NOWHERE: Span = Span { start: 0, end: 0 };
