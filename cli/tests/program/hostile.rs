//! What people hand the program by mistake or on purpose: schedules that need more slots than there are,
//! lines without end, settings that fit nothing, files that are none. Each ends with its status and a
//! message that says where to look, before any rank has been started.

use crate::program::{Done, Folder, command, limited, run, run_with};
use libtest_mimic::{Failed, Trial};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("hostile::too_few_slots_are_shown_in_the_text", too_few_slots_are_shown_in_the_text),
        Trial::test("hostile::more_slots_make_it_right", more_slots_make_it_right),
        Trial::test("hostile::endless_lines_are_cut", endless_lines_are_cut),
        Trial::test("hostile::slices_of_lanes_are_for_other_devices", slices_of_lanes_are_for_other_devices),
        Trial::test("hostile::a_flat_schedule_brings_ranks_and_root", a_flat_schedule_brings_ranks_and_root),
        Trial::test("hostile::settings_that_fit_nothing", settings_that_fit_nothing),
        Trial::test("hostile::id_files_of_other_sizes", id_files_of_other_sizes),
        Trial::test("hostile::a_list_is_about_its_collective", a_list_is_about_its_collective),
        Trial::test("hostile::proofs_show_progress_on_a_terminal", proofs_show_progress_on_a_terminal),
        Trial::test("hostile::what_is_no_schedule_is_refused", what_is_no_schedule_is_refused),
        Trial::test("hostile::full_devices_are_reported", full_devices_are_reported),
        Trial::test("hostile::a_schedule_may_come_from_a_pipe", a_schedule_may_come_from_a_pipe),
        Trial::test("hostile::ranks_share_no_standard_input", ranks_share_no_standard_input),
        Trial::test("hostile::pipes_without_another_end", pipes_without_another_end),
        Trial::test("hostile::one_gpu_is_no_cpu", one_gpu_is_no_cpu),
        Trial::test("hostile::too_few_open_files_are_told_once", too_few_open_files_are_told_once),
        Trial::test(
            "hostile::a_size_that_cannot_be_is_no_refutation",
            a_size_that_cannot_be_is_no_refutation,
        ),
        Trial::test("hostile::every_bad_line_of_a_file_is_told", every_bad_line_of_a_file_is_told),
        Trial::test("hostile::a_launcher_of_another_size_is_named", a_launcher_of_another_size_is_named),
    ]
}

/// Read once, by the first process: a pipe gives its text to one reader.
fn a_schedule_may_come_from_a_pipe() -> Result<(), Failed> {
    let text = std::fs::read(crate::program::samples().join("ring_all_reduce.sched"))?;
    let line = "run all_reduce --ranks 3 -b 64 -e 64 -n 1 --schedule";
    // Longer than a socket between processes holds.
    let long = [&text[..], b"\n// ", &vec![b'x'; 4 << 20]].concat();
    for text in [&text, &long] {
        let done = run_with(line.split(' ').chain(["-"]), text);
        assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{}", done.stdout);
        assert!(done.stdout.contains("# Wrong elements: 0 OK"), "{}", done.stdout);
    }
    let folder = Folder::new("schedule-pipe");
    let pipe = folder.pipe("pipe");
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, text)
    });
    let done = run(line.split(' ').map(OsStr::new).chain([pipe.as_os_str()]));
    writer.join().expect("it writes")?;
    assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    assert!(done.stdout.contains("# Wrong elements: 0 OK"), "{}", done.stdout);
    Ok(())
}

