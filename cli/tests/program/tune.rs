//! `tune`: what it measures and stores, what the planner makes of it, files that are none.

use crate::program::{Done, Folder, command, run};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use std::fs;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("tune::what_is_measured_is_used", what_is_measured_is_used),
        Trial::test("tune::files_that_are_no_tuning_are_refused", files_that_are_no_tuning_are_refused),
        Trial::test("tune::flags_that_fit_nothing", flags_that_fit_nothing),
        Trial::test("tune::ranks_with_other_tunings_are_told_apart", ranks_with_other_tunings_are_told_apart),
    ]
}

/// A tuning with one measured call.
fn one_call(us: f64) -> Value {
    let class = json!({"latency_ns": 50.0, "message_ns": 20.0, "bytes_per_s": 4.5e10});
    json!({
        "ringsmith_tuning": 1,
        "costs": {
            "shm": class, "zone": class, "socket": class,
            "reduce_bytes_per_s": 4e10, "memory_bytes_per_s": 9e10, "network_bytes_per_s": 1.25e10,
            "switch_ns": 700.0, "launch_ns": 50.0, "cached_bytes": 3.2e7, "cold": 2.0,
        },
        "measured": [{
            "collective": "broadcast", "algorithm": "direct", "protocol": "simple", "channels": 1,
            "ranks": 2, "cores": 2, "transport": "shm", "bytes": 65536, "us": us,
        }],
    })
}

fn what_is_measured_is_used() -> Result<(), Failed> {
    let folder = Folder::new("tuned");
    let path = folder.0.join("here.json").to_string_lossy().into_owned();
    let done = run(["tune", "barrier", "broadcast", "-e", "1K", "--rounds", "1", "-o", &path]);
    assert_eq!(done.status, 0, "{}", done.stderr);
    for part in ["shm.latency_ns", "before", "after", "shm ", "socket ", "in the right order"] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(done.stderr.contains("RINGSMITH_TUNING="), "{}", done.stderr);
    let stored: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let calls = stored["measured"].as_array().ok_or("calls")?;
    for (collective, transport) in [("barrier", "shm"), ("barrier", "socket"), ("broadcast", "shm")] {
        let like = |call: &&Value| call["collective"] == collective && call["transport"] == transport;
        assert!(calls.iter().filter(like).count() > 0, "no {collective} over {transport}");
    }
    assert!(calls.iter().all(|call| call["us"].as_f64() > Some(0.0) && call["ranks"] == 2));
    // Shown again, every call has its line, and so has its simulation.
    let shown = run(["tune", "--show", &path, "--json"]);
    assert_eq!((shown.status, shown.stdout.lines().count()), (0, calls.len()), "{}", shown.stderr);
    for line in shown.stdout.lines() {
        assert!(serde_json::from_str::<Value>(line)?["simulated_us"].as_f64() > Some(0.0), "{line}");
    }
    let table = run(["tune", "--show", &path]).stdout;
    assert!(table.contains("direct") && table.contains("by default") && table.contains("figures"), "{table}");
    Ok(())
}

/// `plan --explain` of what the call of [`one_call`] does, with a file of tuning.
fn explained(path: &str) -> Result<Done, Failed> {
    let line = "plan broadcast --ranks 2 --cores 2 --bytes 64K --algo direct --channels 1 --explain";
    Ok(command(line.split(' ')).env("RINGSMITH_TUNING", path).output()?.into())
}

