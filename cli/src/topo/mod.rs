//! `topo`: what a machine is made of, and what every pair of its devices gets.
//!
//! Reads descriptions, asks the compiler and the language about them, and prints. [`text`] and
//! [`picture`] are for people, [`json`] for programs.

mod channels;
mod json;
mod layout;
mod picture;
mod svg;
mod text;

use crate::arguments::TopoArguments;
use crate::input::{Input, name_of};
use crate::outcome::{Failure, Outcome, Result};
use crate::output::Output;
use crate::written;
use ringsmith_compiler::channels::Channels;
use ringsmith_compiler::import::{self, Described, Graphs};
use ringsmith_compiler::machines::{self, KNOWN};
use ringsmith_ir::topology::{self, MAX_NODES, Topology};
use ringsmith_runtime::discover::{self, Host};
use std::path::{Path, PathBuf};

/// Runs `topo`.
pub(crate) fn run(arguments: &TopoArguments) -> Result {
    let files = [("--dump", arguments.dump.as_deref()), ("--svg", arguments.svg.as_deref())];
    written::apart(&files, files_of(&arguments.topo))?;
    let mut parts = Vec::new();
    for path in &arguments.topo {
        match described(path)? {
            Some(Described::Topology(topology)) => parts.push(topology),
            Some(Described::Graphs(graphs)) => return show_graphs(path, &graphs, arguments),
            None => return Ok(Outcome::Unusable),
        }
    }
    let topology = whole(parts, arguments.nodes)?;
    if let Some(path) = &arguments.dump {
        dump(&topology, path)?;
    }
    let channels = Channels::of(&topology);
    if let Some(path) = &arguments.svg {
        written::whole(path, picture::of(&topology, &channels).as_bytes())?;
    }
    let mut output = Output::new();
    if arguments.json {
        output.json(&json::of(&topology, &channels))?;
    } else {
        output.text(&text::of(&topology, &channels))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// The cluster that names and files describe, all of it so many times. None if a file is wrong, which has
/// been told.
///
/// Errors: what describes no machine.
pub(crate) fn cluster(paths: &[PathBuf], times: u32) -> Result<Option<Topology>> {
    let mut parts = Vec::new();
    for path in paths {
        match described(path)? {
            Some(Described::Topology(topology)) => parts.push(topology),
            Some(Described::Graphs(_)) => {
                return Err(Failure::unusable(format_args!(
                    "{} holds rings and trees and describes no machine",
                    name_of(path)
                )));
            }
            None => return Ok(None),
        }
    }
    whole(parts, times).map(Some)
}

/// Those of `--topo` that name files.
pub(crate) fn files_of(given: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let is_name =
        |path: &Path| path == Path::new("auto") || machines::known(&path.to_string_lossy()).is_some();
    given.iter().map(PathBuf::as_path).filter(move |path| !is_name(path))
}

/// What a name or a file describes. None if the file is wrong, which has been told.
fn described(path: &Path) -> Result<Option<Described>> {
    let name = path.to_string_lossy();
    if name == "auto" {
        return Ok(Some(Described::Topology(discover::topology(&Host::here()))));
    }
    if let Some(known) = machines::known(&name) {
        return Ok(Some(Described::Topology(known)));
    }
    let looks_like_a_name = !name.contains(['/', '.']) && name != "-" && !path.exists();
    if looks_like_a_name {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        return Err(Failure::unusable(format_args!(
            "there is no machine {} and no file of that name; known machines are {}",
            name_of(path),
            names.join(", ")
        )));
    }
    let input = Input::read_as(path, "a description of a machine")?;
    let stem = match path.file_stem() {
        Some(stem) if input.path.is_some() => stem.to_string_lossy().into_owned(),
        _ => input.name.clone(),
    };
    match import::read(&stem, &input.text) {
        Ok(described) => Ok(Some(described)),
        Err(mistakes) => {
            input.draw(&mistakes);
            Ok(None)
        }
    }
}

/// All nodes together, so many times.
fn whole(mut parts: Vec<Topology>, times: u32) -> Result<Topology> {
    let too_many = |count: u64| {
        Failure::unusable(format_args!(
            "a cluster of {count} nodes: at most {MAX_NODES} can be; give fewer --nodes"
        ))
    };
    let count = parts.iter().map(|part| u64::from(part.node_count())).sum();
    let one = match parts.len() {
        1 => parts.remove(0),
        _ => import::merge("cluster", parts).ok_or_else(|| too_many(count))?,
    };
    one.times(times).map_err(too_many)
}

/// Writes a description as the ending of the file's name says.
fn dump(topology: &Topology, path: &Path) -> Result<()> {
    let is_xml = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("xml"));
    let text = if is_xml {
        import::write_topology(topology).map_err(Failure::unusable)?
    } else {
        topology::print(topology)
    };
    written::whole(path, text.as_bytes())
}

fn show_graphs(path: &Path, graphs: &Graphs, arguments: &TopoArguments) -> Result {
    if arguments.topo.len() > 1 || arguments.dump.is_some() || arguments.svg.is_some() || arguments.nodes > 1
    {
        return Err(Failure::unusable(format_args!(
            "{} holds rings and trees and describes no machine: it cannot be joined, multiplied, dumped or drawn",
            name_of(path)
        )));
    }
    let mut output = Output::new();
    if arguments.json {
        output.json(&json::of_graphs(graphs))?;
    } else {
        output.text(&text::of_graphs(graphs))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}
