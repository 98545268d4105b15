//! A simulation in the Trace Event Format, which Perfetto and chrome://tracing read: a process for each
//! rank, a thread for each lane, a slice for each op and each time of waiting, an arrow for each signal
//! that somebody waited for.

use super::Simulated;
use ringsmith_compiler::simulate::Record;
use ringsmith_ir::kernel_plan::KernelOpKind;
use serde_json::json;

/// One JSON object.
pub(super) fn of(simulated: &Simulated<'_>) -> String {
    let (plan, records) = (simulated.plan(), &simulated.timeline.records);
    let critical = simulated.critical();
    let mut events: Vec<String> = Vec::new();
    for rank in 0..plan.ranks {
        let (name, args) = ("process_name", json!({ "name": format!("rank {rank}") }));
        events.push(json!({ "name": name, "ph": "M", "pid": rank, "args": args }).to_string());
    }
    for lane in plan.lanes.values() {
        let (pid, tid) = (lane.name.rank.as_u32(), lane.name.index);
        let args = json!({ "name": format!("lane {}", lane.name) });
        events.push(
            json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args }).to_string(),
        );
    }
    let at = |record: &Record| {
        let name = plan.lanes[record.lane].name;
        (name.rank.as_u32(), name.index)
    };
    for (number, record) in records.iter().enumerate() {
        let (pid, tid) = at(record);
        let mut slice = |name: String, category: &str, from_ns: f64, to_ns: f64| {
            if to_ns <= from_ns {
                return;
            }
            let args = json!({ "tile": record.tile, "critical": critical.contains(&(number as u32)) });
            let (ts, dur) = (from_ns / 1e3, (to_ns - from_ns) / 1e3);
            let event = json!({
                "name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args
            });
            events.push(event.to_string());
        };
        let op = plan.address(record.lane, record.op as usize);
        let kind = kind(&plan.lanes[record.lane].ops[record.op as usize].kind);
        slice(format!("{op} waits"), "waiting", record.reached_ns, record.began_ns);
        slice(format!("{op} {kind}"), kind, record.began_ns, record.ended_ns);
        let signal = record.cause.map(|cause| &records[cause as usize]).filter(|c| c.lane != record.lane);
        if let Some(signal) = signal {
            let (from_pid, from_tid) = at(signal);
            let mut arrow = |phase: &str, pid, tid, at_ns: f64| {
                let mut event = json!({
                    "name": "signal", "cat": "signal", "ph": phase, "id": number, "pid": pid, "tid": tid, "ts": at_ns / 1e3
                });
                if phase == "f" {
                    event["bp"] = "e".into();
                }
                events.push(event.to_string());
            };
            // Inside the slice that it comes from, which is where viewers look for its start.
            arrow("s", from_pid, from_tid, signal.ended_ns - 1.0);
            arrow("f", pid, tid, record.began_ns);
        }
    }
    let head = json!({ "plan": simulated.subject.name, "machine": simulated.machine });
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{head},\"traceEvents\":[\n{}\n]}}\n",
        events.join(",\n")
    )
}

/// An op's word.
pub(super) fn kind(op: &KernelOpKind) -> &'static str {
    match op {
        KernelOpKind::Wait(_) => "wait",
        KernelOpKind::Signal(_) => "signal",
        KernelOpKind::Move { .. } => "move",
    }
}
