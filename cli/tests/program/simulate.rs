//! `simulate`: totals, files that are written, hangs.

use crate::program::{Done, Folder, run, run_with};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::fs;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("simulate::a_ring_comes_close_to_its_links", a_ring_comes_close_to_its_links),
        Trial::test("simulate::a_seed_decides_when_ranks_enter", a_seed_decides_when_ranks_enter),
        Trial::test("simulate::a_trace_has_every_rank_and_lane", a_trace_has_every_rank_and_lane),
        Trial::test("simulate::a_page_loads_nothing_and_escapes", a_page_loads_nothing_and_escapes),
        Trial::test("simulate::time_lines_have_a_bound", time_lines_have_a_bound),
        Trial::test("simulate::a_hang_is_told_with_status_1", a_hang_is_told_with_status_1),
        Trial::test("simulate::a_wrong_plan_is_drawn", a_wrong_plan_is_drawn),
        Trial::test("simulate::machines_without_a_way_are_refused", machines_without_a_way_are_refused),
    ]
}

fn json(done: &Done) -> Result<Value, Failed> {
    match done.status {
        0 => Ok(serde_json::from_str(&done.stdout)?),
        status => Err(format!("status {status}: {}", done.stderr).into()),
    }
}

fn a_ring_comes_close_to_its_links() -> Result<(), Failed> {
    let line = "simulate all_reduce --topo hgx-h100 --bytes 64M --algo ring --json";
    let done = run(line.split(' '));
    let row = json(&done)?;
    assert_eq!((row["ranks"].as_u64(), row["bytes"].as_u64()), (Some(8), Some(64 << 20)));
    // 18 NVLinks of 20.6 GB/s are what each GPU sends over; slots of 128 KiB leave half of that.
    let busbw = row["busbw_gbs"].as_f64().ok_or("busbw_gbs")?;
    assert!((150.0..370.8).contains(&busbw), "{busbw}");
    let links = row["links"].as_array().ok_or("links")?;
    let out = links.iter().find(|link| link["name"] == "g0 to switches").ok_or("g0")?;
    assert_eq!(out["carried"].as_f64(), Some(1.75 * f64::from(64 << 20)));
    let parts = row["critical_path"].as_array().ok_or("critical_path")?;
    let sum: f64 = parts.iter().filter_map(|part| part["us"].as_f64()).sum();
    assert!((sum - row["total_us"].as_f64().ok_or("total_us")?).abs() < 1e-6, "{sum}");
    assert_eq!(run(line.split(' ')).stdout, done.stdout, "the same twice");
    Ok(())
}

fn a_seed_decides_when_ranks_enter() -> Result<(), Failed> {
    let total = |rest: &str| {
        let line = format!("simulate ring_all_reduce.sched --ranks 3 --bytes 1K --json{rest}");
        json(&run(line.split(' '))).map(|row| row["total_us"].as_f64())
    };
    assert_eq!(total(" --seed 7")?, total(" --seed 7")?);
    assert_ne!(total(" --seed 7")?, total(" --seed 8")?);
    assert!(total(" --seed 7 --skew 1000")? > total("")?.map(|us| us + 100.0));
    Ok(())
}

