//! Health checks and reflection, beside the services of a port.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, Fuse, FusedFuture};
use http_body::{Body, Frame};
use tokio::sync::watch;
use tonic::Status;
use tonic::codegen::{Future, Service, http};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{HealthServer, SERVICE_NAME as HEALTH};
use tonic_health::server::{HealthReporter, HealthService};
use tonic_reflection::server::Builder;

use crate::bounded::{Bounded, Unserved};
use crate::budget::Share;
use crate::messages::{Incoming, Outgoing};

/// The paths of all services that gRPC itself defines begin with this.
const STANDARD: &str = "/grpc.";

/// The paths of both versions of reflection begin with this.
const REFLECTION: &str = "/grpc.reflection.";

/// The services of a port, and their description.
#[derive(Debug)]
pub struct Interfaces<S> {
    /// Answers all paths of the services, as generated services do: a router would cost each call some copies and
    /// boxes.
    pub service: S,
    /// The names of the services.
    pub names: &'static [&'static str],
    /// An encoded `FileDescriptorSet` that has these services.
    pub descriptors: &'static [u8],
    /// Records health checks and reflections for which there was no memory.
    pub meter: Arc<dyn Unserved>,
}

impl<S> Interfaces<S> {
    /// Adds `grpc.health.v1` and `grpc.reflection` to the services.
    pub(crate) fn with_standard(self, shutdown: watch::Receiver<bool>) -> (Beside<S>, Health) {
        let Interfaces { service, names, descriptors, meter } = self;
        let reporter = HealthReporter::new();
        let health = Health { reporter, names };
        health.set(ServingStatus::Serving).now_or_never().expect("nothing else has the lock yet");
        let reflected = || {
            let builder = Builder::configure()
                .register_encoded_file_descriptor_set(descriptors)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
            names
                .iter()
                .chain([&HEALTH])
                .fold(builder, |builder, name| builder.with_service_name(*name))
        };
        let decodes = "the build made the descriptors";
        let routes = Routes::new(HealthServer::new(HealthService::from_health_reporter(
            health.reporter.clone(),
        )))
        .add_service(reflected().build_v1().expect(decodes))
        // Older tools ask for this version.
        .add_service(reflected().build_v1alpha().expect(decodes));
        let standard = Bounded::new(Standard(routes.prepare()), meter);
        (Beside { service, standard, shutdown }, health)
    }
}

/// The health of the services: SERVING until the shutdown begins.
#[derive(Debug)]
pub(crate) struct Health {
    reporter: HealthReporter,
    names: &'static [&'static str],
}

impl Health {
    /// The services, and the empty name, which stands for the whole server.
    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names.iter().copied().chain([""])
    }

    async fn set(&self, status: ServingStatus) {
        for name in self.names() {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Reports the shutdown, and ends the watches: a shutdown waits for running calls.
    pub(crate) async fn until(mut self, mut shutdown: watch::Receiver<bool>) {
        // An error means that no handle is left.
        let _ = shutdown.wait_for(|begins| *begins).await;
        self.set(ServingStatus::NotServing).await;
        for name in self.names() {
            self.reporter.clear_service_status(name).await;
        }
    }
}

/// The services of a port, with the standard ones.
#[derive(Debug, Clone)]
pub(crate) struct Beside<S> {
    service: S,
    standard: Bounded<Standard>,
    shutdown: watch::Receiver<bool>,
}

type Boxed<R> = Pin<Box<dyn Future<Output = Result<R, Infallible>> + Send>>;

impl<S, B> Service<http::Request<tonic::body::Body>> for Beside<S>
where
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>, Error = Infallible>,
    B: From<Outgoing>,
{
    type Response = http::Response<B>;
    type Error = Infallible;
    type Future = Either<S::Future, Boxed<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        if !request.uri().path().starts_with(STANDARD) {
            return Either::Left(self.service.call(request));
        }
        let request = if request.uri().path().starts_with(REFLECTION) {
            request.map(|body| tonic::body::Body::new(Requests::new(body, self.shutdown.clone())))
        } else {
            request
        };
        let answer = self.standard.call(request);
        Either::Right(Box::pin(answer.map(|answer| answer.map(|answer| answer.map(B::from)))))
    }
}

/// The standard services. Their calls are no load, so no recorder counts them.
#[derive(Debug, Clone)]
struct Standard(Routes);

impl Service<http::Request<Incoming>> for Standard {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Boxed<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        if let Some(share) = request.extensions().get::<Arc<Share>>() {
            share.metered();
        }
        Box::pin(self.0.call(request))
    }
}

/// The requests of a reflection. They end when the shutdown begins: a client may leave them open.
struct Requests {
    body: tonic::body::Body,
    shutdown: Fuse<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Requests {
    fn new(body: tonic::body::Body, mut shutdown: watch::Receiver<bool>) -> Requests {
        let begins: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            // An error means that no handle is left.
            let _ = shutdown.wait_for(|begins| *begins).await;
        });
        Requests { body, shutdown: begins.fuse() }
    }
}

impl Body for Requests {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.shutdown.is_terminated() || self.shutdown.poll_unpin(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}
