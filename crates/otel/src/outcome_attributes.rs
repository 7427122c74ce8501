//! The attributes of a run's outcome.

use opentelemetry::KeyValue;
use turnstream::event::{BudgetKind, EndReason, InterruptedPhase, Outcome};
use turnstream::propagation::InterruptLane;

use crate::chat_span::to_i64;
use crate::names::attribute::own;
use crate::names::value;

/// Returns the attributes that describe how a run has ended. `lane` is `None` if it was not
/// interrupted, or if it is not known how.
pub(crate) fn outcome_attributes(outcome: &Outcome, lane: Option<InterruptLane>) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new(own::REASON, outcome.reason.as_str()),
        KeyValue::new(own::PARTIAL, outcome.partial),
        KeyValue::new(own::TURN_COUNT, i64::from(outcome.turns)),
    ];
    if let EndReason::Interrupted(phase) = outcome.reason {
        let phase = match phase {
            InterruptedPhase::Tools => "tools",
            _ => "streaming",
        };
        attributes.push(KeyValue::new(own::INTERRUPTED_PHASE, phase));
        let lane = lane.map(|lane| match lane {
            InterruptLane::Turn => value::INTERRUPT_TURN,
            _ => value::INTERRUPT,
        });
        attributes.extend(lane.map(|lane| KeyValue::new(own::INTERRUPTED_LANE, lane)));
    }
    let counts = [
        (own::PENDING_COUNT, outcome.pending.len()),
        (own::UNDELIVERED_COUNT, outcome.undelivered.len()),
        (own::EVIDENCE_COUNT, outcome.evidence.len()),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    attributes.extend(counts.map(|(name, count)| KeyValue::new(name, to_i64(count as u64))));
    if outcome.proof.is_some() {
        attributes.push(KeyValue::new(own::EVIDENCE_PROVEN, true));
    }
    attributes.extend(outcome.cost.map(|cost| KeyValue::new(own::COST_MICROS, to_i64(cost))));
    if let Some(budget) = &outcome.budget {
        attributes.extend([
            KeyValue::new(own::BUDGET_KIND, budget_kind(budget.kind)),
            KeyValue::new(own::BUDGET_USED, to_i64(budget.used)),
            KeyValue::new(own::BUDGET_LIMIT, to_i64(budget.limit)),
        ]);
    }
    attributes
}

fn budget_kind(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::OutputTokens => "output_tokens",
        BudgetKind::TotalTokens => "total_tokens",
        BudgetKind::Pool => "pool",
        BudgetKind::Money => "money",
        BudgetKind::Time => "time",
        BudgetKind::ToolCalls => "tool_calls",
        BudgetKind::Target => "target",
        _ => "other",
    }
}
