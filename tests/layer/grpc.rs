//! The layer around services of tonic, seen by a client of tonic.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use distlock::layer::{FinishLayer, Hold, LockLayer, LockService};
use distlock::{HeldLock, LockClient, LockError, LockKey};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::NamedService;
use tonic::service::LayerExt;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Code, Request, Response, Status};
use tower::{Layer, ServiceBuilder};

use crate::grpc_stock::stock::stock_client::StockClient;
use crate::grpc_stock::stock::stock_server::{Stock, StockServer};
use crate::grpc_stock::stock::{CountReply, CountRequest, DeductReply, DeductRequest};
use crate::kit::{ANSWERED, Door, LONG, SOON, freed, hold};
use crate::support::{Store, unique_key};

/// Tells under which lock it runs.
#[derive(Clone)]
struct Probe(Door);

#[tonic::async_trait]
impl Stock for Probe {
    async fn deduct(&self, _: Request<DeductRequest>) -> Result<Response<DeductReply>, Status> {
        self.0.pass().await;
        Ok(Response::new(DeductReply { deducted: true, left: 0 }))
    }

    async fn count(&self, request: Request<CountRequest>) -> Result<Response<CountReply>, Status> {
        let held = HeldLock::of_request(request.extensions())?;
        let mut response = Response::new(CountReply { items: 1 });
        response.metadata_mut().insert("x-key", held.key().parse().unwrap());
        Ok(response)
    }
}

/// A free port, and what comes in there.
async fn incoming() -> (SocketAddr, TcpListenerStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    (listener.local_addr().unwrap(), TcpListenerStream::new(listener))
}

async fn serve(router: Router) -> SocketAddr {
    let (address, incoming) = incoming().await;
    tokio::spawn(async move { router.serve_with_incoming(incoming).await });
    address
}

type Client = StockClient<tonic::transport::Channel>;

async fn connect(address: SocketAddr) -> Client {
    StockClient::connect(format!("http://{address}")).await.unwrap()
}

fn of_tenant<T>(message: T, tenant: &'static str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-tenant", tenant.parse().unwrap());
    request
}

fn deduct() -> Request<DeductRequest> {
    of_tenant(DeductRequest { sku_id: 7, quantity: 1 }, "north")
}

fn count() -> Request<CountRequest> {
    of_tenant(CountRequest {}, "north")
}

