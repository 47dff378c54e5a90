//! Health checks and reflection on every gRPC port.

use futures_util::{StreamExt, stream};
use knee_testkit::free_address;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest as Asked;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse as Answered;

use crate::program::{KV, Program, QUEUE, SPACE};

/// Each program with a gRPC port, the port's address, and its services.
fn servers() -> impl Iterator<Item = (Program, String, &'static [&'static str])> {
    let kv = || {
        let mut kv = Program::serve(KV, &["--grpc", "127.0.0.1:0"]);
        let address = kv.grpc();
        (kv, address, &["knee.kv.v1.KeyValue", "rpc.Storage"][..])
    };
    let queue = || {
        let queue = Program::serve(QUEUE, &["--clients-max", "100"]);
        let address = format!("http://{}", queue.address());
        (queue, address, &["knee.queue.v1.Queue"][..])
    };
    let space = || {
        // A manager serves although its store is out.
        let (listen, store) = (free_address(), free_address());
        let flags = ["manager", "--listen", &listen, "--store", &format!("{store}=1M")];
        let space = Program::start(SPACE, &[&flags[..], &["--grpc", "127.0.0.1:0"]].concat());
        let address = format!("http://{}", space.ready["grpc"].as_str().unwrap());
        (space, address, &["knee.space.v1.Space"][..])
    };
    [kv(), queue(), space()].into_iter()
}

async fn connect(address: &str) -> Channel {
    Endpoint::from_shared(address.to_owned()).unwrap().connect().await.unwrap()
}

fn asked(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn reflected(channel: Channel, asked: Asked) -> Answered {
    let request = ServerReflectionRequest { message_request: Some(asked), ..Default::default() };
    let requests = stream::iter([request]);
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap().message_response.unwrap()
}

#[tokio::test]
async fn every_grpc_port_reports_its_health_until_it_shuts_down() {
    for (server, address, services) in servers() {
        let mut client = HealthClient::new(connect(&address).await);
        for service in services.iter().chain([&""]) {
            let health = client.check(asked(service)).await.unwrap().into_inner();
            assert_eq!(health.status(), ServingStatus::Serving, "{service}");
        }
        let unknown = client.check(asked("unknown")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        let mut watch = client.watch(asked(services[0])).await.unwrap().into_inner();
        let status = async |watch: &mut tonic::Streaming<HealthCheckResponse>| {
            watch.message().await.unwrap().map(|health| health.status())
        };
        assert_eq!(status(&mut watch).await, Some(ServingStatus::Serving));
        server.signal(libc::SIGTERM);
        assert_eq!(status(&mut watch).await, Some(ServingStatus::NotServing));
        assert_eq!(status(&mut watch).await, None);
        // Health checks are no load.
        assert_eq!(server.end().summary()["ops"].as_object().unwrap().len(), 0);
    }
}

#[tokio::test]
async fn open_reflection_ends_when_the_server_shuts_down() {
    for (server, address, _) in servers() {
        let asked = Some(Asked::ListServices(String::new()));
        let request = ServerReflectionRequest { message_request: asked, ..Default::default() };
        // The client asks no more, but does not end its requests.
        let requests = stream::iter([request]).chain(stream::pending());
        let mut client = ServerReflectionClient::new(connect(&address).await);
        let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
        answers.message().await.unwrap().expect("an answer");
        server.signal(libc::SIGTERM);
        assert!(answers.message().await.expect("a good end").is_none());
        server.end();
    }
}

#[tokio::test]
async fn every_grpc_port_describes_its_services() {
    for (_server, address, services) in servers() {
        let channel = connect(&address).await;
        let listed = reflected(channel.clone(), Asked::ListServices(String::new())).await;
        let Answered::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
        let names: Vec<_> = listed.service.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, [services, &["grpc.health.v1.Health"]].concat());
        for name in names {
            let asked = Asked::FileContainingSymbol(name.to_owned());
            let described = reflected(channel.clone(), asked).await;
            let Answered::FileDescriptorResponse(files) = described else { panic!("{name}") };
            let (_, service) = name.rsplit_once('.').unwrap();
            let file = &files.file_descriptor_proto[0];
            assert!(file.windows(service.len()).any(|part| part == service.as_bytes()), "{name}");
        }
    }
}
