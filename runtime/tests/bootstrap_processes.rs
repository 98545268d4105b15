//! The bootstrap between processes: deaths, aborts, launchers. The test program starts itself again
//! as a rank, so one binary is both.
//!
//! A rank prints one line per event on its standard output; the tests read them.

use libtest_mimic::{Arguments, Failed, Trial};
use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::launcher::Launch;
use ringsmith_runtime::log;
use ringsmith_runtime::unique_id::UniqueId;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Set in ranks: what they do after they have joined.
const ROLE: &str = "RANK_OF_TEST";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        return rank(&role);
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("a_killed_rank_is_named_to_all", a_killed_rank_is_named_to_all),
        Trial::test("a_killed_root_is_named_to_all", a_killed_root_is_named_to_all),
        Trial::test("a_rank_that_exits_without_goodbye_is_lost", a_rank_that_exits_without_goodbye_is_lost),
        Trial::test("a_root_of_its_own_process_serves", a_root_of_its_own_process_serves),
        Trial::test("a_death_while_joining_is_named", a_death_while_joining_is_named),
        Trial::test("ranks_of_open_mpi_meet_on_one_host", ranks_of_open_mpi_meet_on_one_host),
        Trial::test("ranks_of_torchrun_meet_at_the_master", ranks_of_torchrun_meet_at_the_master),
        Trial::test("the_log_tells_of_the_join_and_no_secret", the_log_tells_of_the_join_and_no_secret),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A rank: joins as its launcher's variables say, then acts its role.
fn rank(role: &str) -> ExitCode {
    let config = Config::from_env().expect("settings of the test").0;
    log::install(&config).expect("the log can be written");
    let launch = Launch::detect(&config).expect("variables of the test").expect("a launcher");
    let joined = if role.starts_with("root") {
        UniqueId::create(&config).and_then(|(id, root)| {
            println!("id {}", id.to_hex());
            Ok(Bootstrap::connect(&id, launch.rank, launch.world, &config)?.keep(root))
        })
    } else {
        launch.join(&config)
    };
    let place = match joined {
        Ok(place) => place,
        Err(error) => {
            println!("not joined: {error}");
            return ExitCode::from(error.exit_status().code());
        }
    };
    println!("joined {} of {}", place.rank(), place.world());
    match role {
        "exit" => std::process::exit(7),
        "gather" | "root-gather" => {
            let all = place.all_gather("ranks", &[place.rank() as u8]).expect("all ranks take part");
            println!("gathered {}", all.concat().iter().map(u8::to_string).collect::<Vec<_>>().join(" "));
        }
        _ => {
            let (sender, receiver) = mpsc::channel();
            place.fault().on_raise(move |reason| sender.send(reason.to_string()).expect("the rank waits"));
            println!("fault: {}", receiver.recv().expect("the hook keeps its end"));
        }
    }
    ExitCode::SUCCESS
}

/// A running rank. Killed when the test is done with it, however that ends.
struct Rank {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.env(ROLE, role).env("RINGSMITH_SOCKET_IFNAME", "=lo").env("RINGSMITH_INIT_TIMEOUT_S", "60");
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines }
    }

    /// A rank of a job with an id.
    fn of(id: &str, role: &str, rank: u32, world: u32) -> Self {
        let (rank, world) = (rank.to_string(), world.to_string());
        Self::start(role, &[("RINGSMITH_ID", id), ("RINGSMITH_RANK", &rank), ("RINGSMITH_WORLD", &world)])
    }

    /// Rank 0, which holds the root, and its id.
    fn root(role: &str, world: u32) -> (Self, String) {
        let world = world.to_string();
        // An address gives the launcher's check something to meet at; the role makes its own id.
        let vars = [
            ("RINGSMITH_RANK", "0"),
            ("RINGSMITH_WORLD", world.as_str()),
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", "1"),
        ];
        let mut rank = Self::start(role, &vars);
        let line = rank.line();
        let id =
            line.strip_prefix("id ").unwrap_or_else(|| panic!("an id was expected, not {line:?}")).to_owned();
        (rank, id)
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a rank says more before it ends").expect("a pipe can be read")
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }

    fn expect(&mut self, line: &str) -> Result<(), Failed> {
        let found = self.line();
        if found == line { Ok(()) } else { Err(format!("{found:?} was said, and {line:?} expected").into()) }
    }

    fn expect_with(&mut self, parts: &[&str]) -> Result<(), Failed> {
        let found = self.line();
        match parts.iter().find(|part| !found.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("{found:?} was said, and {part:?} expected in it").into()),
        }
    }

    fn end(mut self) -> Result<(), Failed> {
        let status = self.child.wait().expect("it was started");
        if status.success() { Ok(()) } else { Err(format!("a rank ended with {status}").into()) }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Already gone in most cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn a_killed_rank_is_named_to_all() -> Result<(), Failed> {
    let (mut root, id) = Rank::root("root-watch", 3);
    let mut victim = Rank::of(&id, "watch", 1, 3);
    let mut other = Rank::of(&id, "watch", 2, 3);
    for (number, rank) in [&mut root, &mut victim, &mut other].into_iter().enumerate() {
        rank.expect(&format!("joined {number} of 3"))?;
    }
    let pid = format!("pid {}", victim.child.id());
    victim.kill();
    root.expect_with(&["fault: rank 1 (", &pid, "is lost"])?;
    other.expect_with(&["fault: rank 1 (", &pid, "is lost"])?;
    other.end()?;
    root.end()
}

fn a_killed_root_is_named_to_all() -> Result<(), Failed> {
    let (mut root, id) = Rank::root("root-watch", 3);
    let mut others = [Rank::of(&id, "watch", 1, 3), Rank::of(&id, "watch", 2, 3)];
    root.expect("joined 0 of 3")?;
    for (number, rank) in (1..).zip(&mut others) {
        rank.expect(&format!("joined {number} of 3"))?;
    }
    root.kill();
    for rank in &mut others {
        rank.expect_with(&["fault: rank 0 (", "is lost", "its process held the root"])?;
    }
    others.into_iter().try_for_each(Rank::end)
}

fn a_rank_that_exits_without_goodbye_is_lost() -> Result<(), Failed> {
    let (mut root, id) = Rank::root("root-watch", 2);
    let mut leaver = Rank::of(&id, "exit", 1, 2);
    leaver.expect("joined 1 of 2")?;
    root.expect("joined 0 of 2")?;
    root.expect_with(&["fault: rank 1 (", "is lost"])?;
    root.end()
}

fn a_root_of_its_own_process_serves() -> Result<(), Failed> {
    // As `ringsmith run` does: the parent holds the root and is no rank.
    let lo = [("RINGSMITH_SOCKET_IFNAME".to_owned(), "=lo".to_owned())];
    let config = Config::from_vars(lo).expect("settings of the test").0;
    let (id, root) = UniqueId::create(&config).expect("a root on loopback");
    let mut ranks: Vec<Rank> = (0..4).map(|rank| Rank::of(&id.to_hex(), "gather", rank, 4)).collect();
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.expect(&format!("joined {number} of 4"))?;
        rank.expect("gathered 0 1 2 3")?;
    }
    ranks.into_iter().try_for_each(Rank::end)?;
    drop(root);
    Ok(())
}

