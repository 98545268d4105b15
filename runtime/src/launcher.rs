//! Which rank this process is and where its job meets, from the variables of whoever started it.
//!
//! Understood: Ringsmith's own variables, torchrun, Open MPI, MPICH and its relatives (PMI), Slurm.
//! [`Launch::detect`] reads, [`Launch::join`] brings the ranks together: through an id, an address,
//! or, on one host, a socket in a folder of the user's (`local`). Nothing is guessed: what is
//! partial or contradictory is an error that names the variables. docs/launchers.md has the rules.

mod local;

use crate::bootstrap::Bootstrap;
use crate::config::Config;
use crate::config::grammar::HostPort;
use crate::error::Result;
use crate::shown::shown;
use crate::unique_id::UniqueId;
use ringsmith_compiler::plan::MAX_RANKS;
use sha2::{Digest, Sha256};
use std::fmt;
use std::num::NonZeroU16;

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `RINGSMITH_RANK` and `RINGSMITH_WORLD`.
    Ringsmith,
    /// torchrun, or anything that sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's mpiexec, Intel MPI, MVAPICH, and others that speak PMI.
    Pmi,
    /// srun.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ringsmith => "Ringsmith",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Pmi => "MPI (PMI)",
            Self::Slurm => "Slurm",
        })
    }
}

/// Where the ranks of a job meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// At the root that an id leads to; whoever made the id holds it.
    Id(UniqueId),
    /// At an address where rank 0 listens.
    Address {
        /// The address.
        address: HostPort,
        /// The variables it comes from, for messages.
        setting: &'static str,
        /// The launcher's name for the job; keeps jobs apart, no secret.
        job: String,
    },
    /// On this host, under a name that only this job has.
    Host {
        /// The launcher's name for the job.
        job: String,
    },
}

/// A process's place in a job, as its launcher says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Who started it.
    pub launcher: Launcher,
    /// Its rank.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// Its number among the ranks of its host, if the launcher says it.
    pub local_rank: Option<u32>,
    /// Where the ranks meet.
    pub meeting: Meeting,
}

/// Why a launcher's variables cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Some variables of a launcher are set and others that belong to them are not.
    #[error("{set} is set but {missing} is not; {launcher} sets both, or unset the first")]
    Partial {
        /// Whose variables they are.
        launcher: Launcher,
        /// A variable that is set.
        set: &'static str,
        /// One that is not.
        missing: &'static str,
    },
    /// A variable's value is of no use: no number in range, no host, no port.
    #[error("{name}={}: {accepts} is needed", shown(.value))]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        accepts: String,
    },
    /// A rank is not below the number of ranks.
    #[error("{rank_name}={rank} is not below {world_name}={world}; ranks count from 0")]
    Range {
        /// The variable with the rank.
        rank_name: &'static str,
        /// The rank.
        rank: u32,
        /// The variable with the number of ranks.
        world_name: &'static str,
        /// The number of ranks.
        world: u32,
    },
    /// Two launchers say different things.
    #[error(
        "{first_name}={first} but {second_name}={second}: two launchers disagree; unset the variables of the one that \
         did not start the ranks"
    )]
    Contradiction {
        /// A variable of the first launcher.
        first_name: &'static str,
        /// Its value.
        first: u32,
        /// A variable of the second.
        second_name: &'static str,
        /// Its value.
        second: u32,
    },
    /// The ranks have no place to meet.
    #[error(
        "{launcher} started {world} ranks {why}; set RINGSMITH_COMM_ID=HOST:PORT to where rank 0 runs, on all ranks"
    )]
    NoMeeting {
        /// Who started them.
        launcher: Launcher,
        /// How many.
        world: u32,
        /// What is missing.
        why: &'static str,
    },
}

/// The names of one launcher's variables.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static str,
}

