//! Commands that write files, or read many.

use crate::program::{Folder, run, run_with, samples};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("fmt::rewrites_only_what_differs", rewrites_only_what_differs),
        Trial::test("fmt::leaves_broken_files_alone_and_goes_on", leaves_broken_files_alone_and_goes_on),
        Trial::test("fmt::keeps_links_and_permissions", keeps_links_and_permissions),
        Trial::test("verify::many_files_have_the_worst_status", many_files_have_the_worst_status),
        Trial::test("verify::every_row_is_one_object", every_row_is_one_object),
        Trial::test("expand::prints_what_show_and_verify_read", prints_what_show_and_verify_read),
        Trial::test("lower::and_show_refuse_what_is_refuted", lower_and_show_refuse_what_is_refuted),
        Trial::test("lower::kernel_plans_are_for_show_and_simulate", kernel_plans_are_for_show_and_simulate),
        Trial::test("written::standard_output_has_one_text", standard_output_has_one_text),
        Trial::test("written::two_flags_name_two_files", two_flags_name_two_files),
        Trial::test("written::what_is_read_is_not_written", what_is_read_is_not_written),
        Trial::test("read::standard_input_is_read_once", standard_input_is_read_once),
        Trial::test("plan::writes_a_schedule_that_verifies", writes_a_schedule_that_verifies),
        Trial::test("plan::many_ranks_are_proved_by_instances", many_ranks_are_proved_by_instances),
    ]
}

fn messy() -> Vec<u8> {
    fs::read(samples().join("messy.sched")).expect("a sample")
}

fn rewrites_only_what_differs() -> Result<(), Failed> {
    let folder = Folder::new("fmt");
    let path = folder.file("messy.sched", messy());
    let check = run(["fmt".as_ref(), "--check".as_ref(), path.as_os_str()]);
    assert_eq!((check.status, check.stdout), (1, format!("{}\n", path.display())));
    assert_eq!(fs::read(&path)?, messy(), "--check changes nothing");
    assert_eq!(run(["fmt".as_ref(), path.as_os_str()]).status, 0);
    let once = fs::read(&path)?;
    let piped = run_with(["fmt", "-"], &messy());
    assert_eq!((piped.status, piped.stdout.as_bytes()), (0, &once[..]));
    let before = fs::metadata(&path)?.modified()?;
    let again = run(["fmt".as_ref(), path.as_os_str()]);
    assert_eq!((again.status, fs::metadata(&path)?.modified()?), (0, before), "nothing is left to change");
    assert_eq!(run(["fmt".as_ref(), "--check".as_ref(), path.as_os_str()]).status, 0);
    assert_eq!(fs::read_dir(&folder.0)?.count(), 1, "no other file is left");
    Ok(())
}

fn leaves_broken_files_alone_and_goes_on() -> Result<(), Failed> {
    let folder = Folder::new("fmt-broken");
    let broken = folder.file("a.sched", "program @x(n: ranks) {\n");
    let good = folder.file("b.sched", messy());
    let done = run(["fmt".as_ref(), broken.as_os_str(), "nowhere.sched".as_ref(), good.as_os_str()]);
    assert_eq!(done.status, 2);
    assert!(done.stderr.contains("P0107") && done.stderr.contains("nowhere.sched"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(&broken)?, "program @x(n: ranks) {\n");
    assert_ne!(fs::read(&good)?, messy());
    Ok(())
}

fn keeps_links_and_permissions() -> Result<(), Failed> {
    let folder = Folder::new("fmt-link");
    let path = folder.file("real.sched", messy());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
    let link = folder.0.join("link.sched");
    symlink(&path, &link)?;
    assert_eq!(run(["fmt".as_ref(), link.as_os_str()]).status, 0);
    assert!(fs::symlink_metadata(&link)?.is_symlink());
    assert_ne!(fs::read(&path)?, messy());
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o640);
    Ok(())
}

fn many_files_have_the_worst_status() -> Result<(), Failed> {
    let status = |files: &[&str]| run(["verify", "--ranks", "2..3"].iter().chain(files)).status;
    assert_eq!(status(&["ring_all_reduce.sched", "tree_broadcast.sched"]), 0);
    assert_eq!(status(&["one_inbox.sched", "ring_all_reduce.sched"]), 1);
    assert_eq!(status(&["one_inbox.sched", "broken.sched", "ring_all_reduce.sched"]), 2);
    Ok(())
}

