//! Arguments that cannot be used: status 2, nothing on standard output, the argument named.

use crate::program::{Folder, run, run_with};
use libtest_mimic::{Failed, Trial};

/// A command line and what its error must name.
const REFUSED: &[(&str, &[&str])] = &[
    ("", &["Usage"]),
    ("frobnicate", &["frobnicate"]),
    ("simulate", &["FILE|COLLECTIVE"]),
    ("simulate all_reduc", &["all_reduc", "all_reduce", "no file"]),
    ("simulate missing.sched --bytes 8", &["missing.sched"]),
    ("simulate all_reduce --ranks 0", &["--ranks"]),
    ("simulate all_reduce --ranks 65536 --nodes 65536", &["--ranks", "--nodes"]),
    ("simulate all_reduce --bytes -1", &["--bytes", "-1: expected a size in bytes"]),
    ("simulate all_reduce --bytes 99999999G", &["fewer bytes"]),
    ("simulate all_reduce --topo nowhere", &["nowhere", "hgx-h100"]),
    ("simulate all_reduce --topo dgx1v --ranks 9", &["9 ranks", "8 GPUs", "--nodes"]),
    ("simulate all_reduce --topo dgx1v --cores 2", &["--cores", "--topo"]),
    ("simulate all_reduce --topo dgx1v --nodes 70000", &["--nodes"]),
    ("simulate all_reduce --topo hgx-h100 --nodes 3000", &["24000 GPUs", "16384", "--ranks"]),
    ("simulate all_reduce --skew 5", &["--seed"]),
    ("simulate all_reduce --seed -1", &["--seed -1: expected a whole number from 0 on"]),
    ("simulate all_reduce --seed x", &["--seed x: expected a whole number from 0 on, below 2^64"]),
    ("simulate all_reduce --seed 1 --skew 1000000001", &["--skew 1000000001: ", "from 0 to 1000000000"]),
    ("plan all_reduce --bytes=", &["--bytes \"\": expected a size in bytes, such as 8, 64K"]),
    ("plan all_reduce --channels 65", &["--channels 65: expected a whole number from 1 to 64"]),
    ("plan all_reduce --root x", &["--root x: expected a whole number from 0 to 4294967295"]),
    ("compile broadcast -o x --root x", &["--root x: expected a rank", "`all`"]),
    ("tune -o x --ranks 1", &["--ranks 1: expected a whole number from 2 to 512"]),
    ("run all_reduce --rank x --world 2", &["--rank x: expected a whole number from 0 to 16383"]),
    ("simulate all_reduce --set a=1", &["--set a"]),
    ("simulate all_reduce --algo bruck", &["--algo bruck", "ring"]),
    ("simulate broadcast --root 7", &["root 7"]),
    ("simulate send_recv", &["send_recv"]),
    ("simulate ring2.sched --ranks 3", &["--ranks 3", "2 ranks"]),
    ("simulate ring2.sched --algo ring", &["--algo"]),
    ("simulate ring2.sched --proto ll,simple", &["--proto ll,simple"]),
    ("simulate ring2.sched --topo dgx1v --nodes 0", &["--nodes"]),
    ("run", &["COLLECTIVE"]),
    ("run all_reduc", &["all_reduc", "all_reduce"]),
    ("run all_reduce --min", &["--min"]),
    ("run all_reduce -b 1X", &["--min", "1X"]),
    ("run all_reduce -b -1", &["--min", "-1: expected a size in bytes"]),
    ("run all_reduce -e -1K", &["--max", "-1K: expected a size in bytes"]),
    ("run all_reduce --min --json", &["--min", "--min --json: expected a size"]),
    ("run all_reduce -e 99999999999G", &["--max", "99999999999G", "2^64"]),
    ("run all_reduce -e 8G -b 16G", &["--min", "--max"]),
    ("run all_reduce -e 9999999G", &["--max"]),
    ("run all_reduce -b 4611686018427387904 -e 4611686018427387904", &["--max"]),
    ("run all_reduce -f 1", &["--factor"]),
    ("run all_reduce -n 0", &["--iters"]),
    ("run all_reduce -w -1", &["--warmup", "-1: expected a whole number from 0"]),
    ("run all_reduce -n 99999999999999999999", &["--iters", "1000000000"]),
    ("run all_reduce -c 2", &["--check"]),
    ("run all_reduce -d float23", &["--dtype", "float23", "float32"]),
    ("run all_reduce -o summ", &["--op", "summ", "sum"]),
    ("run broadcast -r 2", &["--root", "2 ranks"]),
    ("run broadcast -r -1", &["--root", "-1"]),
    ("run broadcast -r 0 -r 1", &["--root", "twice"]),
    ("run all_reduce --ranks 0", &["--ranks 0: expected a whole number from 1 to 512"]),
    ("run all_reduce --ranks -2", &["--ranks", "-2"]),
    ("run all_reduce --ranks 100000", &["--ranks", "100000"]),
    ("run all_reduce --rank 0", &["--world"]),
    ("run all_reduce --world 2", &["--rank"]),
    ("run all_reduce --rank 0 --world 4294967295 --root 127.0.0.1:9", &["--world", "16384"]),
    ("run all_reduce --rank 2 --world 2", &["--rank 2", "0 to 1"]),
    ("run all_reduce --rank 0 --world 2", &["--root", "--id-file"]),
    ("run all_reduce --rank 0 --world 2 --ranks 2", &["--ranks"]),
    ("run all_reduce --rank 0 --world 2 --root node0:port", &["--root", "node0:port"]),
    ("run all_reduce --rank 0 --world 2 --root 127.0.0.1:9 --id-file id", &["--root", "--id-file"]),
    ("run all_reduce --root 127.0.0.1:9", &["--root", "--rank"]),
    ("run all_reduce --id-file id", &["--rank"]),
    ("run all_reduce --device rocm", &["--device", "rocm", "cuda", "cpu"]),
    ("run all_reduce --device cuda --transport socket", &["--device cuda", "--transport"]),
    ("run all_reduce --algo= --ranks 2", &["--algo is empty"]),
    ("run all_reduce --schedule x.sched --algo ring", &["--schedule", "--algo"]),
    ("run all_reduce --schedule x.sched --channels 2", &["--schedule", "--channels"]),
    (
        "lower x.sched --ranks 2 --bytes 1K --dtype float32 --slots 1",
        &["--slots", "--slots 1: expected a whole number from 2 to 64"],
    ),
    ("run all_reduce --transport ib", &["--transport", "ib", "socket"]),
    ("run all_reduce --algo ringg", &["--algo", "ringg"]),
    ("run all_reduce --algo ring;;", &["--algo ring;;", "part 2", "empty"]),
    ("run all_reduce --algo ,ring", &["--algo ,ring: name 1 of \",ring\" is empty"]),
    ("run all_reduce --algo ring,,tree", &["--algo ring,,tree", "name 2", "empty"]),
    ("run all_reduce --algo bruck", &["--algo bruck", "all_reduce", "ring", "rabenseifner"]),
    ("run all_gather --algo ^ring,bruck,direct", &["--algo ^ring,bruck,direct", "all_gather", "bruck"]),
    ("run reduce_scatter --algo halving --ranks 3", &["halving", "power of two", "3", "ring"]),
    ("run send_recv --algo ring", &["--algo ring", "send_recv"]),
    ("run send_recv --proto ll", &["--proto ll", "send_recv", "simple"]),
    ("run all_reduce --algo ring;all_to_all_v:ring", &["--algo", "all_to_all_v", "without an algorithm"]),
    ("run broadcast --proto ll", &["--proto ll: that leaves no protocol of broadcast, which has simple"]),
    ("run all_reduce --proto ll", &["ll", "16384"]),
    ("run all_reduce --proto ll127", &["--proto", "ll127"]),
    ("run all_reduce --channels 0", &["--channels"]),
    ("run all_reduce --timeout soon", &["--timeout", "soon"]),
    ("run all_reduce --timeout -1", &["--timeout -1", "seconds"]),
    ("run all_reduce --inplace maybe", &["--inplace", "maybe"]),
    ("run send_recv --inplace yes", &["--inplace", "send_recv"]),
    ("run all_reduce --set k=1", &["--set", "--schedule"]),
    ("run all_reduce --schedule missing.sched", &["missing.sched"]),
    ("run broadcast --schedule ring_all_reduce.sched", &["ring_all_reduce.sched", "all_reduce", "broadcast"]),
    ("run send_recv --schedule ring_all_reduce.sched", &["--schedule", "send_recv"]),
    ("run all_reduce --schedule ring2.sched --ranks 3", &["--ranks 3", "ring2.sched", "2 ranks"]),
    ("run all_reduce --schedule ring2.sched -o max", &["ring2.sched", "sum", "--op"]),
    ("run all_gather --schedule ring2.sched", &["ring2.sched", "all_reduce", "all_gather"]),
    ("run all_reduce --schedule ring2.sched --set a=1", &["ring2.sched", "--set a"]),
    ("run all_reduce --schedule ring_all_reduce.sched --set n=3", &["--set n=3", "--ranks 3"]),
    ("run broadcast --schedule tree_broadcast.sched --set root=1", &["--set root=1", "--root 1"]),
    ("run all_reduce --schedule broken.sched", &["broken.sched", "P0"]),
    ("run all_reduce --graph 1", &["--graph"]),
    ("run all_reduce --child 1:2", &["--child"]),
    ("plan all_reduce --ranks 0", &["--ranks"]),
    ("plan all_reduce --ranks 65536 --nodes 65536", &["--ranks", "--nodes"]),
    ("plan all_reduce --algo rings", &["--algo", "rings"]),
    ("plan all_reduce --algo bruck", &["--algo bruck", "all_reduce", "ring"]),
    ("plan all_reduce --bytes -1", &["--bytes", "-1: expected a size in bytes"]),
    ("plan broadcast --root 7", &["root 7"]),
    ("plan send_recv", &["send_recv"]),
    ("plan all_reduce --proto ll --algo ring --channels 64", &["channels"]),
    ("expand ring_all_reduce.sched", &["--ranks"]),
    ("expand ring_all_reduce.sched --ranks 65537", &["--ranks", "65537"]),
    ("expand missing.sched --ranks 2", &["missing.sched"]),
    ("expand . --ranks 2", &["folder"]),
    ("expand ring_all_reduce.sched --ranks 2 --set nonsense", &["--set", "nonsense"]),
    ("expand ring_all_reduce.sched --ranks 2 --set a=1 --set a=2", &["--set", "twice"]),
    ("expand ring_all_reduce.sched --ranks 2 --set a=1", &["E0301", "a"]),
    ("expand ring_all_reduce.sched --ranks 2 --set n=3", &["--set n=3", "--ranks 3"]),
    ("expand ring_all_reduce.sched --ranks 2 --root 0", &["E0303"]),
    ("expand ring2.sched --ranks 3", &["--ranks 3", "2 ranks"]),
    ("fmt", &["FILE"]),
    ("fmt missing.sched", &["missing.sched"]),
    ("fmt --check --stdout ring2.sched", &["--check", "--stdout"]),
    ("verify", &["FILE"]),
    ("verify ring_all_reduce.sched --ranks 4..2", &["--ranks", "4..2"]),
    ("verify ring_all_reduce.sched --ranks 0..2", &["--ranks", "0..2"]),
    ("verify ring_all_reduce.sched --root x", &["--root x: expected a rank", "`all`"]),
    ("verify ring2.sched --ranks 3..4", &["--ranks 3..4", "2 ranks"]),
    ("verify ring2.sched --root 1", &["--root 1", "no root"]),
    ("verify ring2.sched --set a=1", &["--set a"]),
    ("verify ring_all_reduce.sched --set n=3", &["--set n=3", "--ranks 3"]),
    (
        "verify ring_all_reduce.sched --slots 1",
        &["--slots", "--slots 1: expected a whole number from 2 to 64"],
    ),
    ("show tree_broadcast.sched --set root=1", &["--set root=1", "--root 1"]),
    ("lower ring_all_reduce.sched --bytes 8 --dtype int8", &["--ranks"]),
    ("lower ring_all_reduce.sched --ranks 2 --dtype int8", &["--bytes"]),
    ("lower ring_all_reduce.sched --ranks 2 --bytes 8 --dtype int9", &["--dtype", "int9"]),
    (
        "lower ring_all_reduce.sched --ranks 2 --bytes 8 --dtype int8 --slot-bytes 100",
        &["--slot-bytes", "100"],
    ),
    ("show missing.sched", &["missing.sched"]),
    ("show ring2.sched --ranks 2", &["--ranks", "ring2.sched"]),
    ("compile -o x", &["COLLECTIVE"]),
    ("compile all_reduce", &["--output"]),
    ("compile all_reduce -o x --arch sm_61", &["sm_61", "sm_70"]),
    ("compile all_reduce -o x --ranks 2..65", &["--ranks 2..65", "64"]),
    ("compile all_reduce -o x --min 1M --max 1K", &["--min 1M", "--max 1K"]),
    ("compile broadcast -o x --root 2", &["--root 2", "0 to 1"]),
    ("compile all_reduce -o x --alignment 3", &["--alignment", "16, 8, 4, 2 or 1"]),
    ("compile all_reduce -o x --ranks-per-gpu 4", &["--ranks-per-gpu 4"]),
    ("compile all_reduce -o x --ranks-per-gpu 2 --one-gpu", &["--one-gpu"]),
    ("compile all_reduce --sources -o .", &["no bundle"]),
    ("run all_reduce --bundle x", &["--bundle", "--device cuda"]),
    ("run all_reduce --one-gpu --bundle x", &["--bundle", "bundle x"]),
    ("run all_reduce --device cuda --bundle missing", &["--bundle", "bundle missing"]),
    ("show . --ranks 2", &["--ranks", "bundle"]),
    ("show .", &["manifest"]),
    ("completions tcsh", &["tcsh"]),
];

