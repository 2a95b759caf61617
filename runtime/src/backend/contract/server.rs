//! A redis-server of a test's own.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use crate::backend::redis::{RedisBackend, RedisConfig, config_from_url};

/// Killed when dropped.
pub(crate) struct RedisServer {
    process: Mutex<Child>,
    port: u16,
    directory: PathBuf,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(settings: &[&str]) -> Self {
        // The port is free now and may not be a moment later.
        for _ in 0..10 {
            if let Some(server) = Self::try_start(settings) {
                return server;
            }
        }
        panic!("redis-server did not start on any of ten free ports");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn config(&self) -> RedisConfig {
        config_from_url(&self.url()).unwrap()
    }

    pub(crate) fn backend(&self) -> RedisBackend {
        RedisBackend::new(self.config())
    }

    /// Runs a command as the server's administrator.
    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap()
    }

    /// Stops the process without ending it: connections stay, answers do not come.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// The port.
    #[cfg(feature = "cluster")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn try_start(settings: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::try_start_on(port, settings)
    }

    /// `None` if the port was taken meanwhile.
    pub(crate) fn try_start_on(port: u16, settings: &[&str]) -> Option<Self> {
        let directory = env::temp_dir().join(format!("distlock-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(&directory)
            .args(settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "cannot start redis-server ({error}): these tests need it on the PATH; install \
                     it with `apt-get install redis-server` or `brew install redis`"
                )
            });
        let server = Self { process: Mutex::new(process), port, directory };
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            // Its own process id: another server may have taken the port.
            if server.try_run::<String>(&["INFO", "server"]).is_ok_and(|info| {
                info.contains(&format!("process_id:{}\r", server.process.lock().unwrap().id()))
            }) {
                return Some(server);
            }
            if server.process.lock().unwrap().try_wait().unwrap().is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(crate) fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut connection)
    }

    fn signal(&self, signal: &str) {
        let id = self.process.lock().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap();
        let _ = process.kill();
        let _ = process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