const RINGSMITH: Names = Names {
    launcher: Launcher::Ringsmith,
    rank: "RINGSMITH_RANK",
    world: &["RINGSMITH_WORLD"],
    local_rank: "RINGSMITH_LOCAL_RANK",
};
const TORCHRUN: Names =
    Names { launcher: Launcher::Torchrun, rank: "RANK", world: &["WORLD_SIZE"], local_rank: "LOCAL_RANK" };
const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
};
const PMI: Names =
    Names { launcher: Launcher::Pmi, rank: "PMI_RANK", world: &["PMI_SIZE"], local_rank: "MPI_LOCALRANKID" };
const SLURM: Names = Names {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    local_rank: "SLURM_LOCALID",
};

/// What one launcher's variables say.
struct Place<'a> {
    names: &'a Names,
    rank: u32,
    world: u32,
    world_name: &'static str,
    local_rank: Option<u32>,
}

/// The environment, as a function from names to values.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// A number from `least` to `most`, if the variable is set.
    fn number(&self, name: &'static str, least: u32, most: u32) -> Result<Option<u32>, LaunchError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        // A sign would pass for a number.
        match value.parse() {
            Ok(number) if (least..=most).contains(&number) && !value.starts_with('+') => Ok(Some(number)),
            _ => {
                let accepts = format!("a whole number from {least} to {most}");
                Err(LaunchError::Value { name, value, accepts })
            }
        }
    }

    /// How many ranks, hosts or ranks of a host there are.
    fn count(&self, name: &'static str) -> Result<Option<u32>, LaunchError> {
        self.number(name, 1, MAX_RANKS)
    }

    /// A rank's number among all, or among those of its host.
    fn index(&self, name: &'static str) -> Result<Option<u32>, LaunchError> {
        self.number(name, 0, MAX_RANKS - 1)
    }

    /// Whether PMI's variables say what Slurm's say of a step.
    fn is_pmi_of_slurm(&self) -> bool {
        let same = |pmi: &str, slurm: &[&str]| {
            let slurm = slurm.iter().find_map(|name| self.text(name));
            slurm.is_some() && self.text(pmi) == slurm
        };
        same(PMI.rank, &[SLURM.rank]) && same(PMI.world[0], SLURM.world)
    }

    fn place<'a>(&self, names: &'a Names) -> Result<Option<Place<'a>>, LaunchError> {
        let world_name = names.world.iter().copied().find(|name| self.text(name).is_some());
        let partial = |set, missing| LaunchError::Partial { launcher: names.launcher, set, missing };
        match (self.index(names.rank)?, world_name) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(partial(names.rank, names.world[0])),
            (None, Some(world_name)) => Err(partial(world_name, names.rank)),
            (Some(rank), Some(world_name)) => {
                let world = self.count(world_name)?.expect("it was found to be set");
                if rank >= world {
                    return Err(LaunchError::Range { rank_name: names.rank, rank, world_name, world });
                }
                let local_rank = self.index(names.local_rank)?;
                if let Some(rank) = local_rank.filter(|&rank| rank >= world) {
                    return Err(LaunchError::Range { rank_name: names.local_rank, rank, world_name, world });
                }
                Ok(Some(Place { names, rank, world, world_name, local_rank }))
            }
        }
    }
}

