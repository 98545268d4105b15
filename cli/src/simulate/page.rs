//! A simulation as a page: one file that loads nothing, with the time line, what was busy, and the critical
//! path. The page is a template (`templates/src/timeline.html.tera`); this fills it in.

use super::{Simulated, text, trace};
use ringsmith_compiler::simulate::Unit;
use ringsmith_runtime::shown::escaped;
use ringsmith_templates::TIMELINE;
use serde_json::json;
use tera::{Context, Tera};

/// Everything that a reader may have named is escaped: by the template where it is text, here where it is
/// data inside a script.
pub(super) fn of(simulated: &Simulated<'_>) -> String {
    let timeline = simulated.timeline;
    let mut context = Context::new();
    context.insert("plan", &escaped(&simulated.subject.name));
    context.insert("machine", &escaped(&simulated.machine));
    context.insert("bytes", &crate::values::print_size(simulated.bytes));
    context.insert("dtype", simulated.arguments.load.dtype.name());
    context.insert("total", &format!("{:.3}", simulated.total_us()));
    context.insert("algbw", &format!("{:.2}", simulated.algbw_gbs()));
    context.insert("busbw", &format!("{:.2}", simulated.busbw_gbs()));
    context.insert("ops", &timeline.records.len());
    let share = |ns: f64| if timeline.total_ns > 0.0 { 100.0 * ns / timeline.total_ns } else { 0.0 };
    let parts = timeline.parts.iter().map(|part| {
        json!({
            "what": escaped(&part.what),
            "amount": format!("{:.3} us", part.ns / 1e3),
            "percent": format!("{:.1}", share(part.ns)),
        })
    });
    context.insert("parts", &parts.collect::<Vec<_>>());
    let usage = text::busiest(simulated).into_iter().map(|usage| {
        let amount = match usage.unit {
            Unit::Bytes => format!("{:.3} MB", usage.carried / 1e6),
            Unit::Work => format!("{:.3} us", usage.carried / 1e3),
        };
        json!({ "what": escaped(&usage.name), "amount": amount, "percent": format!("{:.1}", 100.0 * usage.share) })
    });
    context.insert("usage", &usage.collect::<Vec<_>>());
    // `<` could end the script.
    context.insert("data", &data(simulated).replace('<', "\\u003c"));
    let mut tera = Tera::default();
    tera.add_raw_template("timeline.html", TIMELINE).expect("a test fills the template in");
    tera.render("timeline.html", &context).expect("the template names what is filled in")
}

/// Lanes and ops, as short as they can be said: `[lane, op, tile, reached, began, ended, critical, cause]`
/// for each op that took time.
fn data(simulated: &Simulated<'_>) -> String {
    let (plan, timeline) = (simulated.plan(), simulated.timeline);
    let critical = simulated.critical();
    let lanes = plan.lanes.values().map(|lane| {
        let words: Vec<&str> = lane.ops.iter().map(|op| trace::kind(&op.kind)).collect();
        json!({ "name": lane.name.to_string(), "ops": words })
    });
    // Places among the ops that are shown.
    let is_shown = |at: &usize| timeline.records[*at].ended_ns > timeline.records[*at].reached_ns;
    let shown: Vec<usize> = (0..timeline.records.len()).filter(is_shown).collect();
    let round = |ns: f64| (ns * 1e3).round() / 1e3;
    let ops = shown.iter().map(|&at| {
        let record = &timeline.records[at];
        let from = record.cause.map(|cause| &timeline.records[cause as usize]);
        let signal = from.filter(|cause| cause.lane != record.lane);
        let signal = signal.map(|cause| json!([cause.lane.as_u32(), round(cause.ended_ns)]));
        json!([
            record.lane.as_u32(),
            record.op,
            record.tile,
            round(record.reached_ns),
            round(record.began_ns),
            round(record.ended_ns),
            u8::from(critical.contains(&(at as u32))),
            signal
        ])
    });
    json!({ "total": timeline.total_ns, "lanes": lanes.collect::<Vec<_>>(), "ops": ops.collect::<Vec<_>>() })
        .to_string()
}