/// A test for each refused command line, and more.
pub(crate) fn trials() -> Vec<Trial> {
    let refused = REFUSED
        .iter()
        .map(|&(line, named)| Trial::test(format!("refused::{line}"), move || refused(line, named)));
    let more = [
        Trial::test("arguments::help_has_an_example", help_has_an_example),
        Trial::test("arguments::help_and_version_are_results", help_and_version_are_results),
        Trial::test("arguments::text_that_is_no_utf8_is_refused", text_that_is_no_utf8_is_refused),
        Trial::test("arguments::settings_are_refused_by_name", settings_are_refused_by_name),
        Trial::test(
            "arguments::a_launcher_that_contradicts_is_refused",
            a_launcher_that_contradicts_is_refused,
        ),
        Trial::test("arguments::completions_and_manual_pages", completions_and_manual_pages),
        Trial::test("arguments::every_flag_is_documented", every_flag_is_documented),
    ];
    refused.chain(more).collect()
}

fn refused(line: &str, named: &[&str]) -> Result<(), Failed> {
    let done = run(line.split_whitespace());
    let missing: Vec<_> = named.iter().filter(|&&name| !done.stderr.contains(name)).collect();
    if done.status == 2 && done.stdout.is_empty() && missing.is_empty() {
        return Ok(());
    }
    let (status, stdout, stderr) = (done.status, done.stdout, done.stderr);
    Err(format!("status {status}, does not name {missing:?}\n--- stdout\n{stdout}--- stderr\n{stderr}")
        .into())
}