fn ranks_share_no_standard_input() -> Result<(), Failed> {
    let line = "run all_reduce --schedule - -e 8 -n 1";
    let by_hand = run_with(line.split(' ').chain("--rank 0 --world 2 --root 127.0.0.1:9".split(' ')), b"");
    let mut launched = command(line.split(' '));
    launched.envs([("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]);
    for done in [by_hand, launched.output()?.into()] {
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{}", done.stderr);
        assert!(done.stderr.contains("cannot share standard input; name a file"), "{}", done.stderr);
    }
    Ok(())
}

/// Nobody reads or writes them: an ordinary open would wait for ever.
fn pipes_without_another_end() -> Result<(), Failed> {
    let folder = Folder::new("pipes");
    let pipe = folder.pipe("pipe").to_string_lossy().into_owned();
    let written = "it is a pipe that nobody writes to";
    let read = "it is a pipe that nobody reads";
    for (line, why) in [
        ("verify PIPE", written),
        ("run all_reduce --schedule PIPE", written),
        ("topo --topo PIPE", written),
        ("plan all_reduce -o PIPE", read),
        ("topo --topo dgx1v --svg PIPE", read),
        ("simulate all_reduce --trace PIPE", read),
    ] {
        let done = run(line.replace("PIPE", &pipe).split(' '));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(&format!("{pipe}: {why}")), "{line}: {}", done.stderr);
    }
    for (name, why) in [
        ("RINGSMITH_CONF_FILE", "it is a pipe, and an ordinary file is needed"),
        ("RINGSMITH_DEBUG_FILE", read),
    ] {
        let done = Done::from(command(["run", "all_reduce"]).env(name, &pipe).output()?);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{name}: {}", done.stderr);
        assert!(
            done.stderr.contains(&format!("{name}={pipe}")) && done.stderr.contains(why),
            "{}",
            done.stderr
        );
    }
    Ok(())
}

fn one_gpu_is_no_cpu() -> Result<(), Failed> {
    let done = run("run all_reduce --one-gpu --device cpu".split(' '));
    assert_eq!(done.status, 2, "{}", done.stderr);
    assert!(done.stderr.contains("contradict each other"), "{}", done.stderr);
    Ok(())
}

fn too_few_slots_are_shown_in_the_text() -> Result<(), Failed> {
    let verified = run("verify ahead.sched --ranks 2".split(' '));
    assert_eq!(verified.status, 1, "{}", verified.stdout);
    for part in ["error[V0501]", "8 slots", "ahead.sched:14:9", "waits for l0.free here"] {
        assert!(verified.stderr.contains(part), "{part}: {}", verified.stderr);
    }
    let json = run("verify ahead.sched --ranks 2 --json".split(' '));
    let row: serde_json::Value = serde_json::from_str(&json.stdout)?;
    let found = &row["diagnostics"][0];
    assert_eq!((&found["code"], &found["line"], &found["column"]), (&"V0501".into(), &14.into(), &9.into()));
    let flat = run("expand ahead.sched --ranks 2".split(' ')).stdout;
    for command in [&["verify", "-"][..], &["show", "-"], &["lower", "-", "--bytes", "1M", "--dtype", "int8"]]
    {
        let done = run_with(command, flat.as_bytes());
        assert_eq!(done.status, 1, "{command:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("V0501") && done.stderr.contains("standard input:"),
            "{command:?}: {}",
            done.stderr
        );
    }
    let ran = run("run all_to_all --schedule ahead.sched".split(' '));
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("ahead.sched:14:9"), "{}", ran.stderr);
    Ok(())
}

fn more_slots_make_it_right() -> Result<(), Failed> {
    let verified = run("verify ahead.sched --ranks 2..3 --slots 16".split(' '));
    assert_eq!((verified.status, verified.stderr.as_str()), (0, ""), "{}", verified.stdout);
    assert_eq!(run("show ahead.sched --ranks 2 --slots 10".split(' ')).status, 0);
    let mut ran = command("run all_to_all --schedule ahead.sched -b 1K -e 1K -n 1".split(' '));
    let ran = Done::from(ran.env("RINGSMITH_SLOTS", "16").output()?);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    Ok(())
}

fn endless_lines_are_cut() -> Result<(), Failed> {
    let megabytes = "x".repeat(3 << 20);
    let texts = [
        format!("program @{megabytes}(n: ranks) {{ ? }}\n"),
        format!("program @x(n: ranks) {{\n  collective {megabytes}\n}}\n"),
        format!("program @x(n: ranks) {{\n  chunks {}\n}}\n", "1 + ".repeat(1 << 20)),
        format!("{megabytes} {megabytes}"),
        "?".repeat(3 << 20),
        format!("kernel_plan @{megabytes} {megabytes}"),
    ];
    for (index, text) in texts.iter().enumerate() {
        for command in [&["verify", "-"][..], &["verify", "-", "--json"], &["show", "-"], &["fmt", "-"]] {
            let done = run_with(command, text.as_bytes());
            assert_eq!(done.status, 2, "text {index}, {command:?}");
            let len = done.stderr.len() + done.stdout.len();
            assert!(len > 0 && len < 100_000, "text {index}, {command:?}: {len} bytes");
        }
    }
    let shown = run_with(["verify", "-"], texts[1].as_bytes()).stderr;
    assert!(shown.contains("standard input:2:14") && shown.contains('…'), "{shown}");
    Ok(())
}

fn slices_of_lanes_are_for_other_devices() -> Result<(), Failed> {
    let folder = Folder::new("lanes");
    let samples = crate::program::samples();
    for (name, after) in [("ring2.sched", "  chunks 2\n"), ("ring_all_reduce.sched", "  chunks n\n")] {
        let text = std::fs::read_to_string(samples.join(name))?;
        let with_lanes = text.replacen(after, &format!("{after}  lanes 4\n"), 1);
        assert_ne!(text, with_lanes);
        let file = folder.file(name, with_lanes);
        let file = file.to_string_lossy();
        assert_eq!(run(["verify", &file]).status, 0, "{name}: it is right, for other devices");
        let done = run(["run", "all_reduce", "--schedule", &file]);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{name}");
        assert!(
            done.stderr.contains("lanes 4") && done.stderr.contains("CPU") && !done.stderr.contains("rank 0"),
            "{name}: {}",
            done.stderr
        );
    }
    Ok(())
}

fn a_flat_schedule_brings_ranks_and_root() -> Result<(), Failed> {
    let folder = Folder::new("flat");
    let flat = run("expand tree_broadcast.sched --ranks 3 --root 1".split(' ')).stdout;
    let file = folder.file("three.sched", flat);
    let file = file.to_string_lossy();
    let start = ["run", "broadcast", "--schedule", &file, "-b", "64", "-e", "64", "-n", "1", "--json"];
    let done = run(start);
    assert_eq!(done.status, 0, "{}", done.stderr);
    let row: serde_json::Value = serde_json::from_str(done.stdout.lines().next().unwrap_or_default())?;
    assert_eq!((&row["ranks"], &row["root"], &row["wrong"]), (&3.into(), &1.into(), &0.into()), "{row}");
    for (more, named) in
        [(["-r", "0"], "--root 0"), (["-r", "all"], "--root all"), (["--ranks", "2"], "3 ranks")]
    {
        let done = run(start.iter().chain(&more));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{more:?}");
        assert!(done.stderr.contains(named), "{more:?}: {}", done.stderr);
    }
    Ok(())
}

fn settings_that_fit_nothing() -> Result<(), Failed> {
    let folder = Folder::new("settings");
    let missing = folder.0.join("missing").join("log").to_string_lossy().into_owned();
    let itself = folder.0.to_string_lossy().into_owned();
    let cases = [
        ("RINGSMITH_DEBUG_FILE", missing.as_str(), "cannot open the log"),
        ("RINGSMITH_DEBUG_FILE", itself.as_str(), "cannot open the log"),
        ("RINGSMITH_SOCKET_IFNAME", "=nope0", "lo"),
        ("RINGSMITH_ALGO", "all_reduce:bruck", "rabenseifner"),
        ("RINGSMITH_ALGO", "ring;;", "part 2"),
        ("RINGSMITH_NET", "ib", "leave it unset or say socket"),
        ("RINGSMITH_RUN_DIR", "/proc/version", "folder"),
        ("RINGSMITH_CACHE_DIR", "/proc/version", "folder"),
        ("RINGSMITH_TUNING", "/proc/version", "`ringsmith tune`"),
    ];
    for (name, value, named) in cases {
        let done = Done::from(command(["run", "all_reduce", "--ranks", "3"]).env(name, value).output()?);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{name}: {}", done.stderr);
        for part in [name, value, named] {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
        assert_eq!(done.stderr.matches(name).count(), 1, "said once: {}", done.stderr);
    }
    Ok(())
}

fn id_files_of_other_sizes() -> Result<(), Failed> {
    let folder = Folder::new("ids");
    let started = |file: &Path| {
        let mut command = command("run all_gather --rank 1 --world 2 --id-file".split(' '));
        command.arg(file).env("RINGSMITH_INIT_TIMEOUT_S", "20").output().map(Done::from)
    };
    for (len, said) in [(100 << 10, "102400 bytes"), (129, "129 bytes"), (0, "0 bytes")] {
        let done = started(&folder.file("id", vec![b'x'; len]))?;
        assert_eq!((done.status, done.stdout.as_str()), (2, ""));
        assert!(done.stderr.contains(said) && done.stderr.contains("128"), "{}", done.stderr);
    }
    let done = started(&folder.0)?;
    assert!(done.status == 2 && done.stderr.contains("folder"), "{}", done.stderr);
    let done = started(&folder.pipe("pipe"))?;
    assert!(done.status == 2 && done.stderr.contains("no ordinary file"), "{}", done.stderr);
    Ok(())
}

fn a_list_is_about_its_collective() -> Result<(), Failed> {
    let done = run("run all_reduce --algo ring --ranks 2 -b 64 -e 64 -n 1 --json".split(' '));
    assert_eq!((done.status, done.stderr.as_str()), (0, ""), "nothing is said of barriers");
    assert!(done.stdout.contains("\"plan\":\"ring_all_reduce "), "{}", done.stdout);
    let line = "run all_reduce --algo ring --proto simple --channels 2 -b 64K -e 64K -n 1 --json";
    let done = run(line.split(' '));
    assert!(done.stdout.contains("\"ring_all_reduce simple, 2 channels\""), "{}", done.stdout);
    Ok(())
}

fn proofs_show_progress_on_a_terminal() -> Result<(), Failed> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let line = ["verify", "ring_all_reduce.sched", "--ranks", "64"];
    let terminal = OpenOptions::new().read(true).write(true).open(path)?;
    let mut child = command(line).stderr(Stdio::from(terminal)).spawn()?;
    let mut shown = Vec::new();
    // The other end of a terminal reports an error, not an end, when the last writer has gone.
    let _ = File::from(master).read_to_end(&mut shown);
    assert!(child.wait()?.success());
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("ring_all_reduce.sched for 64 ranks: proving the kernel plan"), "{shown:?}");
    assert!(shown.ends_with("\r\x1b[K"), "the line is taken away: {shown:?}");
    let piped = run(line);
    assert_eq!((piped.status, piped.stderr.as_str()), (0, ""));
    Ok(())
}

