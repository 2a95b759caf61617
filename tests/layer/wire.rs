//! Clients over real sockets.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::kit::Answer;

/// Serves `app` on a free port, until the test's runtime ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// One connection; it is cut, without a word, when this is dropped.
pub(crate) struct Connection {
    sender: Sender,
    driver: AbortHandle,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, version: Version) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await.unwrap();
                let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
                Self { sender: Sender::Http1(sender), driver }
            }
            Version::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), io);
                let (sender, connection) = handshake.await.unwrap();
                let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
                Self { sender: Sender::Http2(sender), driver }
            }
        }
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = request;
        if let (None, Sender::Http1(_)) = (request.headers().get("host"), &self.sender) {
            request.headers_mut().insert("host", "localhost".parse().unwrap());
        }
        if let Sender::Http2(_) = self.sender {
            let uri = format!("http://localhost{}", request.uri());
            *request.uri_mut() = uri.parse().unwrap();
        }
        match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends one request on a connection of its own and reads the response to its end.
pub(crate) async fn fetch(address: SocketAddr, request: Request<Body>) -> hyper::Result<Answer> {
    let mut connection = Connection::open(address, Version::Http1).await;
    let (parts, body) = connection.send(request).await?.into_parts();
    let body: Bytes = body.collect().await?.to_bytes();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}
