//! The reports of an agent's hooks: usage, and errors that do not end the run. Also the trace
//! contexts for the hooks' requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::event::Event;
use crate::item::RawJson;
use crate::lock::lock_ignoring_poison;
use crate::propagation::{TraceContext, TraceContexts};
use crate::usage::Usage;

/// The usage that hooks have reported, and that the run has not yielded as events yet; and the
/// errors that have not been passed to observing hooks. Also the trace contexts for the requests of
/// hooks. Clones share the reports and the contexts.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct HelperReports(Arc<Mutex<ReportQueue>>);

#[derive(Debug, Default)]
struct ReportQueue {
    /// The reports that belong to the value of an effect.
    waiting: VecDeque<HelperReport>,
    /// The reports that came later.
    fresh: VecDeque<HelperReport>,
    failures: Vec<Error>,
    trace_contexts: Option<Arc<TraceContexts>>,
    /// Whether the run is over, in which case no more reports are accepted.
    is_closed: bool,
}

/// The usage of a request that a hook has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct HelperReport {
    pub(in crate::agent) purpose: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agent) model: Option<String>,
    pub(in crate::agent) usage: Usage,
}

impl From<HelperReport> for Event {
    fn from(HelperReport { purpose, model, usage }: HelperReport) -> Self {
        Self::HelperUsage { purpose, model, usage: usage.into() }
    }
}

impl HelperReports {
    /// Adds a report, unless it reports nothing.
    pub(in crate::agent) fn push(&self, report: HelperReport) {
        let mut queue = lock_ignoring_poison(&self.0);
        if !queue.is_closed && report.usage != Usage::default() {
            queue.fresh.push_back(report);
        }
    }

    /// Returns the reports that the run has not yielded, the oldest first.
    pub(in crate::agent) fn all(&self) -> Vec<HelperReport> {
        let queue = lock_ignoring_poison(&self.0);
        queue.waiting.iter().chain(&queue.fresh).cloned().collect()
    }

    /// Returns the oldest report.
    pub(in crate::agent) fn first(&self) -> Option<HelperReport> {
        let queue = lock_ignoring_poison(&self.0);
        queue.waiting.front().or(queue.fresh.front()).cloned()
    }

    /// Removes the oldest report that equals this one, if any.
    pub(in crate::agent) fn remove(&self, report: &HelperReport) {
        let queue = &mut *lock_ignoring_poison(&self.0);
        for reports in [&mut queue.waiting, &mut queue.fresh] {
            if let Some(at) = reports.iter().position(|it| it == report) {
                reports.remove(at);
                return;
            }
        }
    }

    /// Removes and returns the reports that belong to no value of an effect.
    pub(in crate::agent) fn take_fresh(&self) -> Vec<HelperReport> {
        lock_ignoring_poison(&self.0).fresh.drain(..).collect()
    }

    /// Adds the reports of an effect's value.
    pub(in crate::agent) fn extend(&self, reports: Vec<HelperReport>) {
        lock_ignoring_poison(&self.0).waiting.extend(reports);
    }

    /// Accepts no more reports, and removes and returns all of them.
    pub(in crate::agent) fn close(&self) -> Vec<HelperReport> {
        let queue = &mut *lock_ignoring_poison(&self.0);
        queue.is_closed = true;
        queue.waiting.drain(..).chain(queue.fresh.drain(..)).collect()
    }

    /// Sets the contexts of the run.
    pub(in crate::agent) fn set_trace_contexts(&self, contexts: Option<Arc<TraceContexts>>) {
        lock_ignoring_poison(&self.0).trace_contexts = contexts;
    }

    /// Returns the context of the run.
    pub(in crate::agent) fn trace_context(&self) -> Option<TraceContext> {
        let contexts = lock_ignoring_poison(&self.0).trace_contexts.clone();
        contexts?.current()
    }

    /// Adds an error that does not end the run.
    pub(in crate::agent) fn push_failure(&self, error: Error) {
        lock_ignoring_poison(&self.0).failures.push(error);
    }

    /// Removes and returns the errors that do not end the run.
    pub(in crate::agent) fn take_failures(&self) -> Vec<Error> {
        std::mem::take(&mut lock_ignoring_poison(&self.0).failures)
    }
}

/// The value of an effect in which hooks decide, and the usage that they have reported. If there is
/// no such usage, the value alone is serialized.
///
/// A world may store the value and not perform the effect again, in which case the hooks cannot
/// report the usage again.
#[derive(Debug, Default)]
pub(in crate::agent) struct Reported<T> {
    pub(in crate::agent) value: T,
    pub(in crate::agent) reports: Vec<HelperReport>,
}

/// The serialized form of a value with reports.
#[derive(Serialize, Deserialize)]
struct ReportedRepr<T> {
    value: T,
    reports: Vec<HelperReport>,
}

impl<T: Serialize> Serialize for Reported<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.reports.is_empty() {
            true => self.value.serialize(serializer),
            false => ReportedRepr { value: &self.value, reports: self.reports.clone() }
                .serialize(serializer),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Reported<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        let json = RawJson::deserialize(deserializer)?;
        let (value, reports) = match json.deserialize_as::<ReportedRepr<RawJson>>() {
            Ok(ReportedRepr { value, reports }) => (value, reports),
            Err(_) => (json, Vec::new()),
        };
        Ok(Self { value: value.deserialize_as().map_err(D::Error::custom)?, reports })
    }
}