fn what_is_no_schedule_is_refused() -> Result<(), Failed> {
    let folder = Folder::new("garbage");
    let texts: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("space", b" \n\n"),
        ("comment", b"// only a comment"),
        ("zeros", &[0; 4096]),
        ("binary", b"\x7fELF\x02\x01\x01\xff\xfe"),
        ("emoji", "\u{1f980}\u{202e}program".as_bytes()),
    ];
    for (name, text) in texts {
        let file = folder.file(name, text);
        let file = file.to_string_lossy();
        let lines = [
            vec!["verify", &file],
            vec!["show", &file],
            vec!["fmt", &file],
            vec!["expand", &file, "--ranks", "2"],
            vec!["lower", &file, "--ranks", "2", "--bytes", "8", "--dtype", "int8"],
            vec!["run", "all_reduce", "--schedule", &file],
        ];
        for line in lines {
            let done = run(&line);
            assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line:?}: {}", done.stderr);
            assert!(done.stderr.contains("error") && !done.stderr.contains("panicked"), "{}", done.stderr);
            assert!(done.stderr.contains(name), "{line:?} names the file: {}", done.stderr);
        }
        assert_eq!(std::fs::read(folder.0.join(name))?, text, "fmt leaves it alone");
    }
    Ok(())
}

fn full_devices_are_reported() -> Result<(), Failed> {
    let lines =
        ["verify ring2.sched", "expand ring_all_reduce.sched --ranks 2", "completions bash", "--help"];
    for line in lines {
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        let mut command = command(line.split(' '));
        let done = Done::from(command.stdout(Stdio::from(full)).spawn()?.wait_with_output()?);
        assert_eq!(done.status, 3, "{line}: {}", done.stderr);
        assert_eq!(done.stderr.matches("standard output").count(), 1, "{line}: {}", done.stderr);
    }
    let done = run(["plan", "all_reduce", "-o", "/dev/full"]);
    assert!(done.status == 2 && done.stderr.contains("/dev/full"), "{}: {}", done.status, done.stderr);
    Ok(())
}

