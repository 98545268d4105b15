//! What messages quote of the user's: on one line, short, and with nothing in it that a terminal obeys. And the
//! statuses that go with them.

use crate::program::{Done, Folder, command, limited, run};
use libtest_mimic::{Failed, Trial};

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("quotes::arguments_are_short_and_plain", arguments_are_short_and_plain),
        Trial::test("quotes::variables_and_files_are_plain", variables_and_files_are_plain),
        Trial::test("quotes::numbers_earn_no_advice", numbers_earn_no_advice),
        Trial::test("quotes::a_file_that_cannot_be_read_has_a_row", a_file_that_cannot_be_read_has_a_row),
        Trial::test("quotes::endless_files_are_not_read_far", endless_files_are_not_read_far),
        Trial::test("quotes::one_code_has_one_status", one_code_has_one_status),
        Trial::test("quotes::a_failed_write_leaves_the_old_file", a_failed_write_leaves_the_old_file),
        Trial::test("quotes::memory_that_is_not_to_be_had", memory_that_is_not_to_be_had),
        Trial::test("quotes::the_examples_are_proved", the_examples_are_proved),
    ]
}

fn arguments_are_short_and_plain() -> Result<(), Failed> {
    let long = "x".repeat(100_000);
    let escape = "a\x1b[31m\nb";
    for value in [long.as_str(), escape] {
        for line in [
            vec![value],
            vec!["run", value],
            vec!["run", "all_reduce", value],
            vec!["run", "all_reduce", "-b", value],
            vec!["run", "all_reduce", "-n", value],
            vec!["run", "all_reduce", "--dtype", value],
            vec!["run", "all_reduce", "--algo", value],
            vec!["run", "all_reduce", "--ranks", value],
            vec!["run", "all_reduce", "--root", value],
            vec!["run", "all_reduce", "--set", value],
            vec!["plan", "all_reduce", "--proto", value],
            vec!["verify", "--ranks", value, "ring2.sched"],
        ] {
            let done = run(&line);
            let first: Vec<&str> = line.iter().map(|word| &word[..word.len().min(10)]).collect();
            assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{first:?}");
            assert!(done.stderr.len() < 2000, "{first:?}: {} bytes", done.stderr.len());
            assert!(!done.stderr.contains('\x1b'), "{first:?}: {:?}", done.stderr);
        }
    }
    Ok(())
}

fn variables_and_files_are_plain() -> Result<(), Failed> {
    let done = Done::from(command(["run", "all_reduce"]).env("RINGSMITH_SLOTS", "\x1b[31m\n8").output()?);
    assert!(done.stderr.contains("RINGSMITH_SLOTS=\\u{1b}[31m\\n8 (environment)"), "{:?}", done.stderr);
    let folder = Folder::new("names");
    let file = folder.file("two\nlines\x1b[31m.sched", "program");
    let missing = folder.0.join("none\nhere");
    for path in [file, missing] {
        let name = path.to_string_lossy();
        for line in
            [vec!["verify", &name], vec!["run", "all_reduce", "--schedule", &name], vec!["fmt", &name]]
        {
            let done = run(&line);
            assert_eq!(done.status, 2, "{line:?}: {}", done.stderr);
            let told =
                done.stderr.contains("two\\nlines\\u{1b}[31m.sched") || done.stderr.contains("none\\nhere");
            assert!(told && !done.stderr.contains('\x1b'), "{line:?}: {:?}", done.stderr);
        }
    }
    Ok(())
}

fn numbers_earn_no_advice() -> Result<(), Failed> {
    for line in ["run -1", "run all_reduce -1", "run all_reduce --op -1", "plan all_reduce --dtype -1"] {
        let done = run(line.split(' '));
        assert!(done.status == 2 && done.stderr.contains("'-1'"), "{line}: {}", done.stderr);
        assert!(!done.stderr.contains("tip:"), "{line}: {}", done.stderr);
    }
    Ok(())
}

