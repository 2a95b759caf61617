//! A real redis-server of the test's own, that can be stopped, frozen and started again.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::port::free_port;

/// A redis-server on a free port, with its files in a folder of its own. Both end with it.
///
/// All methods block for some milliseconds and need no async runtime.
#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    arguments: Vec<String>,
    folder: TempDir,
    child: Mutex<Option<Child>>,
}

/// What a restart does with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// What the server had written to disk is loaded again: everything, if [`RedisServer::durable`].
    Kept,
    /// The server starts empty.
    Lost,
}

impl RedisServer {
    /// Starts a server that writes nothing to disk.
    pub(crate) fn start() -> Self {
        Self::with_arguments(&[])
    }

    /// Starts a server that has every write on disk before it answers.
    pub(crate) fn durable() -> Self {
        Self::with_arguments(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with further arguments, such as `["--requirepass", "secret"]`.
    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        let folder = TempDir::with_prefix("distlock-redis-").expect("a temporary folder");
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        for _ in 0..PORT_TRIES {
            let port = free_port();
            if let Some(child) = spawn(port, &arguments, folder.path()) {
                return Self { port, arguments, folder, child: Mutex::new(Some(child)) };
            }
        }
        panic!("no port for redis-server: {PORT_TRIES} were taken by others before it could bind");
    }

    /// The server that the tests of this process share: for tests that keep to keys of their own and
    /// neither disturb the server nor count its commands. It ends with its last user.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// The URL for a client.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The folder with the server's files, such as its log.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A connection of the test's own, which is patient: what it looks at is the library's time.
    pub(crate) async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("our own URL");
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        connected.expect("a connection to our own server")
    }

    /// Freezes the server (SIGSTOP): connections stay open and are accepted, nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen server run on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether it was started and not killed since.
    pub(crate) fn runs(&self) -> bool {
        self.child().is_some()
    }

    /// Ends the server at once (SIGKILL). Does nothing if it does not run.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            child.kill().expect("the server is our child");
            child.wait().expect("the server is our child");
        }
    }

    /// Ends the server, if it runs, and starts it again on the same port.
    pub(crate) fn restart(&self, data: Data) {
        self.kill();
        if data == Data::Lost {
            for entry in fs::read_dir(self.folder()).expect("our own folder") {
                let path = entry.expect("our own folder").path();
                let removed =
                    if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
            }
        }
        let child = spawn(self.port, &self.arguments, self.folder()).unwrap_or_else(|| {
            panic!("port {} was taken by another process during the restart", self.port)
        });
        *self.child() = Some(child);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child();
        let child = child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).expect("the server is our child");
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        // A test that panicked elsewhere must still end its server.
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a server and waits until it answers. `None` if another process has the port.
fn spawn(port: u16, arguments: &[String], folder: &Path) -> Option<Child> {
    let log = folder.join("redis.log");
    // Of an earlier run on the same folder; its lines would be taken for ours.
    let _ = fs::remove_file(&log);
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--daemonize", "no", "--loglevel", "notice"])
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(&log)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("cannot start redis-server ({error}): run ./tests/run, which installs it")
        });
    let start = Instant::now();
    loop {
        let log = fs::read_to_string(&log).unwrap_or_default();
        // The log, and not an answer on the port alone, proves that the answer is ours.
        if log.contains("Ready to accept connections") && answers(port) {
            return Some(child);
        }
        if let Some(status) = child.try_wait().expect("the server is our child") {
            if log.contains("Address already in use") {
                return None;
            }
            panic!(
                "redis-server ended at start, {status}; its arguments: {arguments:?}; its log:\n{log}"
            );
        }
        if start.elapsed() > START_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("redis-server was not ready within {START_LIMIT:?}; its log:\n{log}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether PING gets an answer, be it "-NOAUTH".
fn answers(port: u16) -> bool {
    let ping = || -> io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 8];
        let length = stream.read(&mut answer)?;
        Ok(length > 0 && !answer.starts_with(b"-LOADING"))
    };
    ping().unwrap_or(false)
}

const PORT_TRIES: usize = 50;
const START_LIMIT: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);
