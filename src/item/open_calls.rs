//! Calls that are waiting for their results.

use std::collections::VecDeque;

/// A queue of calls of type `C`. Each call remains in the queue until its result is taken.
///
/// Results may arrive in any order. Buffered results are read in call order. If two calls have the
/// same id, a result belongs to the first unanswered call with that id.
///
/// Calls usually get their results roughly in call order, so searches start with the first
/// unanswered call.
#[derive(Clone, Debug)]
pub(crate) struct OpenCalls<C, R = ()> {
    calls: VecDeque<(C, Option<R>)>,
    /// The position of the first unanswered call, or the number of calls if all are answered.
    first_unanswered: usize,
}

impl<C, R> OpenCalls<C, R> {
    /// Iterates over the calls that have no result yet.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &C> {
        let rest = self.calls.range(self.first_unanswered..);
        rest.filter(|(_, result)| result.is_none()).map(|(call, _)| call)
    }

    /// Returns whether every call has a result.
    pub(crate) fn all_answered(&self) -> bool {
        self.first_unanswered == self.calls.len()
    }

    /// Returns the position of the first matching unanswered call. Positions can be compared with
    /// each other and remain valid until calls are removed from the queue.
    pub(crate) fn position(&self, is_it: impl Fn(&C) -> bool) -> Option<usize> {
        let mut rest = self.calls.range(self.first_unanswered..);
        let at = rest.position(|(call, result)| result.is_none() && is_it(call))?;
        Some(self.first_unanswered + at)
    }

    /// Looks up the first matching unanswered call.
    pub(crate) fn find_mut(&mut self, is_it: impl Fn(&C) -> bool) -> Option<&mut C> {
        let at = self.position(is_it)?;
        self.calls.get_mut(at).map(|(call, _)| call)
    }

    /// Buffers the result for the first matching unanswered call. If no call matches, returns the
    /// result.
    pub(crate) fn buffer_result(&mut self, is_it: impl Fn(&C) -> bool, result: R) -> Option<R> {
        let Some((_, held)) = self.position(is_it).and_then(|at| self.calls.get_mut(at)) else {
            return Some(result);
        };
        *held = Some(result);
        self.skip_answered();
        None
    }

    /// Iterates over the buffered results, in call order.
    pub(crate) fn buffered_results(&self) -> impl Iterator<Item = &R> {
        self.calls.iter().filter_map(|(_, result)| result.as_ref())
    }

    /// Returns the position of the last call that has a buffered result.
    pub(crate) fn last_buffered_position(&self) -> Option<usize> {
        self.calls.iter().rposition(|(_, result)| result.is_some())
    }

    /// Takes the buffered results, in call order, and removes the corresponding calls. Unanswered
    /// calls remain in the queue.
    pub(crate) fn take_buffered_results(&mut self) -> Vec<R> {
        let mut held = Vec::new();
        if self.calls.is_empty() {
            return held;
        }
        self.first_unanswered = 0;
        self.calls.retain_mut(|(_, result)| match result.take() {
            Some(result) => {
                held.push(result);
                false
            }
            None => true,
        });
        if self.calls.is_empty() {
            // Frees the memory, because it may be a long time before the run makes calls again.
            self.calls = VecDeque::new();
        }
        held
    }

    /// Removes and returns the first matching unanswered call. Use this method for a call whose
    /// result is not buffered in this queue.
    pub(crate) fn take_first_unanswered(&mut self, is_it: impl Fn(&C) -> bool) -> Option<C> {
        let at = self.position(is_it)?;
        self.remove(at)
    }

    /// Removes and returns the last matching unanswered call.
    pub(crate) fn take_last_unanswered(&mut self, is_it: impl Fn(&C) -> bool) -> Option<C> {
        let at = self.calls.iter().rposition(|(call, result)| result.is_none() && is_it(call))?;
        self.remove(at)
    }

    /// Keeps only the matching calls, with their results, and removes all other calls.
    pub(crate) fn retain(&mut self, keep: impl Fn(&C) -> bool) {
        self.calls.retain(|(call, _)| keep(call));
        self.first_unanswered = 0;
        self.skip_answered();
    }

    /// Removes an unanswered call.
    fn remove(&mut self, at: usize) -> Option<C> {
        let (call, _) = self.calls.remove(at)?;
        self.skip_answered();
        Some(call)
    }

    /// Moves `first_unanswered` past the calls that have a result.
    fn skip_answered(&mut self) {
        let rest = self.calls.range(self.first_unanswered..);
        self.first_unanswered += rest.take_while(|(_, result)| result.is_some()).count();
    }
}

