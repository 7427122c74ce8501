//! Runs blocking work on a dedicated thread.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;
use std::{fmt, mem};

use futures::channel::oneshot;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::lock::lock_ignoring_poison;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Runs the operations of a store one at a time on a dedicated thread, which owns the value that
/// the operations use, such as a connection to a database. Clones share the thread.
///
/// The first operation starts the thread. When the last clone is dropped, the thread completes all
/// submitted operations, drops the value and ends. Dropping the last clone blocks until the thread
/// has ended, but for at most five seconds.
pub struct StoreThread<T> {
    shared: Arc<SharedThread<T>>,
}

/// The maximum time to wait for the thread to end. A job may wait while another process holds a
/// lock; dropping the value takes only milliseconds. Tests always wait until the thread has ended.
const JOIN_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });

struct SharedThread<T> {
    name: &'static str,
    state: Mutex<ThreadState<T>>,
}

enum ThreadState<T> {
    /// The thread has not been started yet.
    Idle(T),
    Running(RunningThread<T>),
    /// The thread could not be started, and the value was dropped.
    Lost,
}

struct RunningThread<T> {
    id: ThreadId,
    job_sender: mpsc::Sender<Job<T>>,
    /// The receiver for the exit signal. The channel is disconnected once the thread has dropped
    /// the value.
    exit_signal: mpsc::Receiver<Infallible>,
}

impl<T: Send + 'static> StoreThread<T> {
    /// Creates a thread with the given name for the given value. The first operation starts the
    /// thread.
    pub fn new(name: &'static str, value: T) -> Self {
        Self {
            shared: Arc::new(SharedThread { name, state: Mutex::new(ThreadState::Idle(value)) }),
        }
    }

    /// Runs an operation and returns its result. The first poll submits the operation; dropping the
    /// future after the first poll does not cancel the operation.
    ///
    /// # Errors
    ///
    /// Returns the operation's error. Returns a [`Panic`](ErrorKind::Panic) error if the operation
    /// panics, and a [`Store`](ErrorKind::Store) error if the thread cannot be started.
    pub async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, answered) = oneshot::channel();
        self.submit(Box::new(move |value| {
            let result = panic_to_error(ErrorKind::Panic, "a store", || job(value)).flatten();
            // The caller may have dropped the future.
            let _ = answer.send(result);
        }))?;
        answered.await.unwrap_or_else(|_| Err(thread_gone_error()))
    }

    fn submit(&self, job: Job<T>) -> Result<(), Error> {
        let mut state = self.shared.lock_state();
        *state = match mem::replace(&mut *state, ThreadState::Lost) {
            ThreadState::Idle(value) => {
                ThreadState::Running(spawn_thread(self.shared.name, value)?)
            }
            other => other,
        };
        match &*state {
            ThreadState::Running(thread) => {
                thread.job_sender.send(job).map_err(|_| thread_gone_error())
            }
            ThreadState::Idle(_) | ThreadState::Lost => Err(thread_gone_error()),
        }
    }

    /// Applies `change` to the value. Does nothing once an operation has been submitted.
    pub fn configure(&mut self, change: impl FnOnce(&mut T)) {
        match &mut *self.shared.lock_state() {
            ThreadState::Idle(value) => change(value),
            ThreadState::Running(_) | ThreadState::Lost => {}
        }
    }
}

impl<T> SharedThread<T> {
    fn lock_state(&self) -> MutexGuard<'_, ThreadState<T>> {
        lock_ignoring_poison(&self.state)
    }
}

impl<T> Drop for SharedThread<T> {
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.lock_state(), ThreadState::Lost);
        let ThreadState::Running(RunningThread { id, job_sender: jobs, exit_signal: ended }) =
            state
        else {
            return;
        };
        drop(jobs);
        // A job may wake a task that drops the last clone on the thread's own thread, which must
        // not wait for itself.
        if thread::current().id() != id {
            let _ = ended.recv_timeout(JOIN_TIMEOUT);
        }
    }
}

fn spawn_thread<T: Send + 'static>(name: &str, mut value: T) -> Result<RunningThread<T>, Error> {
    let (sender, jobs) = mpsc::channel::<Job<T>>();
    let (ends, ended) = mpsc::channel();
    let work = move || {
        for job in jobs {
            job(&mut value);
        }
        drop(value);
        drop(ends);
    };
    match thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(thread) => {
            Ok(RunningThread { id: thread.thread().id(), job_sender: sender, exit_signal: ended })
        }
        Err(error) => {
            let message = format!("the store's thread cannot be started: {error}");
            Err(Error::new(ErrorKind::Store, message).with_source(error))
        }
    }
}

fn thread_gone_error() -> Error {
    Error::new(ErrorKind::Store, "the store's thread is gone")
}

impl<T> Clone for StoreThread<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for StoreThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreThread").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::join_all;

    use super::*;

    #[test]
    fn jobs_run_in_submission_order() {
        let thread = StoreThread::new("test", Vec::new());
        block_on(async {
            let push = |n: i32| {
                thread.run(move |list: &mut Vec<i32>| {
                    list.push(n);
                    Ok(())
                })
            };
            // Each future submits its job when it is first polled.
            let done = join_all([1, 2, 3].map(push)).await;
            assert!(done.iter().all(Result::is_ok));
            assert_eq!(thread.run(|list| Ok(list.clone())).await.unwrap(), [1, 2, 3]);
        });
    }

    #[test]
    fn a_job_runs_once_its_future_was_polled_even_if_dropped_afterwards() {
        let thread = StoreThread::new("test", 0);
        drop(thread.run(|n| {
            *n += 100;
            Ok(())
        }));
        let _ = thread
            .run(|n| {
                *n += 1;
                Ok(())
            })
            .now_or_never();
        assert_eq!(block_on(thread.run(|n| Ok(*n))).unwrap(), 1);
    }

    #[test]
    fn a_panic_in_a_job_is_its_error_and_the_next_job_runs() {
        let thread = StoreThread::new("test", 7);
        let error = block_on(thread.run(|_| -> Result<(), Error> { panic!("dropped it") }));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert_eq!(error.message(), "a store panicked: dropped it");
        assert_eq!(block_on(thread.run(|n| Ok(*n))).unwrap(), 7);
    }

    /// Sends a message when it is dropped.
    struct DropProbe(mpsc::Sender<&'static str>);

    impl Drop for DropProbe {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }

    #[test]
    fn the_drop_of_the_last_clone_waits_for_the_jobs_and_the_drop_of_the_value() {
        let (told, tells) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let thread = StoreThread::new("test", DropProbe(told));
        let other = thread.clone();
        // The job is submitted and its future dropped; it still runs.
        let _ = thread
            .run(move |value| {
                let _ = may_go.recv();
                value.0.send("job").unwrap();
                Ok(())
            })
            .now_or_never();
        drop(thread);
        assert!(tells.try_recv().is_err());
        go.send(()).unwrap();
        drop(other);
        assert_eq!([tells.try_recv(), tells.try_recv()], [Ok("job"), Ok("dropped")]);
    }

    #[test]
    fn the_last_clone_may_be_dropped_on_the_thread_itself() {
        let (told, tells) = mpsc::channel();
        let thread = StoreThread::new("test", DropProbe(told));
        let (hand_over, handed_over) = mpsc::channel();
        let _ = thread
            .run(move |_| {
                drop::<StoreThread<DropProbe>>(handed_over.recv().unwrap());
                Ok(())
            })
            .now_or_never();
        hand_over.send(thread).unwrap();
        assert_eq!(tells.recv(), Ok("dropped"));
    }
}