fn files_that_are_no_tuning_are_refused() -> Result<(), Failed> {
    let folder = Folder::new("tunings");
    let stored = |name: &str, value: &Value| folder.file(name, value.to_string()).display().to_string();
    let good = explained(&stored("good", &one_call(1234.0)))?;
    assert_eq!(good.status, 0, "{}", good.stderr);
    assert!(
        good.stdout.contains("predicted   1234.00 us, ") && good.stdout.contains("as measured"),
        "{}",
        good.stdout
    );

    let mut cases = vec![
        (folder.0.display().to_string(), "no ordinary file".to_owned()),
        ("/dev/zero".to_owned(), "no ordinary file".to_owned()),
        (folder.0.join("none").display().to_string(), "cannot read it".to_owned()),
        (folder.file("text", "no json").display().to_string(), "line 1 column".to_owned()),
        (folder.file("binary", [0xff; 64]).display().to_string(), "line 1 column".to_owned()),
        (folder.file("large", vec![b' '; (8 << 20) + 1]).display().to_string(), "larger than".to_owned()),
    ];
    let mut damaged = |name: &str, said: &str, damage: &dyn Fn(&mut Value)| {
        let mut value = one_call(1.0);
        damage(&mut value);
        cases.push((stored(name, &value), said.to_owned()));
    };
    damaged("form", "run `ringsmith tune` again", &|v| v["ringsmith_tuning"] = json!(2));
    damaged("more", "unknown field", &|v| v["more"] = json!(1));
    damaged("less", "missing field `costs`", &|v| {
        v.as_object_mut().expect("an object").remove("costs");
    });
    damaged("zero", "whose shm.latency_ns is 0", &|v| v["costs"]["shm"]["latency_ns"] = json!(0));
    damaged("negative", "whose cold is -1", &|v| v["costs"]["cold"] = json!(-1));
    damaged("time", "no call takes -3 us", &|v| v["measured"][0]["us"] = json!(-3.0));
    damaged("collective", "there is no collective \"all\"", &|v| {
        v["measured"][0]["collective"] = json!("all")
    });
    damaged("algorithm", "broadcast has no algorithm \"ring\"", &|v| {
        v["measured"][0]["algorithm"] = json!("ring")
    });
    damaged("protocol", "has no protocol \"ll\"", &|v| v["measured"][0]["protocol"] = json!("ll"));
    for (field, value) in
        [("ranks", 1), ("ranks", 1 << 20), ("cores", 0), ("channels", 65), ("bytes", 1u64 << 60)]
    {
        damaged(&format!("{field}{value}"), &format!("{field} is {value}"), &|v| {
            v["measured"][0][field] = json!(value)
        });
    }
    damaged("transport", "shm or socket", &|v| v["measured"][0]["transport"] = json!("pigeon"));
    for (path, said) in &cases {
        let done = explained(path)?;
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{path}");
        for part in ["RINGSMITH_TUNING", path.as_str(), said.as_str()] {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
        let shown = run(["tune", "--show", path]);
        assert_eq!((shown.status, shown.stdout.as_str()), (2, ""), "{path}");
        assert!(shown.stderr.contains(said.as_str()), "{said}: {}", shown.stderr);
    }
    Ok(())
}

fn flags_that_fit_nothing() -> Result<(), Failed> {
    for (line, said) in [
        ("tune", "--output"),
        ("tune send_recv -o x.json", "nothing to tune"),
        ("tune barrier -b 2K -e 1K -o x.json", "--min 2048 is above --max 1024"),
        ("tune barrier -e 2G -o x.json", "up to 1073741824 bytes"),
        ("tune barrier --again -o x.json", "--again: only with --show"),
        ("tune barrier --json -o x.json", "--json: only with --show"),
        ("tune barrier --ranks 1 -o x.json", "--ranks 1: expected a whole number from 2 to 512"),
    ] {
        let done = run(line.split(' '));
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{line}: {}", done.stderr);
    }
    let printed = run("tune barrier --transport shm --rounds 1 -o -".split(' '));
    assert_eq!(printed.status, 0, "{}", printed.stderr);
    assert_eq!(serde_json::from_str::<Value>(&printed.stdout)?["ringsmith_tuning"], 1, "one JSON text");
    let done = run("tune barrier --transport shm --rounds 1 -o /dev/full".split(' '));
    assert!(done.status == 2 && done.stderr.contains("/dev/full"), "{}: {}", done.status, done.stderr);
    Ok(())
}

fn ranks_with_other_tunings_are_told_apart() -> Result<(), Failed> {
    let folder = Folder::new("tuned_apart");
    let id = folder.0.join("id").display().to_string();
    let rank = |rank: &str, us: f64| -> Result<_, Failed> {
        let path = folder.file(&format!("rank{rank}.json"), one_call(us).to_string());
        let mut command =
            command(["run", "all_reduce", "-e", "64", "--world", "2", "--rank", rank, "--id-file", &id]);
        Ok(command.env("RINGSMITH_TUNING", path).env("RINGSMITH_INIT_TIMEOUT_S", "60").spawn()?)
    };
    let (zero, one) = (rank("0", 1.0)?, rank("1", 2.0)?);
    for (name, child) in [("rank 0", zero), ("rank 1", one)] {
        let done = Done::from(child.wait_with_output()?);
        assert_eq!(done.status, 1, "{name}: {}", done.stderr);
        for part in ["RINGSMITH_TUNING", "1 measured calls, "] {
            assert!(done.stderr.contains(part), "{name}, {part}: {}", done.stderr);
        }
    }
    Ok(())
}