impl<C, R> Default for OpenCalls<C, R> {
    fn default() -> Self {
        Self { calls: VecDeque::new(), first_unanswered: 0 }
    }
}

impl<C, R> Extend<C> for OpenCalls<C, R> {
    fn extend<T: IntoIterator<Item = C>>(&mut self, calls: T) {
        self.calls.extend(calls.into_iter().map(|call| (call, None)));
    }
}

impl<C, R> FromIterator<C> for OpenCalls<C, R> {
    fn from_iter<T: IntoIterator<Item = C>>(calls: T) -> Self {
        let mut open = Self::default();
        open.extend(calls);
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::draw::TestRng;

    fn calls(ids: &[&'static str]) -> OpenCalls<&'static str, u32> {
        ids.iter().copied().collect()
    }

    fn waiting(calls: &OpenCalls<&'static str, u32>) -> Vec<&'static str> {
        calls.unanswered().copied().collect()
    }

    #[test]
    fn results_buffered_in_any_order_are_read_in_call_order() {
        let mut calls = calls(&["a", "b", "c"]);
        assert_eq!(calls.buffer_result(|id| *id == "c", 3), None);
        assert_eq!(calls.buffer_result(|id| *id == "a", 1), None);
        assert_eq!(calls.buffered_results().collect::<Vec<_>>(), [&1, &3]);
        assert!(!calls.all_answered());
        assert_eq!(calls.take_buffered_results(), [1, 3]);
        assert_eq!(waiting(&calls), ["b"]);
        assert_eq!(calls.buffer_result(|id| *id == "b", 2), None);
        assert!(calls.all_answered());
        assert_eq!(calls.take_buffered_results(), [2]);
    }

    #[test]
    fn a_result_without_an_open_call_is_returned() {
        let mut calls = calls(&["a"]);
        assert_eq!(calls.buffer_result(|id| *id == "b", 1), Some(1));
        assert_eq!(calls.buffer_result(|id| *id == "a", 2), None);
        assert_eq!(calls.buffer_result(|id| *id == "a", 3), Some(3));
        assert_eq!(calls.take_buffered_results(), [2]);
    }

    #[test]
    fn of_calls_with_one_id_the_first_unanswered_one_matches() {
        let mut calls = calls(&["a", "a"]);
        assert_eq!(calls.position(|id| *id == "a"), Some(0));
        calls.buffer_result(|id| *id == "a", 1);
        assert_eq!(
            (calls.position(|id| *id == "a"), calls.last_buffered_position()),
            (Some(1), Some(0))
        );
        calls.buffer_result(|id| *id == "a", 2);
        assert_eq!(calls.take_buffered_results(), [1, 2]);
    }

    #[test]
    fn taking_a_call_keeps_the_order_of_the_others() {
        let mut calls: OpenCalls<(&str, u32)> =
            [("a", 1), ("b", 2), ("a", 3), ("a", 4)].into_iter().collect();
        assert_eq!(calls.take_first_unanswered(|(id, _)| *id == "a"), Some(("a", 1)));
        assert_eq!(calls.take_last_unanswered(|(id, _)| *id == "a"), Some(("a", 4)));
        assert_eq!(calls.take_first_unanswered(|(id, _)| *id == "c"), None);
        assert_eq!(calls.unanswered().collect::<Vec<_>>(), [&("b", 2), &("a", 3)]);
    }

    /// A naive implementation, which keeps results in order of arrival and searches all calls and
    /// results each time.
    #[derive(Default)]
    struct Model {
        /// Each call's number and id.
        calls: Vec<(u64, u64)>,
        /// Each result with the number of its call, in order of arrival.
        results: Vec<(u64, u64)>,
    }

    impl Model {
        fn waiting(&self) -> Vec<(u64, u64)> {
            let has_result = |number| self.results.iter().any(|(of, _)| *of == number);
            self.calls.iter().copied().filter(|(number, _)| !has_result(*number)).collect()
        }

        fn of_id(&self, id: u64) -> Vec<u64> {
            let calls = self.waiting().into_iter().filter(|(_, other)| *other == id);
            calls.map(|(number, _)| number).collect()
        }

        fn held(&self) -> Vec<u64> {
            let mut results = self.results.clone();
            results.sort_unstable();
            results.into_iter().map(|(_, result)| result).collect()
        }

        fn forget(&mut self, forgotten: impl Fn(u64) -> bool) {
            self.calls.retain(|(number, _)| !forgotten(*number));
            self.results.retain(|(number, _)| !forgotten(*number));
        }
    }

    #[test]
    fn any_sequence_of_operations_agrees_with_a_naive_model() {
        for seed in 0..4_000 {
            let draw = TestRng::new(seed);
            let (mut calls, mut model) = (OpenCalls::default(), Model::default());
            for step in 0..u64::try_from(draw.next_below(24)).unwrap() {
                let id = u64::try_from(draw.next_below(3)).unwrap();
                let is_it = |(_, other): &(u64, u64)| *other == id;
                match draw.next_below(8) {
                    0..=2 => {
                        calls.extend([(step, id)]);
                        model.calls.push((step, id));
                    }
                    3 | 4 => {
                        let first = model.of_id(id).first().copied();
                        let given_back = calls.buffer_result(is_it, step);
                        assert_eq!(given_back.is_none(), first.is_some(), "seed {seed}");
                        model.results.extend(first.map(|number| (number, step)));
                    }
                    5 => {
                        let first = model.of_id(id).first().copied();
                        assert_eq!(
                            calls.take_first_unanswered(is_it),
                            first.map(|it| (it, id)),
                            "seed {seed}"
                        );
                        model.forget(|number| Some(number) == first);
                    }
                    6 => {
                        let last = model.of_id(id).last().copied();
                        assert_eq!(
                            calls.take_last_unanswered(is_it),
                            last.map(|it| (it, id)),
                            "seed {seed}"
                        );
                        model.forget(|number| Some(number) == last);
                    }
                    _ if draw.next_below(2) == 0 => {
                        assert_eq!(calls.take_buffered_results(), model.held(), "seed {seed}");
                        let answered: Vec<u64> = model.results.iter().map(|(of, _)| *of).collect();
                        model.forget(|number| answered.contains(&number));
                    }
                    _ => {
                        calls.retain(|(_, other)| *other != id);
                        let of_id = model.calls.clone();
                        model.forget(|number| of_id.contains(&(number, id)));
                    }
                }
                let now: Vec<_> = calls.unanswered().copied().collect();
                assert_eq!(now, model.waiting(), "seed {seed}");
                assert_eq!(calls.all_answered(), now.is_empty(), "seed {seed}");
                let held: Vec<u64> = calls.buffered_results().copied().collect();
                assert_eq!(held, model.held(), "seed {seed}");
                assert_eq!(
                    calls.find_mut(is_it).copied(),
                    model.of_id(id).first().map(|it| (*it, id))
                );
                // A new result goes before the last buffered one if its call comes before that
                // one's call.
                let first = model.of_id(id).first().copied();
                let last = model.results.iter().map(|(number, _)| *number).max();
                let (place, last_held) = (calls.position(is_it), calls.last_buffered_position());
                assert_eq!(place < last_held, first < last, "seed {seed}");
                assert_eq!(last_held.is_some(), last.is_some(), "seed {seed}");
            }
        }
    }
}