fn layer(client: &LockClient, prefix: &str) -> LockLayer {
    LockLayer::new(client, format!("{prefix}:<header:x-tenant>"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_server_and_single_service_can_be_locked() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let lock = layer(&store.client(), &prefix);
    let service = || StockServer::new(Probe(Door::open()));
    let direct: LockService<StockServer<Probe>> = lock.layer(service());
    let stack = ServiceBuilder::new().layer(lock.clone()).layer(FinishLayer::new());
    let (around_all, incoming) = incoming().await;
    let router = Server::builder().layer(lock.clone()).add_service(service());
    tokio::spawn(async move { router.serve_with_incoming(incoming).await });
    let addresses = [
        around_all,
        serve(Server::builder().add_service(lock.named_layer(service()))).await,
        serve(Server::builder().add_service(direct)).await,
        serve(Server::builder().add_service(stack.service(service()))).await,
    ];
    for address in addresses {
        let response = connect(address).await.count(count()).await.unwrap();
        assert_eq!(response.metadata().get("x-key").unwrap(), &format!("{prefix}:north"));
    }
    assert_eq!(LockService::<StockServer<Probe>>::NAME, "stock.Stock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_is_a_status_that_says_when_to_try_again() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let lock = layer(&store.client(), &prefix).wait(ANSWERED);
    let service = lock.named_layer(StockServer::new(Probe(Door::open())));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;
    let holder = store.builder().lease(LONG).build().unwrap();
    let _held = hold(&holder, &format!("{prefix}:north")).await;

    let status = client.count(count()).await.unwrap_err();

    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    assert!(status.message().starts_with("Another request is working on this"));
    let details: google::Status = prost::Message::decode(status.details()).unwrap();
    assert_eq!((details.code, details.message.as_str()), (10, status.message()));
    let [any] = &details.details[..] else { panic!("{details:?}") };
    assert_eq!(any.type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let info: google::RetryInfo = prost::Message::decode(&any.value[..]).unwrap();
    let delay = Duration::try_from(info.retry_delay.unwrap()).unwrap();
    assert!(delay > LONG / 2 && delay <= LONG, "{delay:?}");

    let missing = client.count(CountRequest {}).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_of_the_call_is_the_answer_when_it_cuts_the_wait() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let service =
        layer(&store.client(), &prefix).named_layer(StockServer::new(Probe(Door::open())));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;
    let _held = hold(&store.client(), &format!("{prefix}:north")).await;

    // The timers of client and transport run out 20 milliseconds later; on a busy machine they may
    // be first now and then.
    let mut statuses = Vec::new();
    for _ in 0..10 {
        let mut request = count();
        request.set_timeout(Duration::from_millis(300));
        let status = client.count(request).await.unwrap_err();
        if status.message().contains("own deadline") {
            assert_eq!(status.code(), Code::DeadlineExceeded);
            return;
        }
        statuses.push(status);
    }
    panic!("never the layer's answer: {statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_is_dropped_frees_the_lock() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let door = Door::closed();
    let lock = layer(&store.client(), &prefix);
    let service = lock.named_layer(StockServer::new(Probe(door.clone())));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;
    let key = format!("{prefix}:north");
    let asked = tokio::spawn(async move { client.deduct(deduct()).await });
    door.wait_for_entry(1).await;
    assert!(store.owner_of(&key).await.is_some());

    asked.abort();

    freed(&store, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_lost_in_mid_call_is_aborted_with_an_unknown_outcome() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let door = Door::closed();
    let lock = layer(&store.client(), &prefix).lease(Duration::from_millis(1_500));
    let service = lock.named_layer(StockServer::new(Probe(door.clone())));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;
    let asked = tokio::spawn(async move { client.deduct(deduct()).await });
    door.wait_for_entry(1).await;

    store.remove(&format!("{prefix}:north")).await;

    let status = tokio::time::timeout(SOON, asked).await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("is unknown"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_held_until_the_body_ends_is_free_when_the_call_is_over() {
    let (store, prefix) = (Store::redis(), unique_key("layer"));
    let lock = layer(&store.client(), &prefix).hold(Hold::UntilBodyEnd);
    let service = lock.named_layer(StockServer::new(Probe(Door::open())));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;
    for _ in 0..10 {
        client.deduct(deduct()).await.unwrap();
        assert_eq!(store.owner_of(&format!("{prefix}:north")).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn method_that_demands_its_lock_says_how_to_mount_it() {
    let service = StockServer::new(Probe(Door::open()));
    let mut client = connect(serve(Server::builder().add_service(service)).await).await;

    let status = client.count(count()).await.unwrap_err();

    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "The lock of this route is not set up correctly.");
}

#[tokio::test]
async fn error_of_a_lock_becomes_a_status() {
    let client = LockClient::in_memory();
    let other = LockKey::literal("layer:status");
    let _held = client.lock(other.clone()).acquire().await.unwrap();
    let refused = |wait| client.lock(other.clone()).wait(wait).acquire();
    let error: LockError = refused(Duration::ZERO).await.unwrap_err();

    let status = Status::from(error);

    assert_eq!(status.code(), Code::Aborted);
    assert!(!status.message().contains("layer:status"), "keys are nobody's business");
    let invalid = client.lock(LockKey::literal("")).acquire().await.unwrap_err();
    assert_eq!(Status::from(invalid).code(), Code::InvalidArgument);
    let _: Arc<dyn std::error::Error> = Arc::new(status);
}

/// The messages of `google.rpc`, as a client knows them.
mod google {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Status {
        #[prost(int32, tag = "1")]
        pub(super) code: i32,
        #[prost(string, tag = "2")]
        pub(super) message: String,
        #[prost(message, repeated, tag = "3")]
        pub(super) details: Vec<Any>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Any {
        #[prost(string, tag = "1")]
        pub(super) type_url: String,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        pub(super) retry_delay: Option<Duration>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Duration {
        #[prost(int64, tag = "1")]
        pub(super) seconds: i64,
        #[prost(int32, tag = "2")]
        pub(super) nanos: i32,
    }

    impl TryFrom<Duration> for std::time::Duration {
        type Error = std::num::TryFromIntError;

        fn try_from(duration: Duration) -> Result<Self, Self::Error> {
            Ok(Self::new(duration.seconds.try_into()?, duration.nanos.try_into()?))
        }
    }
}
