//! A choice in words: what was chosen, what it should take, and what else there was.

use super::{Choice, Verdict};
use std::fmt::Write;

/// At most this many ranks are listed one by one.
const LISTED_RANKS: usize = 32;

/// Says what was chosen and why, in lines for people. Ends with a line feed.
pub fn explain(choice: &Choice) -> String {
    let mut text = String::new();
    let request = choice.request;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<11} {value}");
    };
    let root =
        if request.collective.rooted() { format!(" from rank {}", request.root) } else { String::new() };
    line(
        "request",
        format!(
            "{} of {} bytes{root}, {}, {}",
            request.collective,
            request.bytes,
            counted(choice.ranks, "rank"),
            counted(choice.hosts, "host")
        ),
    );
    line("algorithm", choice.algorithm.name.to_owned());
    line("protocol", choice.protocol.to_string());
    line("channels", choice.channels.to_string());
    line("rank order", rank_order(&choice.rank_order.ranks));
    let sizes = choice.predicted;
    if choice.chunks == 0 {
        line("chunks", "none: signals only".to_owned());
    } else {
        line("chunks", format!("{} of at most {} bytes", choice.chunks, sizes.chunk_bytes));
        line("tiles", format!("{} a chunk, of at most {} bytes", sizes.tiles, sizes.tile_bytes));
    }
    let corrected = match sizes.correction {
        1.0 => String::new(),
        factor => format!(", {factor:.2} times what the model says, as measured"),
    };
    line("predicted", format!("{:.2} us{corrected}", sizes.us));
    let _ = writeln!(text, "rejected");
    let mut rejected = false;
    for candidate in &choice.candidates {
        let reason = match (&candidate.verdict, candidate.predicted) {
            (Verdict::Chosen, _) => continue,
            (Verdict::Excluded(reason), _) => reason.clone(),
            (Verdict::Slower, Some(predicted)) if predicted.us > sizes.us => {
                format!("{:.2} us, {:.2} times as long", predicted.us, predicted.us / sizes.us)
            }
            (Verdict::Slower, Some(predicted)) => {
                format!("{:.2} us, no shorter than the model can tell, and less simple", predicted.us)
            }
            (Verdict::Slower, None) => unreachable!("only what has a price can be slower"),
        };
        rejected = true;
        let what = format!(
            "{} over {}, {}",
            candidate.algorithm.name,
            candidate.protocol,
            counted(candidate.channels, "channel")
        );
        let _ = writeln!(text, "  {what:<42} {reason}");
    }
    if !rejected {
        let _ = writeln!(text, "  nothing: there is no other way");
    }
    text
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn rank_order(order: &[u32]) -> String {
    let listed: Vec<String> = order.iter().take(LISTED_RANKS).map(u32::to_string).collect();
    let rest =
        if order.len() > LISTED_RANKS { format!(" … {}", order[order.len() - 1]) } else { String::new() };
    format!("{}{rest}, on every channel", listed.join(" "))
}