fn every_row_is_one_object() -> Result<(), Failed> {
    let done = run([
        "verify",
        "--json",
        "--ranks",
        "2..3",
        "one_inbox.sched",
        "broken.sched",
        "tree_broadcast.sched",
    ]);
    assert_eq!((done.status, done.stderr.as_str()), (2, ""));
    let rows: Vec<serde_json::Value> =
        done.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let ok: Vec<_> =
        rows.iter().map(|row| (row["file"].as_str(), row["ranks"].as_u64(), row["ok"].as_bool())).collect();
    let (inbox, broken, tree) = (Some("one_inbox.sched"), Some("broken.sched"), Some("tree_broadcast.sched"));
    let (yes, no) = (Some(true), Some(false));
    let expected = [
        (inbox, Some(2), yes),
        (inbox, Some(3), no),
        (broken, None, no),
        (tree, Some(2), yes),
        (tree, Some(3), yes),
    ];
    assert_eq!(ok, expected);
    for diagnostic in rows[1]["diagnostics"].as_array().expect("a list") {
        let keys: Vec<&String> = diagnostic.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["code", "column", "line", "message"]);
    }
    assert_eq!(rows[1]["diagnostics"][0]["code"], "V0301");
    Ok(())
}

fn prints_what_show_and_verify_read() -> Result<(), Failed> {
    let flat = run(["expand", "tree_broadcast.sched", "--ranks", "5", "--root", "3"]);
    assert_eq!((flat.status, flat.stderr.as_str()), (0, ""));
    assert_eq!(run_with(["verify", "-"], flat.stdout.as_bytes()).status, 0);
    assert_eq!(run_with(["fmt", "-"], flat.stdout.as_bytes()).stdout, flat.stdout);
    let shown = run_with(["show", "-"], flat.stdout.as_bytes());
    assert!(shown.status == 0 && shown.stdout.contains("5, root r3"), "{}", shown.stdout);
    let lowered = run_with(["lower", "-", "--bytes", "1M", "--dtype", "bf16"], flat.stdout.as_bytes());
    assert_eq!((lowered.status, lowered.stderr.as_str()), (0, ""));
    let shown = run_with(["show", "-"], lowered.stdout.as_bytes());
    assert!(shown.status == 0 && shown.stdout.contains("proof:      whole"), "{}", shown.stdout);
    Ok(())
}

fn kernel_plans_are_for_show_and_simulate() -> Result<(), Failed> {
    let folder = Folder::new("kernel-plan");
    let plan = folder.file("ring.plan", run("lower ring2.sched --bytes 1K --dtype int8".split(' ')).stdout);
    let plan = plan.to_string_lossy();
    for line in [
        "verify PLAN",
        "lower PLAN --bytes 1K --dtype int8",
        "expand PLAN --ranks 2",
        "fmt PLAN",
        "run all_reduce --schedule PLAN",
    ] {
        let done = run(line.replace("PLAN", &plan).split(' '));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
        let told = "`ringsmith show` proves it, `ringsmith simulate` tells";
        assert!(done.stderr.contains(told), "{line}: {}", done.stderr);
    }
    assert_eq!(run(["show", &plan]).status, 0);
    assert_eq!(run(["simulate", &plan, "--bytes", "1K"]).status, 0);
    Ok(())
}

fn standard_output_has_one_text() -> Result<(), Failed> {
    let plain = run("plan all_reduce --ranks 3".split(' '));
    let done = run("plan all_reduce --ranks 3 -o -".split(' '));
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    assert_eq!(done.stdout, plain.stdout);
    for (line, flag) in [
        ("topo --topo dgx1v --dump -", "--dump -"),
        ("topo --topo dgx1v --svg -", "--svg -"),
        ("simulate all_reduce --trace -", "--trace -"),
        ("simulate all_reduce --html -", "--html -"),
        ("compile all_reduce -o -", "--output -"),
    ] {
        let done = run(line.split(' '));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(flag) && done.stderr.contains("standard output"), "{}", done.stderr);
    }
    assert!(!samples().join("-").exists());
    Ok(())
}

fn two_flags_name_two_files() -> Result<(), Failed> {
    let folder = Folder::new("twice");
    let path = |name: &str| folder.0.join(name).to_string_lossy().into_owned();
    let (new, dotted) = (path("new"), path("./new"));
    let old = folder.file("old", "old").to_string_lossy().into_owned();
    symlink(&old, folder.0.join("link"))?;
    for (line, first, second) in
        [("simulate all_reduce", "--trace", "--html"), ("topo --topo dgx1v", "--dump", "--svg")]
    {
        for (one, other) in [(&new, &new), (&new, &dotted), (&old, &path("link"))] {
            let done = run(line.split(' ').chain([first, one, second, other]));
            assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
            let told = format!("{first} and {second} name one file, {other}");
            assert!(done.stderr.contains(&told), "{}", done.stderr);
        }
        assert_eq!(run(line.split(' ').chain([first, "/dev/null", second, "/dev/null"])).status, 0);
    }
    assert!(!fs::exists(&new)? && fs::read(&old)? == b"old", "nothing is written");
    Ok(())
}