impl Launch {
    /// What the launcher of this process says; `None` if nobody says that it is one of several.
    ///
    /// Errors: `Launch`.
    pub fn detect(config: &Config) -> Result<Option<Self>> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
        Ok(Self::detect_in(&|name| std::env::var(name).ok(), parent, config)?)
    }

    /// As [`Launch::detect`], in the given variables and with the given parent process.
    pub fn detect_in(
        variables: &dyn Fn(&str) -> Option<String>,
        parent: Option<u32>,
        config: &Config,
    ) -> Result<Option<Self>, LaunchError> {
        let variables = Variables(variables);
        let Some(place) = innermost(&variables)? else { return Ok(None) };
        let meeting = meeting(&variables, &place, parent, config)?;
        let Place { names, rank, world, local_rank, .. } = place;
        Ok(Some(Self { launcher: names.launcher, rank, world, local_rank, meeting }))
    }

    /// Joins the job. One call per process: each makes a communicator of all ranks, and ranks must
    /// make the same calls in the same order.
    ///
    /// Errors: as [`UniqueId::create`] and [`Bootstrap::connect`]; `LocalRoot` when rank 0 cannot be
    /// found on this host; `File` when the folder where ranks meet cannot be trusted.
    pub fn join(&self, config: &Config) -> Result<Bootstrap> {
        let Self { rank, world, .. } = *self;
        match &self.meeting {
            Meeting::Id(id) => Bootstrap::connect(id, rank, world, config),
            Meeting::Address { address, setting, job } if rank == 0 => {
                let (id, root) = UniqueId::create_at(address, setting, job, config)?;
                Ok(Bootstrap::connect(&id, rank, world, config)?.keep(root))
            }
            Meeting::Address { address, setting, job } => {
                let id = UniqueId::from_address(address, setting, job, config)?;
                Bootstrap::connect(&id, rank, world, config)
            }
            Meeting::Host { job } if rank == 0 => {
                let place = local::Place::new(job, world, config)?;
                let (id, root) = UniqueId::create(config)?;
                let served = place.serve(&id)?;
                let joined = Bootstrap::connect(&id, rank, world, config);
                drop(served);
                Ok(joined?.keep(root))
            }
            Meeting::Host { job } => {
                let id = local::Place::new(job, world, config)?.ask(rank, config)?;
                Bootstrap::connect(&id, rank, world, config)
            }
        }
    }
}

/// The launcher that started this very process, of those whose variables are set.
fn innermost<'a>(variables: &Variables<'_>) -> Result<Option<Place<'a>>, LaunchError> {
    let own = variables.place(&RINGSMITH)?;
    // torchrun under mpirun starts ranks of its own, so what mpirun says is about torchrun.
    if variables.text("TORCHELASTIC_RUN_ID").is_some() {
        return agreeing([own, variables.place(&TORCHRUN)?]);
    }
    let open_mpi = variables.place(&OPEN_MPI)?;
    // Where mpirun is itself a step of Slurm, the step's PMI variables are about mpirun, as Slurm's own are.
    let pmi = match &open_mpi {
        Some(_) if variables.is_pmi_of_slurm() => None,
        _ => variables.place(&PMI)?,
    };
    let found = agreeing([own, variables.place(&TORCHRUN)?, open_mpi, pmi])?;
    // A batch script has Slurm's variables without being a rank; only a step has a step's number.
    // Under another launcher they describe that launcher.
    if found.is_none() && variables.text("SLURM_STEP_ID").is_some() {
        return variables.place(&SLURM);
    }
    Ok(found)
}

/// The first of several places, if the others do not contradict it.
fn agreeing<'a>(
    places: impl IntoIterator<Item = Option<Place<'a>>>,
) -> Result<Option<Place<'a>>, LaunchError> {
    let mut places = places.into_iter().flatten();
    let Some(mut first) = places.next() else { return Ok(None) };
    for other in places {
        let same = |first_name, first, second_name, second| match first == second {
            true => Ok(()),
            false => Err(LaunchError::Contradiction { first_name, first, second_name, second }),
        };
        same(first.names.rank, first.rank, other.names.rank, other.rank)?;
        same(first.world_name, first.world, other.world_name, other.world)?;
        if let Some((mine, theirs)) = first.local_rank.zip(other.local_rank) {
            same(first.names.local_rank, mine, other.names.local_rank, theirs)?;
        }
        first.local_rank = first.local_rank.or(other.local_rank);
    }
    Ok(Some(first))
}