fn a_death_while_joining_is_named() -> Result<(), Failed> {
    let (mut root, id) = Rank::root("root-watch", 3);
    let mut victim = Rank::of(&id, "watch", 1, 3);
    // Whether the root has seen it before it dies cannot be told from outside. If not, rank 1 is
    // missing when the deadline of rank 2 comes.
    std::thread::sleep(Duration::from_millis(300));
    victim.kill();
    let vars = [
        ("RINGSMITH_ID", id.as_str()),
        ("RINGSMITH_RANK", "2"),
        ("RINGSMITH_WORLD", "3"),
        ("RINGSMITH_INIT_TIMEOUT_S", "3"),
    ];
    let mut other = Rank::start("watch", &vars);
    root.expect_with(&["not joined: rank 0 of 3: join: rank 1 "])?;
    // Rank 2 is refused by the root, which names rank 1, or comes when the root has given up and gone, and
    // then says that.
    other.expect_with(&["not joined: rank 2 of 3"])
}

/// A folder that is removed again.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ranks_of_open_mpi_meet_on_one_host() -> Result<(), Failed> {
    let folder = Folder(std::env::temp_dir().join(format!("ringsmith-test-meet-{}", std::process::id())));
    let run_dir = folder.0.to_str().expect("a plain path");
    let start = |rank: &str| {
        let vars = [
            ("RINGSMITH_RUN_DIR", run_dir),
            ("OMPI_COMM_WORLD_RANK", rank),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
            ("PMIX_NAMESPACE", "a job of this test"),
        ];
        Rank::start("gather", &vars)
    };
    // The others first: they wait for rank 0.
    let mut ranks = ["2", "1", "0"].map(start);
    for (number, rank) in ranks.iter_mut().rev().enumerate() {
        rank.expect(&format!("joined {number} of 3"))?;
        rank.expect("gathered 0 1 2")?;
    }
    ranks.into_iter().try_for_each(Rank::end)?;
    match std::fs::read_dir(&folder.0).expect("the folder stays").count() {
        0 => Ok(()),
        left => Err(format!("{left} sockets were left behind").into()),
    }
}

fn ranks_of_torchrun_meet_at_the_master() -> Result<(), Failed> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let port = free.port().to_string();
    let start = |rank: &str| {
        let vars = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", rank),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ];
        Rank::start("gather", &vars)
    };
    let mut ranks = ["1", "0"].map(start);
    for rank in &mut ranks {
        rank.expect_with(&["joined"])?;
        rank.expect("gathered 0 1")?;
    }
    ranks.into_iter().try_for_each(Rank::end)
}

fn the_log_tells_of_the_join_and_no_secret() -> Result<(), Failed> {
    let folder = Folder(std::env::temp_dir().join(format!("ringsmith-test-log-{}", std::process::id())));
    std::fs::create_dir(&folder.0).expect("a folder for the test");
    let file = folder.0.join("%p.log");
    let vars = [
        ("RINGSMITH_DEBUG", "trace"),
        ("NCCL_DEBUG_SUBSYS", "ALL"),
        ("NCCL_DEBUG_FILE", file.to_str().expect("a plain path")),
        ("RINGSMITH_RANK", "0"),
        ("RINGSMITH_WORLD", "1"),
    ];
    let mut rank = Rank::start("root-gather", &vars);
    let id = rank.line();
    rank.expect("joined 0 of 1")?;
    rank.expect("gathered 0")?;
    let log = folder.0.join(format!("{}.log", rank.child.id()));
    rank.end()?;
    let text = std::fs::read_to_string(log).expect("the log is there");
    for part in ["ringsmith 0.", "INFO bootstrap: root id-", "rank 0 of 1 joined id-"] {
        if !text.contains(part) {
            return Err(format!("{part:?} is not in the log:\n{text}").into());
        }
    }
    let digits = id.strip_prefix("id ").expect("an id");
    if text.contains(&digits[16..48]) { Err("the log shows the secret".into()) } else { Ok(()) }
}
