//! Checks and messages that flat texts and expansion share, so that the same mistake reads the same.

use super::codes;
use crate::diagnostic::{Diagnostic, Span};
use crate::entity::LaneName;
use crate::schedule::{BufferKind, Schedule};
use crate::types::Collective;

/// Checks that chunks can be shared out among the ranks and that every buffer has the size the
/// collective gives it. `chunks_span` is where the number of chunks is said.
pub(crate) fn check_sizes(schedule: &Schedule, chunks_span: Span, diagnostics: &mut Vec<Diagnostic>) {
    let (chunks, ranks, collective) = (schedule.chunks, schedule.ranks, schedule.collective);
    if collective == Collective::Barrier && chunks != 0 {
        diagnostics.push(
            Diagnostic::new(
                codes::SIZE,
                "a barrier moves no chunks",
                chunks_span,
                format!("{chunks} chunks"),
            )
            .help("write `chunks 0`, or no such line"),
        );
        return;
    }
    if collective.blocked() && chunks % ranks != 0 {
        let message = format!("{chunks} chunks cannot be shared out among {ranks} ranks");
        let label = format!("`{collective}` needs a multiple of the number of ranks");
        diagnostics.push(Diagnostic::new(codes::CHUNKS_PER_RANK, message, chunks_span, label));
        return;
    }
    for buffer in schedule.buffers.values() {
        let Some(needed) = schedule.buffer_chunks(buffer.kind) else { continue };
        if collective == Collective::Barrier {
            let message = "a barrier has no data of the caller's";
            let label = format!("an `{}` buffer", buffer.kind.name());
            diagnostics.push(Diagnostic::new(codes::BUFFER_SIZE, message, buffer.span, label));
        } else if buffer.chunks != needed {
            let kind = buffer.kind.name();
            let message = format!("`{}` must have {needed} chunks, not {}", buffer.name, buffer.chunks);
            let side = match buffer.kind {
                BufferKind::Inout => "an `inout` buffer is numbered over the whole of the larger side",
                _ if needed != chunks => "this side holds one rank's block",
                _ => "this side holds every chunk",
            };
            let label = format!("{} chunks for the {kind} of `{collective}` on {ranks} ranks", buffer.chunks);
            let diagnostic = Diagnostic::new(codes::BUFFER_SIZE, message, buffer.span, label);
            diagnostics.push(diagnostic.note(format!("{side}: {needed} of the collective's {chunks}")));
        }
    }
}

/// A lane that is declared twice.
pub(crate) fn duplicate_lane(name: LaneName, span: Span, first: Span) -> Diagnostic {
    let message = format!("the lane {name} is declared twice");
    let diagnostic = Diagnostic::new(codes::DUPLICATE_LANE, message, span, "declared again");
    let diagnostic = if span == first { diagnostic } else { diagnostic.label(first, "first here") };
    diagnostic.help("give it another number, or put its ops into the first")
}

pub(crate) fn chunk_message(buffer: &str, chunk: i64) -> String {
    format!("there is no chunk `{buffer}[{chunk}]`")
}

pub(crate) fn rank_message(rank: i64) -> String {
    format!("there is no rank {rank}")
}