fn meeting(
    variables: &Variables<'_>,
    place: &Place<'_>,
    parent: Option<u32>,
    config: &Config,
) -> Result<Meeting, LaunchError> {
    let launcher = place.names.launcher;
    let job = job(variables, launcher);
    if let Some(id) = config.id {
        return Ok(Meeting::Id(id));
    }
    if let Some(address) = config.comm_id.clone() {
        return Ok(Meeting::Address { address, setting: "RINGSMITH_COMM_ID", job: job.unwrap_or_default() });
    }
    if let Some(address) = master(variables)? {
        return Ok(Meeting::Address {
            address,
            setting: "MASTER_ADDR and MASTER_PORT",
            job: job.unwrap_or_default(),
        });
    }
    let no_meeting = |why| LaunchError::NoMeeting { launcher, world: place.world, why };
    let on_this_host = |job: Option<String>| {
        let job = job.or_else(|| parent.map(|pid| format!("child of {pid}")));
        job.map(|job| Meeting::Host { job: format!("{launcher} {job}") })
            .ok_or(no_meeting("and gave the job no name"))
    };
    let local_world = match launcher {
        Launcher::Ringsmith | Launcher::Torchrun if place.world == 1 => return on_this_host(job),
        Launcher::Ringsmith => return Err(no_meeting("without RINGSMITH_ID")),
        Launcher::Torchrun => return Err(no_meeting("without MASTER_ADDR and MASTER_PORT")),
        // Of all ranks, no more than there are can be on this host.
        Launcher::OpenMpi => variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, place.world)?,
        Launcher::Pmi => variables.number("MPI_LOCALNRANKS", 1, place.world)?,
        Launcher::Slurm => return slurm_meeting(variables, job, config, on_this_host, no_meeting),
    };
    if local_world.is_some_and(|local_world| local_world < place.world) {
        return Err(no_meeting("on several hosts"));
    }
    on_this_host(job)
}

/// The launcher's own name for the job.
fn job(variables: &Variables<'_>, launcher: Launcher) -> Option<String> {
    let first = |names: &[&str]| names.iter().find_map(|name| variables.text(name));
    match launcher {
        Launcher::Ringsmith => None,
        Launcher::Torchrun => {
            let run = variables.text("TORCHELASTIC_RUN_ID")?;
            // A restarted job is another job: a straggler of the first must not join it.
            Some(format!("{run} {}", variables.text("TORCHELASTIC_RESTART_COUNT").unwrap_or_default()))
        }
        Launcher::OpenMpi => first(&["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"]),
        Launcher::Pmi => first(&["PMI_JOBID", "PMIX_NAMESPACE"]).or_else(|| slurm_step(variables)),
        Launcher::Slurm => slurm_step(variables),
    }
}

fn slurm_step(variables: &Variables<'_>) -> Option<String> {
    let job = variables.text("SLURM_JOB_ID").or_else(|| variables.text("SLURM_JOBID"))?;
    Some(format!("{job}.{}", variables.text("SLURM_STEP_ID").unwrap_or_default()))
}

/// torchrun's address. Its own store may listen there already, and then Ringsmith takes the next port.
fn master(variables: &Variables<'_>) -> Result<Option<HostPort>, LaunchError> {
    let partial = |set, missing| LaunchError::Partial { launcher: Launcher::Torchrun, set, missing };
    let (host, port) = match (variables.text("MASTER_ADDR"), variables.text("MASTER_PORT")) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(partial("MASTER_ADDR", "MASTER_PORT")),
        (None, Some(_)) => return Err(partial("MASTER_PORT", "MASTER_ADDR")),
        (Some(host), Some(port)) => (host, port),
    };
    let store_has_it =
        variables.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let number = port.parse::<NonZeroU16>().ok();
    let Some(number) = number.and_then(|n| if store_has_it { n.checked_add(1) } else { Some(n) }) else {
        // Ringsmith takes the port behind the store's.
        let most = if store_has_it { u16::MAX - 1 } else { u16::MAX };
        let accepts = format!("a port, a whole number from 1 to {most},");
        return Err(LaunchError::Value { name: "MASTER_PORT", value: port, accepts });
    };
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let accepts = "a host name or address".to_owned();
    let address = HostPort::parse(&format!("{bracketed}:{number}"));
    address.map(Some).map_err(|_| LaunchError::Value { name: "MASTER_ADDR", value: host, accepts })
}

