//! The processes of a trial: started together, awaited until a deadline, killed when the trial ends.

use libtest_mimic::Failed;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a trial may take. Ours: many times what the slowest takes on two busy cores.
const DEADLINE: Duration = Duration::from_secs(180);
/// How long the others may go on once a rank has failed: they may wait for it.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

struct Rank {
    child: Child,
    output: Vec<JoinHandle<String>>,
}

/// Processes under test.
pub(crate) struct Ranks(Vec<Rank>);

/// A process that has ended: how, and what it had written, results before messages.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
}

impl Ranks {
    /// Starts a process for each rank.
    pub(crate) fn start(world: u32, command: impl Fn(u32) -> Command) -> Result<Self, Failed> {
        let mut ranks = Self(Vec::new());
        for rank in 0..world {
            let mut command = command(rank);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
            let stdout = follow(child.stdout.take().expect("stdout was piped"));
            let stderr = follow(child.stderr.take().expect("stderr was piped"));
            ranks.0.push(Rank { child, output: vec![stdout, stderr] });
        }
        Ok(ranks)
    }

    /// Waits for all of them.
    pub(crate) fn wait(mut self) -> Result<Vec<Ended>, Failed> {
        let mut deadline = Instant::now() + DEADLINE;
        let mut has_failed = false;
        let mut left: Vec<usize> = (0..self.0.len()).collect();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(POLL);
            let mut running = Vec::new();
            for number in left {
                match self.0[number].child.try_wait()? {
                    None => running.push(number),
                    Some(status) if !status.success() && !has_failed => {
                        has_failed = true;
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                    Some(_) => {}
                }
            }
            left = running;
        }
        for number in &left {
            let _ = self.0[*number].child.kill();
        }
        let mut ended = Vec::new();
        for rank in &mut self.0 {
            let status = rank.child.wait()?;
            let text = rank.output.drain(..).map(|thread| thread.join().unwrap_or_default()).collect();
            ended.push(Ended { status, text });
        }
        match left.is_empty() || has_failed {
            true => Ok(ended),
            false => Err(format!("ranks {left:?} hang\n{}", told(&ended)).into()),
        }
    }

    /// Waits for all of them, and fails if one does.
    pub(crate) fn all_succeed(self) -> Result<(), Failed> {
        let ended = self.wait()?;
        match ended.iter().all(|one| one.status.success()) {
            true => Ok(()),
            false => Err(told(&ended).into()),
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// What every rank wrote.
pub(crate) fn told(ended: &[Ended]) -> String {
    let one = |(rank, ended): (usize, &Ended)| format!("rank {rank}: {}\n{}", ended.status, ended.text);
    ended.iter().enumerate().map(one).collect()
}

fn follow(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error still counts.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
