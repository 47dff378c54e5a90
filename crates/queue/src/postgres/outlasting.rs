//! Completes calls even if their client leaves.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that continues in its own task when it is dropped early. Until then it runs in its caller's task, which
/// saves a task and two wake-ups for each call.
pub(super) struct Outlasting<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` once it has ended or panicked.
    goes_on: Option<Pin<Box<F>>>,
}

impl<F> Outlasting<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    pub(super) fn new(future: F) -> Outlasting<F> {
        Outlasting { goes_on: Some(Box::pin(future)) }
    }
}

impl<F> Future for Outlasting<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut future = self.goes_on.take().expect("it is not polled after its end");
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.goes_on = Some(future);
        }
        polled
    }
}

impl<F> Drop for Outlasting<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        // Without a runtime, at shutdown, the future is dropped.
        if let (Some(future), Ok(runtime)) = (self.goes_on.take(), Handle::try_current()) {
            runtime.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn dropped_call_goes_on_and_is_done_once() {
        let ((answer, answered), (tell, mut heard)) = (oneshot::channel(), oneshot::channel());
        let mut call = Outlasting::new(async move {
            let answer: u32 = answered.await.unwrap();
            tell.send(answer).unwrap();
            answer
        });
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut call).poll(&mut context).is_pending());
        drop(call);
        assert!(heard.try_recv().is_err());
        answer.send(7).unwrap();
        assert_eq!(heard.await, Ok(7));
        // A call that has ended is not continued.
        assert_eq!(Outlasting::new(async { 7 }).await, 7);
    }
}
