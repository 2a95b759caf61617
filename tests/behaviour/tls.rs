//! Encrypted connections: with a private authority, with a certificate of our own, and with what is
//! wrong about either.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockClient, LockClientBuilder, LockErrorKind};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

use crate::common::{LockText, queued_at};
use crate::support::{RedisServer, eventually, free_port, unique_key};

/// An authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names and addresses.
    fn issue(&self, names: &[&str]) -> Identity {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// A server that speaks TLS on `port`, and in clear on another one for the test.
struct TlsServer {
    server: Arc<RedisServer>,
    port: u16,
    /// How a server is told about its certificates.
    settings: Vec<String>,
    files: TempDir,
}

/// A sentinel that speaks TLS, alone with one server.
struct TlsSentinel {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl TlsServer {
    /// `clients`: whether they have to prove who they are.
    fn start(authority: &Authority, identity: &Identity, clients: &str) -> Self {
        Self::start_with(authority, identity, clients, &[])
    }

    fn start_with(
        authority: &Authority,
        identity: &Identity,
        clients: &str,
        further: &[&str],
    ) -> Self {
        let files = TempDir::with_prefix("distlock-tls-").unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let port = free_port();
        let settings = [
            "--tls-ca-cert-file".to_owned(),
            file("ca.crt", &authority.pem()),
            "--tls-cert-file".to_owned(),
            file("us.crt", &identity.certificate),
            "--tls-key-file".to_owned(),
            file("us.key", &identity.key),
            "--tls-auth-clients".to_owned(),
            clients.to_owned(),
        ];
        let own = ["--tls-port".to_owned(), port.to_string()];
        let arguments = own.iter().chain(&settings).map(String::as_str);
        let arguments: Vec<&str> = arguments.chain(further.iter().copied()).collect();
        let server = Arc::new(RedisServer::with_arguments(&arguments));
        Self { server, port, settings: settings.to_vec(), files }
    }

    /// Starts a sentinel that watches over this server, with the server's certificate.
    fn sentinel(&self) -> TlsSentinel {
        let (folder, port) = (TempDir::with_prefix("distlock-tls-").unwrap(), free_port());
        let config = folder.path().join("sentinel.conf");
        let text = format!("sentinel monitor orders 127.0.0.1 {} 1\n", self.port);
        fs::write(&config, text).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&config).args(["--sentinel", "--port", "0", "--tls-replication", "yes"]);
        command.args(["--bind", "127.0.0.1", "--tls-port", &port.to_string()]);
        command.args(&self.settings).current_dir(self.files.path());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        TlsSentinel { port, child, _folder: folder }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }
}

impl Drop for TlsSentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trusting(url: &str, authority: &Authority) -> LockClientBuilder {
    LockClient::builder().url(url).tls_root_cert(authority.pem())
}

async fn refused(builder: LockClientBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_passes_on_over_tls_with_a_private_authority() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority, &authority.issue(&["127.0.0.1"]), "no");
    let [first, second] = [(); 2].map(|()| trusting(&server.url(), &authority).build().unwrap());
    let key = unique_key("tls");
    let guard = first.on(&key).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let key = key.clone();
        async move { second.on(&key).wait(Duration::from_secs(20)).acquire().await }
    });
    queued_at(&server.server, &key, 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    // And again after the connection is gone.
    let mut administrator = server.server.connection().await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal").exec_async(&mut administrator).await.unwrap();
    first.on(&key).acquire().await.unwrap().release().await.unwrap();
}

/// Each node is spoken to as the URL says, also at the addresses that the nodes themselves tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_cluster_are_spoken_to_over_tls() {
    let authority = Authority::new("ours");
    let identity = authority.issue(&["127.0.0.1"]);
    let server = TlsServer::start_with(
        &authority,
        &identity,
        "no",
        &["--cluster-enabled", "yes", "--tls-cluster", "yes"],
    );
    let mut administrator = server.server.connection().await;
    let mut give = redis::cmd("CLUSTER");
    give.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec_async(&mut administrator).await.unwrap();
    eventually("the cluster is ready", Duration::from_secs(20), async || {
        let mut ask = redis::cmd("CLUSTER");
        let info: String = ask.arg("INFO").query_async(&mut administrator).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    let url = server.url().replace("rediss://", "rediss-cluster://");
    let [first, second] = [(); 2].map(|()| trusting(&url, &authority).build().unwrap());
    let key = unique_key("tls");
    let guard = first.on(&key).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let key = key.clone();
        async move { second.on(&key).wait(Duration::from_secs(20)).acquire().await }
    });
    queued_at(&server.server, &key, 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_proves_who_it_is_where_it_has_to() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let server = TlsServer::start(&authority, &authority.issue(&["127.0.0.1"]), "yes");
    let builder = || trusting(&server.url(), &authority);
    let ours = authority.issue(&["us"]);

    let locks = builder().tls_client_cert(&ours.certificate, &ours.key).connect().await.unwrap();
    locks.on(&unique_key("tls")).acquire().await.unwrap().release().await.unwrap();

    let text = refused(builder()).await;
    assert!(text.contains("asks for a client certificate"), "{text}");
    let theirs = other.issue(&["us"]);
    let text = refused(builder().tls_client_cert(&theirs.certificate, &theirs.key)).await;
    assert!(text.contains("does not accept our client certificate"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_cannot_be_trusted_is_told_with_the_remedy() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let server = TlsServer::start(&authority, &authority.issue(&["127.0.0.1"]), "no");
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let in_clear = format!("rediss://127.0.0.1:{}/", server.server.port());
    for (builder, told) in [
        (trusting(&server.url(), &other), "issuer that is not trusted here"),
        (trusting(&by_name, &authority), "is for another host"),
        (trusting(&in_clear, &authority), "does it speak TLS on this port?"),
    ] {
        let text = refused(builder).await;
        assert!(text.contains(told), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_are_spoken_to_over_tls() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let server = TlsServer::start(&authority, &authority.issue(&["127.0.0.1"]), "no");
    let sentinel = server.sentinel();
    let url = format!("rediss-sentinel://127.0.0.1:{}/orders", sentinel.port);
    let builder = || trusting(&url, &authority);
    eventually("the sentinel is up", Duration::from_secs(20), async || {
        builder().connect().await.is_ok()
    })
    .await;
    let locks = builder().build().unwrap();
    locks.on(&unique_key("tls")).acquire().await.unwrap().release().await.unwrap();

    let text = refused(trusting(&url, &other)).await;
    assert!(text.contains("(a sentinel) comes from an issuer that is not trusted here"), "{text}");
}

#[test]
fn certificates_that_cannot_be_used_are_refused_before_anything_is_connected() {
    let authority = Authority::new("ours");
    let [ours, others] = [(); 2].map(|()| authority.issue(&["us"]));
    let builder = || LockClient::builder().url("rediss://127.0.0.1/");
    for (builder, told) in [
        (builder().tls_root_cert("nothing"), "tls_root_cert has no certificate"),
        (builder().tls_root_cert(&ours.key), "tls_root_cert has no certificate"),
        (
            trusting("rediss://127.0.0.1/", &authority)
                .tls_client_cert(&ours.certificate, &ours.certificate),
            "tls_client_cert has no private key",
        ),
        (
            trusting("rediss://127.0.0.1/", &authority)
                .tls_client_cert(&ours.certificate, &others.key),
            "do not go together",
        ),
        (trusting("redis://127.0.0.1/", &authority), "write rediss://"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Config);
        assert!(error.to_string().contains(told), "{error}");
        assert!(!format!("{error:?}").contains("PRIVATE KEY"), "{error:?}");
    }
}