fn a_file_that_cannot_be_read_has_a_row() -> Result<(), Failed> {
    let line =
        ["verify", "--json", "--ranks", "3", "missing.sched", ".", "ring2.sched", "ring_all_reduce.sched"];
    let done = run(line);
    assert_eq!((done.status, done.stderr.as_str()), (2, ""));
    let rows: Vec<serde_json::Value> =
        done.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(rows.len(), 4, "{}", done.stdout);
    for (row, (file, said)) in
        rows.iter().zip([("missing.sched", "cannot read"), (".", "folder"), ("ring2.sched", "2 ranks")])
    {
        let told = &row["diagnostics"][0];
        assert_eq!(
            (&row["file"], &row["ok"], &row["ranks"]),
            (&file.into(), &false.into(), &().into()),
            "{row}"
        );
        assert!(told["code"].is_null() && told["line"].is_null() && told["column"].is_null(), "{row}");
        assert!(told["message"].as_str().is_some_and(|message| message.contains(said)), "{row}");
    }
    assert_eq!(rows[3]["ok"], true);
    Ok(())
}

fn endless_files_are_not_read_far() -> Result<(), Failed> {
    // Far less memory than the largest schedule has bytes.
    let done = limited("ulimit -v 400000", ["verify", "/dev/zero"]);
    assert_eq!(done.status, 2, "{}", done.stderr);
    assert!(done.stderr.contains("/dev/zero is larger than 16777216 bytes"), "{}", done.stderr);
    // A schedule may be longer than a program.
    let folder = Folder::new("long");
    let flat = run("expand ring_all_reduce.sched --ranks 2".split(' ')).stdout;
    let file = folder.file("long.sched", flat + &"// as long as it likes to be\n".repeat(1 << 20));
    let done = run(["fmt", "--check", &file.to_string_lossy()]);
    assert!(done.status < 2, "{}: {}", done.status, done.stderr);
    Ok(())
}

fn one_code_has_one_status() -> Result<(), Failed> {
    let text = "program @p(n: ranks) {
  collective all_reduce(sum)
  chunks n
  buffer data: inout[n]
  lane r.0 for r in 0..n {
    copy data[n / r - 1] -> data[0]
  }
}
";
    let folder = Folder::new("status");
    let file = folder.file("zero.sched", text);
    let file = file.to_string_lossy();
    for line in [
        vec!["verify", &file],
        vec!["show", &file],
        vec!["expand", &file, "--ranks", "2"],
        vec!["lower", &file, "--ranks", "2", "--bytes", "8", "--dtype", "int8"],
        vec!["run", "all_reduce", "--schedule", &file],
    ] {
        let done = run(&line);
        assert!(done.stderr.contains("E0304"), "{line:?}: {}", done.stderr);
        assert_eq!(done.status, 1, "{line:?}");
    }
    Ok(())
}

fn a_failed_write_leaves_the_old_file() -> Result<(), Failed> {
    let folder = Folder::new("whole");
    let file = folder.file("old.sched", "the old text");
    let plan = ["plan", "all_reduce", "-o", &file.to_string_lossy()];
    // By itself the limit would end the program by a signal.
    for limits in ["trap '' XFSZ; ulimit -f 0", "ulimit -f 0"] {
        let done = limited(limits, plan);
        assert!(done.status == 2 && done.stderr.contains("old.sched"), "{}: {}", done.status, done.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file)?, "the old text");
    let page = folder.file("ringsmith.1", "the old page");
    let done = limited("trap '' XFSZ; ulimit -f 0", ["man", &folder.0.to_string_lossy()]);
    assert_eq!(done.status, 2, "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(&page)?, "the old page");
    assert_eq!(std::fs::read_dir(&folder.0)?.count(), 2, "nothing half-written is left");
    assert_eq!(run(plan).status, 0);
    assert!(std::fs::read_to_string(&file)?.starts_with("schedule "));
    assert_eq!(run(["man", &folder.0.to_string_lossy()]).status, 0);
    assert!(std::fs::read_to_string(&page)?.contains(".TH"));
    assert!(folder.0.join("ringsmith-verify.1").is_file());
    Ok(())
}

fn memory_that_is_not_to_be_had() -> Result<(), Failed> {
    let done = limited("ulimit -v 500000", "run all_reduce -b 1G -e 1G -n 1".split(' '));
    assert_eq!((done.status, done.stdout.as_str()), (3, ""), "{}", done.stderr);
    assert!(done.stderr.contains("--max: 1073741824 bytes of memory"), "{}", done.stderr);
    Ok(())
}

fn the_examples_are_proved() -> Result<(), Failed> {
    // The command of examples/README.md.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/schedules");
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    let done = run([std::ffi::OsStr::new("verify")].into_iter().chain(files.iter().map(|f| f.as_os_str())));
    assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    Ok(())
}