/// One node: on that host. Several: on the first, at a port made of the job's number.
fn slurm_meeting(
    variables: &Variables<'_>,
    job: Option<String>,
    config: &Config,
    on_this_host: impl Fn(Option<String>) -> Result<Meeting, LaunchError>,
    no_meeting: impl Fn(&'static str) -> LaunchError,
) -> Result<Meeting, LaunchError> {
    let nodes = match variables.count("SLURM_STEP_NUM_NODES")? {
        Some(nodes) => Some(nodes),
        None => variables.count("SLURM_NNODES")?,
    };
    if nodes.is_none_or(|nodes| nodes <= 1) {
        return on_this_host(job);
    }
    let list = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]
        .into_iter()
        .find_map(|name| variables.text(name).map(|list| (name, list)));
    let (name, list) = list.ok_or(no_meeting("without a list of nodes (SLURM_STEP_NODELIST)"))?;
    let unreadable = || LaunchError::Value {
        name,
        value: list.clone(),
        accepts: "a list of nodes, such as node[03-05,9],login1,".to_owned(),
    };
    let host = first_host(&list).ok_or_else(unreadable)?;
    let job = job.ok_or(no_meeting("without SLURM_JOB_ID"))?;
    let port = match config.port_range {
        Some(range) => range.first,
        None => {
            // Below the ports that the system hands out, so that nobody has it by chance.
            let digest = Sha256::digest(job.as_bytes());
            let number = 20_000 + u16::from_le_bytes([digest[0], digest[1]]) % 10_000;
            NonZeroU16::new(number).expect("20,000 and more is not 0")
        }
    };
    let address = HostPort::parse(&format!("{host}:{port}")).map_err(|_| unreadable())?;
    Ok(Meeting::Address { address, setting: name, job })
}