fn what_is_read_is_not_written() -> Result<(), Failed> {
    let folder = Folder::new("lost");
    let text = fs::read(samples().join("ring2.sched"))?;
    let schedule = folder.file("a.sched", &text).to_string_lossy().into_owned();
    let machine = folder.file("a.topo", "");
    let dump = ["topo", "--topo", "dgx1v", "--dump"].map(AsRef::as_ref);
    assert_eq!(run(dump.into_iter().chain([machine.as_os_str()])).status, 0);
    let described = fs::read(&machine)?;
    let machine = machine.to_string_lossy();
    for (line, flag, file) in [
        ("simulate SCHED --trace", "--trace", &*schedule),
        ("simulate SCHED --topo TOPO --html", "--html", &machine),
        ("topo --topo TOPO --svg", "--svg", &machine),
        ("plan all_reduce --topo TOPO -o", "--output", &machine),
    ] {
        let line = line.replace("SCHED", &schedule).replace("TOPO", &machine);
        let done = run(line.split(' ').chain([file]));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
        let told = format!("{flag} {file}: this command reads that file");
        assert!(done.stderr.contains(&told), "{told}: {}", done.stderr);
    }
    assert_eq!((fs::read(&schedule)?, fs::read(&*machine)?), (text, described), "both are as they were");
    Ok(())
}

fn standard_input_is_read_once() -> Result<(), Failed> {
    let text = fs::read(samples().join("ring2.sched"))?;
    for line in ["verify - -", "simulate - --topo -"] {
        let done = run_with(line.split(' '), &text);
        assert_eq!(done.status, 2, "{line}: {}", done.stderr);
        assert!(done.stderr.contains("`-` is given twice"), "{line}: {}", done.stderr);
    }
    Ok(())
}

fn writes_a_schedule_that_verifies() -> Result<(), Failed> {
    let folder = Folder::new("plan");
    for collective in [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "all_to_all",
        "barrier",
    ] {
        let path = folder.0.join(format!("{collective}.sched"));
        let done = run([
            "plan".as_ref(),
            collective.as_ref(),
            "--ranks".as_ref(),
            "3".as_ref(),
            "-o".as_ref(),
            path.as_os_str(),
        ]);
        assert_eq!((done.status, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""), "{collective}");
        assert_eq!(run(["verify".as_ref(), path.as_os_str()]).status, 0, "{collective}");
        assert_eq!(run(["fmt".as_ref(), "--check".as_ref(), path.as_os_str()]).status, 0, "{collective}");
    }
    let explained = run(["plan", "all_reduce", "--ranks", "4", "--explain", "--cores", "4"]);
    assert!(
        explained.status == 0 && explained.stdout.contains("rejected") && explained.stdout.contains("proof")
    );
    Ok(())
}

fn many_ranks_are_proved_by_instances() -> Result<(), Failed> {
    let folder = Folder::new("many");
    let path = folder.0.join("many.sched");
    let line = "plan all_reduce --ranks 8 --nodes 2048 --cores 8";
    let words = line.split(' ').map(AsRef::as_ref);
    let done = run(words.clone().chain(["-o".as_ref(), path.as_os_str()]));
    assert_eq!((done.status, done.stdout.as_str()), (0, ""), "{}", done.stderr);
    let parts = ["proof: by instances", "whole, for 1 to 16 ranks", "for 16384", "and not races"];
    assert!(parts.iter().all(|part| done.stderr.contains(part)), "{}", done.stderr);
    assert!(fs::read_to_string(&path)?.contains("r16383.0"), "the schedule has every rank");
    let explained = run(words.chain(["--explain".as_ref()]));
    assert!(explained.stdout.contains("proof       by instances"), "{}", explained.stdout);
    assert!(!explained.stdout.contains("for 16384 ranks its form"), "{}", explained.stdout);
    Ok(())
}

fn lower_and_show_refuse_what_is_refuted() -> Result<(), Failed> {
    let lowered = run("lower one_inbox.sched --ranks 3 --bytes 1M --dtype float32".split(' '));
    assert_eq!((lowered.status, lowered.stdout.as_str()), (1, ""));
    assert!(
        lowered.stderr.contains("V0301") && lowered.stderr.contains("one_inbox.sched:12"),
        "{}",
        lowered.stderr
    );
    let shown = run("show one_inbox.sched --ranks 2..8".split(' '));
    assert_eq!((shown.status, shown.stderr), (1, lowered.stderr));
    assert!(
        shown.stdout.contains("2 ranks: proved") && shown.stdout.contains("3 ranks: refuted"),
        "{}",
        shown.stdout
    );
    assert!(!shown.stdout.contains("4 ranks"), "{}", shown.stdout);
    Ok(())
}