const COMMANDS: [&str; 11] =
    ["run", "plan", "simulate", "expand", "fmt", "verify", "lower", "compile", "show", "completions", "man"];

fn help_has_an_example() -> Result<(), Failed> {
    for command in COMMANDS {
        let done = run([command, "--help"]);
        let example = format!("\n  ringsmith {command} ");
        if done.status != 0 || !done.stdout.contains(&example) || !done.stderr.is_empty() {
            return Err(format!("{command}: {}", done.stdout).into());
        }
    }
    Ok(())
}

fn help_and_version_are_results() -> Result<(), Failed> {
    for flag in ["--help", "--version", "-V"] {
        let done = run([flag]);
        assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{flag}");
        assert!(done.stdout.contains("ringsmith"), "{flag}: {}", done.stdout);
        assert!(!done.stdout.contains('\x1b'), "{flag} is coloured in a pipe");
    }
    Ok(())
}

fn text_that_is_no_utf8_is_refused() -> Result<(), Failed> {
    let done = run_with(["verify", "-"], b"program @x(n: ranks) {\n\xff\n");
    assert_eq!((done.status, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("standard input") && done.stderr.contains("line 2"), "{}", done.stderr);
    let escape = run_with(["verify", "-"], b"program \x1b[31m@x\n");
    assert!(escape.status == 2 && !escape.stderr.contains('\x1b'), "{}", escape.stderr);
    Ok(())
}

fn settings_are_refused_by_name() -> Result<(), Failed> {
    for (name, value) in [("RINGSMITH_SLOTS", "many"), ("NCCL_ALGO", "ringg"), ("RINGSMITH_TIMEOUT_S", "0")] {
        let mut command = crate::program::command(["run", "all_reduce"]);
        let done = crate::program::Done::from(command.env(name, value).output()?);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{name}");
        assert!(done.stderr.contains(name) && done.stderr.contains(value), "{name}: {}", done.stderr);
    }
    Ok(())
}

fn a_launcher_that_contradicts_is_refused() -> Result<(), Failed> {
    let started =
        [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
    let mut command = crate::program::command(["run", "all_reduce", "--ranks", "2"]);
    let done = crate::program::Done::from(command.envs(started).output()?);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("--ranks 2") && done.stderr.contains('4'), "{}", done.stderr);
    Ok(())
}

fn completions_and_manual_pages() -> Result<(), Failed> {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = run(["completions", shell]);
        assert_eq!(done.status, 0, "{shell}");
        assert!(done.stdout.contains("warmup") && done.stdout.contains("verify"), "{shell}");
    }
    let folder = Folder::new("man");
    let done = run(["man".as_ref(), folder.0.as_os_str()]);
    assert_eq!((done.status, done.stdout.as_str()), (0, ""));
    for command in COMMANDS {
        let page = std::fs::read_to_string(folder.0.join(format!("ringsmith-{command}.1")))?;
        assert!(page.contains(".TH") && page.contains("Example"), "{command}");
    }
    Ok(())
}

/// docs/cli.md has every command and every flag that the help of a command lists.
fn every_flag_is_documented() -> Result<(), Failed> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md"))?;
    for command in COMMANDS {
        let section = page
            .split("\n## ")
            .find(|section| section.starts_with(&format!("`{command}")))
            .ok_or_else(|| format!("docs/cli.md has no section `{command}`"))?;
        let help = run([command, "--help"]).stdout;
        let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let flags = words.filter(|word| word.starts_with("--") && word.len() > 2 && *word != "--help");
        // Examples may show another command's flags.
        let listed = help.split("\nExample").next().unwrap_or_default();
        for flag in flags.filter(|flag| listed.contains(*flag)) {
            if !section.contains(&format!("`{flag}")) && !section.contains(&format!("/{flag}")) {
                return Err(format!("docs/cli.md does not say what `{command} {flag}` does").into());
            }
        }
    }
    Ok(())
}