/// The first host of a list in Slurm's grammar: `node[03-05,9]-ib,login1` gives `node03-ib`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host += &rest[..end];
        rest = match rest[end..].strip_prefix('[') {
            None => return (!host.is_empty()).then_some(host),
            Some(numbers) => {
                let (numbers, rest) = numbers.split_once(']')?;
                host += numbers.split(['-', ',']).next().filter(|number| !number.is_empty())?;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(vars: &[(&str, &str)]) -> Result<Option<Launch>, LaunchError> {
        detect_with(vars, &Config::default())
    }

    fn detect_with(vars: &[(&str, &str)], config: &Config) -> Result<Option<Launch>, LaunchError> {
        let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Launch::detect_in(&find, Some(77), config)
    }

    fn launch(vars: &[(&str, &str)]) -> Launch {
        detect(vars).expect("sound variables").expect("a launcher")
    }

    fn address(launch: &Launch) -> String {
        match &launch.meeting {
            Meeting::Address { address, .. } => address.to_string(),
            other => panic!("an address was expected, not {other:?}"),
        }
    }

    #[test]
    fn nobody_launched_it() {
        assert_eq!(detect(&[]), Ok(None));
        // A shell inside sbatch or salloc is not a rank.
        assert_eq!(detect(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "5")]), Ok(None));
        assert_eq!(detect(&[("MASTER_ADDR", "node1")]), Ok(None));
    }

    #[test]
    fn torchrun() {
        let vars = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "29500"),
        ];
        let by_hand = launch(&vars);
        assert_eq!((by_hand.rank, by_hand.world, by_hand.local_rank), (3, 4, Some(1)));
        assert_eq!(address(&by_hand), "node1:29500");
        let mut elastic = vars.to_vec();
        elastic.extend([("TORCHELASTIC_RUN_ID", "x"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]);
        // mpirun started torchrun, not the ranks.
        elastic.extend([("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]);
        assert_eq!(address(&launch(&elastic)), "node1:29501");
        let mut v6 = vars.to_vec();
        v6[3].1 = "fd00::1";
        assert_eq!(address(&launch(&v6)), "[fd00::1]:29500");
    }

    #[test]
    fn open_mpi() {
        let mut vars = vec![
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_NAMESPACE", "12345"),
            // Set by the batch system around mpirun, and about mpirun.
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("SLURM_STEP_ID", "0"),
        ];
        let found = launch(&vars);
        assert_eq!(found.launcher, Launcher::OpenMpi);
        assert_eq!(found.meeting, Meeting::Host { job: "Open MPI 12345".into() });
        vars[3].1 = "1";
        let error = detect(&vars).expect_err("two hosts and no address").to_string();
        assert!(error.contains("on several hosts") && error.contains("RINGSMITH_COMM_ID"), "{error}");
        let comm_id = [("RINGSMITH_COMM_ID".to_owned(), "node1:4000".to_owned())];
        let config = Config::from_vars(comm_id).expect("an address").0;
        assert_eq!(address(&detect_with(&vars, &config).expect("sound").expect("a launcher")), "node1:4000");
    }

    #[test]
    fn pmi() {
        let found = launch(&[("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")]);
        assert_eq!(found.launcher, Launcher::Pmi);
        assert_eq!(found.meeting, Meeting::Host { job: "MPI (PMI) child of 77".into() });
    }

    #[test]
    fn slurm() {
        let mut vars = vec![
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "99"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "2"),
            ("SLURM_NNODES", "1"),
            ("SLURM_STEP_NODELIST", "gpu[07-09]"),
        ];
        let one_node = launch(&vars);
        assert_eq!((one_node.rank, one_node.world), (5, 8));
        assert_eq!(one_node.meeting, Meeting::Host { job: "Slurm 4711.2".into() });
        vars[6].1 = "2";
        let several = address(&launch(&vars));
        let port: u16 = several.strip_prefix("gpu07:").expect("the first node").parse().expect("a port");
        assert!((20_000..30_000).contains(&port));
        assert_eq!(address(&launch(&vars)), several);
    }

    #[test]
    fn numbers_out_of_range_are_named_with_what_would_do() {
        let text = |vars: &[(&str, &str)]| detect(vars).expect_err("unusable variables").to_string();
        for size in ["0", "16385", "4294967296", "+2", "2.0", "x"] {
            for (rank, world) in
                [("RINGSMITH_RANK", "RINGSMITH_WORLD"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
            {
                let told = text(&[(rank, "0"), (world, size)]);
                assert_eq!(told, format!("{world}={size}: a whole number from 1 to 16384 is needed"));
            }
        }
        let told = text(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "3")]);
        assert_eq!(told, "MPI_LOCALNRANKS=3: a whole number from 1 to 2 is needed");
        let told = text(&[("PMI_RANK", "99999999999"), ("PMI_SIZE", "2")]);
        assert_eq!(told, "PMI_RANK=99999999999: a whole number from 0 to 16383 is needed");
        let master = |port, store: &[(&'static str, &'static str)]| {
            let vars = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "node1"), ("MASTER_PORT", port)];
            text(&[&vars[..], store].concat())
        };
        for port in ["0", "70000", "-1", "http"] {
            let needed = "a port, a whole number from 1 to 65535, is needed";
            assert_eq!(master(port, &[]), format!("MASTER_PORT={port}: {needed}"));
        }
        let store = [("TORCHELASTIC_USE_AGENT_STORE", "True")];
        assert!(master("65535", &store).contains("from 1 to 65534"), "{}", master("65535", &store));
    }

    #[test]
    fn unreadable_lists_of_nodes_are_quoted_by_their_own_name() {
        let step = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_NNODES", "2"),
        ];
        let with = |name, list| detect(&[&step[..], &[(name, list)]].concat());
        for name in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] {
            for list in ["gpu[", "gpu[1-2", ",", "a b"] {
                let told = with(name, list).expect_err("no list of nodes").to_string();
                assert!(
                    told.starts_with(&format!("{name}=")) && told.contains("such as node[03-05"),
                    "{told}"
                );
            }
            let found = with(name, "gpu[07-09]").expect("sound").expect("a launcher");
            assert!(matches!(found.meeting, Meeting::Address { setting, .. } if setting == name));
        }
        let missing = detect(&step).expect_err("no list").to_string();
        assert!(missing.contains("without a list of nodes (SLURM_STEP_NODELIST)"), "{missing}");
    }

    #[test]
    fn lists_of_nodes() {
        for (list, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("gpu[07-09],login1", "gpu07"),
            ("gpu[3,5]-ib", "gpu3-ib"),
            ("rack[1-2]node[04-05]", "rack1node04"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first));
        }
        for broken in ["", ",", "gpu[", "gpu[]", "[", "gpu[1-2"] {
            assert_eq!(first_host(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn what_is_partial_or_contradictory_is_named() {
        let text = |vars: &[(&str, &str)]| detect(vars).expect_err("unusable variables").to_string();
        let partial = text(&[("RANK", "0")]);
        assert!(partial.contains("RANK is set but WORLD_SIZE is not"), "{partial}");
        let partial = text(&[("OMPI_COMM_WORLD_SIZE", "2")]);
        assert!(partial.contains("OMPI_COMM_WORLD_RANK"), "{partial}");
        let port = text(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")]);
        assert!(port.contains("MASTER_PORT"), "{port}");
        let value = text(&[("RANK", "-1"), ("WORLD_SIZE", "2")]);
        assert!(value.contains("RANK=-1"), "{value}");
        let range = text(&[("RINGSMITH_RANK", "2"), ("RINGSMITH_WORLD", "2")]);
        assert!(range.contains("RINGSMITH_RANK=2 is not below RINGSMITH_WORLD=2"), "{range}");
        let both = [("RANK", "0"), ("WORLD_SIZE", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let contradiction = text(&both);
        assert!(contradiction.contains("RANK=0 but PMI_RANK=1"), "{contradiction}");
        let mpis = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "3"),
        ];
        let contradiction = text(&mpis);
        assert!(contradiction.contains("OMPI_COMM_WORLD_SIZE=4 but PMI_SIZE=3"), "{contradiction}");
        // As a step of Slurm that is mpirun, whose daemons pass on what srun has set.
        let step = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "3"), ("SLURM_STEP_ID", "0")];
        let nested = launch(&[&mpis[..], &step].concat());
        assert_eq!((nested.launcher, nested.rank, nested.world), (Launcher::OpenMpi, 1, 4));
        let sizes = [("RANK", "0"), ("WORLD_SIZE", "2"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
        let contradiction = text(&sizes);
        assert!(contradiction.contains("WORLD_SIZE=2 but PMI_SIZE=4"), "{contradiction}");
        let mut locals = both.to_vec();
        locals[2].1 = "0";
        locals.extend([("LOCAL_RANK", "0"), ("MPI_LOCALRANKID", "1")]);
        let contradiction = text(&locals);
        assert!(contradiction.contains("LOCAL_RANK=0 but MPI_LOCALRANKID=1"), "{contradiction}");
        let local = text(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "2")]);
        assert!(local.contains("LOCAL_RANK=2 is not below WORLD_SIZE=2"), "{local}");
        let nowhere = text(&[("RINGSMITH_RANK", "0"), ("RINGSMITH_WORLD", "2")]);
        assert!(nowhere.contains("RINGSMITH_ID"), "{nowhere}");
    }
}
