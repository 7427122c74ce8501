//! A thread for work that blocks.

use std::any::Any;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use futures::channel::oneshot;

use crate::error::{Error, ErrorKind};

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A value that lives on a thread of its own, which runs one job after the other on it.
///
/// The thread starts with the first job. It ends when the last clone is dropped and every job that
/// was handed over until then is done; nobody waits for it.
pub(super) struct Worker<T> {
    name: &'static str,
    state: Arc<Mutex<State<T>>>,
}

enum State<T> {
    /// No thread yet.
    Idle(T),
    Running(mpsc::Sender<Job<T>>),
    /// The thread could not be started, and the value went with it.
    Lost,
}

impl<T: Send + 'static> Worker<T> {
    /// Makes one without a thread, which will have the name given.
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Self { name, state: Arc::new(Mutex::new(State::Idle(value))) }
    }

    /// Runs a job and gives what it returns. It is handed over by the first poll; dropping the future
    /// afterwards does not take it back.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, answered) = oneshot::channel();
        self.hand_over(Box::new(move |value| {
            let result = catch_unwind(AssertUnwindSafe(|| job(value)));
            let result = result.unwrap_or_else(|panic| Err(panicked(&*panic)));
            // Nobody may be waiting for it any more.
            let _ = answer.send(result);
        }))?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn hand_over(&self, job: Job<T>) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match mem::replace(&mut *state, State::Lost) {
            State::Idle(value) => State::Running(start(self.name, value)?),
            other => other,
        };
        match &*state {
            State::Running(jobs) => jobs.send(job).map_err(|_| gone()),
            State::Idle(_) | State::Lost => Err(gone()),
        }
    }

    /// Changes the value before the first job; afterwards it does nothing.
    pub(super) fn configure(&mut self, change: impl FnOnce(&mut T)) {
        match &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Idle(value) => change(value),
            State::Running(_) | State::Lost => {}
        }
    }
}

fn start<T: Send + 'static>(name: &str, mut value: T) -> Result<mpsc::Sender<Job<T>>, Error> {
    let (sender, jobs) = mpsc::channel::<Job<T>>();
    let work = move || jobs.into_iter().for_each(|job| job(&mut value));
    match thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(_) => Ok(sender),
        Err(error) => {
            let message = format!("the store's thread cannot be started: {error}");
            Err(Error::new(ErrorKind::Store, message).with_source(error))
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(ErrorKind::Panic, format!("a store panicked: {}", text.unwrap_or("no message")))
}

fn gone() -> Error {
    Error::new(ErrorKind::Store, "the store's thread is gone")
}

impl<T> Clone for Worker<T> {
    fn clone(&self) -> Self {
        Self { name: self.name, state: Arc::clone(&self.state) }
    }
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::{FutureExt, poll};

    use super::*;

    #[test]
    fn jobs_run_in_the_order_in_which_they_came() {
        let worker = Worker::new("test", Vec::new());
        block_on(async {
            let mut first = Box::pin(worker.run(|list| {
                list.push(1);
                Ok(())
            }));
            let mut second = Box::pin(worker.run(|list| {
                list.push(2);
                Ok(())
            }));
            let _ = poll!(&mut first);
            let _ = poll!(&mut second);
            second.await.unwrap();
            first.await.unwrap();
            assert_eq!(worker.run(|list| Ok(list.clone())).await.unwrap(), [1, 2]);
        });
    }

    #[test]
    fn a_job_whose_future_is_dropped_is_done_and_one_never_polled_is_not() {
        let worker = Worker::new("test", 0);
        drop(worker.run(|n| {
            *n += 100;
            Ok(())
        }));
        let _ = worker
            .run(|n| {
                *n += 1;
                Ok(())
            })
            .now_or_never();
        assert_eq!(block_on(worker.run(|n| Ok(*n))).unwrap(), 1);
    }

    #[test]
    fn a_panic_in_a_job_is_its_error_and_the_next_job_runs() {
        let worker = Worker::new("test", 7);
        let error = block_on(worker.run(|_| -> Result<(), Error> { panic!("dropped it") }));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert_eq!(error.message(), "a store panicked: dropped it");
        assert_eq!(block_on(worker.run(|n| Ok(*n))).unwrap(), 7);
    }

    #[test]
    fn the_value_goes_with_the_last_clone() {
        struct Tells(mpsc::Sender<&'static str>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send("dropped").unwrap();
            }
        }
        let (told, tells) = mpsc::channel();
        let worker = Worker::new("test", Tells(told));
        let other = worker.clone();
        // Handed over and not waited for: it is still done.
        let _ = worker
            .run(|value| {
                value.0.send("job").unwrap();
                Ok(())
            })
            .now_or_never();
        drop(worker);
        assert_eq!(tells.recv(), Ok("job"));
        assert!(tells.try_recv().is_err());
        drop(other);
        assert_eq!(tells.recv(), Ok("dropped"));
    }
}
