//! Threads beside the engine's own.

use crate::inbox::Inbox;
use model::Grammars;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Work = Box<dyn FnOnce() + Send>;

/// The helpers of one engine: one compiles, so that a slow schema keeps no other answer; the others
/// make masks. They end when this is dropped.
pub(crate) struct Helpers {
    grammars: Arc<Grammars>,
    inbox: Arc<Inbox>,
    compiling: Arc<Queue>,
    masking: Arc<Queue>,
}

/// Work in the order it came; at most one piece for each running sequence.
#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<Work>, bool)>,
    filled: Condvar,
}

impl Helpers {
    /// Starts one helper to compile and `masks` for masks. Each rouses the engine through its inbox
    /// when a piece of work is done.
    pub(crate) fn start(
        grammars: Arc<Grammars>,
        masks: usize,
        inbox: Arc<Inbox>,
    ) -> io::Result<Arc<Self>> {
        let (compiling, masking) = <(Arc<Queue>, Arc<Queue>)>::default();
        let helpers = Self { grammars, inbox, compiling, masking };
        let queues = std::iter::once(&helpers.compiling)
            .chain(std::iter::repeat_n(&helpers.masking, masks.max(1)));
        for queue in queues {
            let (queue, inbox) = (Arc::clone(queue), Arc::clone(&helpers.inbox));
            let run = move || {
                while let Some(work) = queue.take() {
                    work();
                    inbox.rouse();
                }
            };
            std::thread::Builder::new().name("grammar".into()).spawn(run)?;
        }
        Ok(Arc::new(helpers))
    }

    pub(crate) fn grammars(&self) -> &Arc<Grammars> {
        &self.grammars
    }

    /// The engine's way in.
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(crate) fn compile(&self, work: impl FnOnce() + Send + 'static) {
        self.compiling.put(Box::new(work));
    }

    pub(crate) fn mask(&self, work: impl FnOnce() + Send + 'static) {
        self.masking.put(Box::new(work));
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.compiling.close();
        self.masking.close();
    }
}

impl Queue {
    fn put(&self, work: Work) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.push_back(work);
        self.filled.notify_one();
    }

    /// The next piece; `None` at the end.
    fn take(&self) -> Option<Work> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = |(work, closed): &mut (VecDeque<Work>, bool)| work.is_empty() && !*closed;
        let filled = self.filled.wait_while(state, empty);
        filled.unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }

    fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (VecDeque::new(), true);
        drop(state);
        self.filled.notify_all();
    }
}
