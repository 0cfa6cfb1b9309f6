//! tonic: a client with a connector of the program, and a service over hyper's server.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::service_fn;

use crate::pair::pair;

// library: tonic 0.14 | works | `Endpoint::connect_with_connector`; `Routes` through hyper's server
#[tokio::test]
async fn calls_and_a_stream_of_answers() {
    let (client, server) = pair(&["h2"]).await.unwrap();
    let (reporter, service) = tonic_health::server::health_reporter();
    tokio::spawn(async move {
        let service = TowerToHyperService::new(Routes::new(service).prepare());
        auto::Builder::new(TokioExecutor::new())
            .http2_only()
            .serve_connection(TokioIo::new(server), service)
            .await
    });
    let mut client = Some(client);
    let connector = service_fn(move |_| {
        let client = client.take().map(TokioIo::new);
        async move { client.ok_or(std::io::Error::other("only once")) }
    });
    let endpoint = Endpoint::from_static("http://one.test");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut health = HealthClient::new(channel);
    let request = || HealthCheckRequest {
        service: "one".to_owned(),
    };
    let error = health.check(request()).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    reporter
        .set_service_status("one", ServingStatus::Serving)
        .await;
    let answer = health.check(request()).await.unwrap().into_inner();
    assert_eq!(answer.status, 1);
    let mut answers = health.watch(request()).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().status, 1);
    reporter
        .set_service_status("one", ServingStatus::NotServing)
        .await;
    assert_eq!(answers.message().await.unwrap().unwrap().status, 2);
}