fn a_trace_has_every_rank_and_lane() -> Result<(), Failed> {
    let folder = Folder::new("trace");
    let path = folder.0.join("trace.json").to_string_lossy().into_owned();
    let done = run(["simulate", "ring2.sched", "--bytes", "1M", "--trace", &path]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    let trace: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let events = trace["traceEvents"].as_array().ok_or("events")?;
    let of_phase = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(of_phase("M"), 4, "two ranks with a lane each");
    assert!(of_phase("X") > 100 && of_phase("s") == of_phase("f") && of_phase("s") > 10);
    let is_whole = |event: &&Value| event["ph"] != "X" || event["dur"].as_f64() > Some(0.0);
    assert!(events.iter().all(|event| is_whole(&event)));
    Ok(())
}

fn a_page_loads_nothing_and_escapes() -> Result<(), Failed> {
    let folder = Folder::new("page");
    let topo = folder.file("<script>x&<b>.xml", "");
    let dumped =
        run(["topo".as_ref(), "--topo".as_ref(), "dgx1v".as_ref(), "--dump".as_ref(), topo.as_os_str()]);
    assert_eq!(dumped.status, 0, "{}", dumped.stderr);
    let page = folder.0.join("page.html");
    let flags = ["simulate", "all_reduce", "--bytes", "64K", "--topo"].map(AsRef::as_ref);
    let done = run(flags.into_iter().chain([topo.as_os_str(), "--html".as_ref(), page.as_os_str()]));
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    let text = fs::read_to_string(&page)?;
    assert!(text.contains("<canvas") && text.contains("g0 to g1"), "{text}");
    assert!(text.contains("&lt;script&gt;x&amp;&lt;b&gt;") && !text.contains("<script>x"), "{text}");
    for loads in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!text.contains(loads), "{loads}");
    }
    let data = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let data: Value = serde_json::from_str(data.ok_or("the page has no data")?)?;
    assert_eq!(data["lanes"].as_array().map(Vec::len).map(|lanes| lanes % 8), Some(0));
    assert!(data["ops"].as_array().is_some_and(|ops| ops.len() > 100));
    Ok(())
}

fn time_lines_have_a_bound() -> Result<(), Failed> {
    let folder = Folder::new("bound");
    let path = folder.0.join("page.html").to_string_lossy().into_owned();
    let done = run(["simulate", "ring2.sched", "--bytes", "16G", "--html", &path]);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("--html") && done.stderr.contains("fewer --bytes"), "{}", done.stderr);
    assert!(!folder.0.join("page.html").exists());
    Ok(())
}

/// The kernel plan of the ring of two ranks without the first line that has these words.
fn without(words: &str) -> String {
    let plan = run(["lower", "ring2.sched", "--bytes", "1M", "--dtype", "float32"]).stdout;
    let start = plan.find(words).expect("the plan has the line");
    let end = start + plan[start..].find('\n').expect("the line ends");
    format!("{}{}", &plan[..start], &plan[end..])
}

fn a_hang_is_told_with_status_1() -> Result<(), Failed> {
    let text = without("signal l0.full");
    let done = run_with(["simulate", "-", "--bytes", "1M"], text.as_bytes());
    assert_eq!((done.status, done.stdout.as_str()), (1, ""));
    for said in
        ["hangs after", "rank 0, op r0.0#", "waits for rank 1 to signal a message on l1", "ringsmith show"]
    {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    let done = run_with(["simulate", "-", "--bytes", "1M", "--json"], text.as_bytes());
    let row: Value = serde_json::from_str(&done.stdout)?;
    assert_eq!((done.status, row["waits"].as_array().map(Vec::len)), (1, Some(2)));
    assert_eq!((&row["waits"][0]["rank"], &row["waits"][0]["peer"]), (&0.into(), &1.into()));
    Ok(())
}

fn a_wrong_plan_is_drawn() -> Result<(), Failed> {
    let refuted = run(["simulate", "broken.sched", "--ranks", "2"]);
    assert!(refuted.status > 0 && refuted.stdout.is_empty() && refuted.stderr.contains("error["));
    let text = without("move ");
    let done = run_with(["simulate", "-", "--bytes", "1M"], text.as_bytes());
    assert_eq!((done.status, done.stdout.as_str()), (1, ""));
    assert!(done.stderr.contains("error[V"), "{}", done.stderr);
    Ok(())
}

fn machines_without_a_way_are_refused() -> Result<(), Failed> {
    let done = run("simulate all_reduce --topo dgx1v --nodes 2 --bytes 1K --json".split(' '));
    assert_eq!(json(&done)?["ranks"], 16, "its ports join its nodes");
    let folder = Folder::new("no_way");
    let empty = "machine \"bare\" {\n}\n";
    let bare = folder.file("bare.topo", empty);
    let done = run(["simulate".as_ref(), "all_reduce".as_ref(), "--topo".as_ref(), bare.as_os_str()]);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{}", done.stderr);
    Ok(())
}