fn too_few_open_files_are_told_once() -> Result<(), Failed> {
    let done = limited("ulimit -n 40", "run all_reduce --ranks 40 -e 8 -n 1".split(' '));
    assert_eq!((done.status, done.stdout.as_str()), (3, ""), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    for part in ["40 ranks", "open files", "is 40", "ulimit -n", "--ranks"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    // A rank that a launcher or somebody else has started is told the same.
    let done = limited("ulimit -n 40", "run all_reduce --rank 0 --world 40 --root 127.0.0.1:9".split(' '));
    assert_eq!((done.status, done.stdout.as_str()), (3, ""), "{}", done.stderr);
    assert!(done.stderr.contains("the limit on open files is 40"), "{}", done.stderr);
    Ok(())
}

fn a_size_that_cannot_be_is_no_refutation() -> Result<(), Failed> {
    let text = "program @p(n: ranks) {
  collective all_reduce(sum)
  chunks n
  buffer data: inout[n]
  buffer inbox: scratch[n - 9]
}
";
    let folder = Folder::new("size");
    let file = folder.file("size.sched", text);
    let file = file.to_string_lossy();
    let lines = [
        vec!["verify", &file],
        vec!["show", &file],
        vec!["expand", &file, "--ranks", "2"],
        vec!["lower", &file, "--ranks", "2", "--bytes", "8", "--dtype", "int8"],
        vec!["run", "all_reduce", "--schedule", &file],
    ];
    for line in lines {
        let done = run(&line);
        assert!(
            done.status == 2 && done.stderr.contains("E0310"),
            "{line:?}: {} {}",
            done.status,
            done.stderr
        );
        assert!(!done.stdout.contains("refuted"), "{line:?}: {}", done.stdout);
    }
    let mut started = command(["run", "all_reduce", "--schedule", &file, "--rank", "0", "--world", "1"]);
    let done = Done::from(started.args(["--id-file"]).arg(folder.0.join("id")).output()?);
    assert!(done.status == 2 && done.stderr.contains("E0310"), "by hand: {} {}", done.status, done.stderr);
    Ok(())
}

fn every_bad_line_of_a_file_is_told() -> Result<(), Failed> {
    let folder = Folder::new("conf");
    let file = folder.file("conf", "NCCL_ALGO\nNCCL_PROTO=fast\n# fine\nRINGSMITH_SLOTS=1\njunk\n");
    let name = file.to_string_lossy();
    let mut command = command(["run", "all_reduce"]);
    let done = Done::from(command.env("RINGSMITH_CONF_FILE", &file).output()?);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{}", done.stderr);
    for (text, line) in [("NCCL_ALGO", 1), ("NCCL_PROTO=fast", 2), ("RINGSMITH_SLOTS=1", 4), ("junk", 5)] {
        let told = format!("{text} ({name}:{line}): ");
        assert!(done.stderr.contains(&told), "{told}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("RINGSMITH_CONF_FILE"), "{}", done.stderr);
    Ok(())
}

fn a_launcher_of_another_size_is_named() -> Result<(), Failed> {
    let started =
        [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "3")];
    let mut command = command(["run", "all_reduce", "--schedule", "ring2.sched"]);
    let done = Done::from(command.envs(started).output()?);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{}", done.stderr);
    for part in ["Open MPI has started 3 ranks", "ring2.sched", "2 ranks"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("--ranks"), "{}", done.stderr);
    Ok(())
}
