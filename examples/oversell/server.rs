//! The Redis server of the run: the one of `REDIS_URL`, or one of our own that ends with the run.

use std::env;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server that the instances can reach.
pub(crate) struct Server {
    pub(crate) url: String,
    client: redis::Client,
    own: Option<Child>,
}

impl Server {
    /// Finds or starts a server; `None` if there is neither a `REDIS_URL` nor a `redis-server`.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        if let Ok(url) = env::var("REDIS_URL") {
            let client = redis::Client::open(&*url)
                .map_err(|error| format!("REDIS_URL needs the form redis://host:port/: {error}"))?;
            client
                .get_connection_with_timeout(PATIENCE)
                .map_err(|error| format!("cannot reach the server of REDIS_URL: {error}"))?;
            return Ok(Some(Self { url, client, own: None }));
        }
        for _ in 0..PORT_TRIES {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--appendonly", "no", "--daemonize", "no"])
                .arg("--dir")
                .arg(folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let process = match process {
                Ok(process) => process,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(format!("cannot start redis-server: {error}").into()),
            };
            let url = format!("redis://127.0.0.1:{port}/");
            let client = redis::Client::open(&*url)?;
            let mut server = Self { url, client, own: Some(process) };
            if server.is_up() {
                return Ok(Some(server));
            }
        }
        Err("redis-server does not start".into())
    }

    /// Whether the server was started for this run.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// The value of a key: for a lock the name of its owner.
    pub(crate) fn value(&self, key: &str) -> redis::RedisResult<Option<String>> {
        let mut connection = self.client.get_connection_with_timeout(PATIENCE)?;
        redis::cmd("GET").arg(key).query(&mut connection)
    }

    /// Waits until the server answers; false if it has ended, as when another has taken the port.
    fn is_up(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let Some(process) = &mut self.own else { return true };
            if !matches!(process.try_wait(), Ok(None)) {
                return false;
            }
            let id = format!("process_id:{}\r\n", process.id());
            let info =
                self.client.get_connection_with_timeout(PATIENCE).and_then(|mut connection| {
                    redis::cmd("INFO").arg("server").query::<String>(&mut connection)
                });
            if info.is_ok_and(|info| info.contains(&id)) {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.own {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const PORT_TRIES: usize = 5;
