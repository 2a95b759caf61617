//! A service under real sentinels: a master, two replicas, three sentinels.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use redis::{ConnectionLike, FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::port::free_port;
use super::redis_server::{Data, RedisServer};

/// The servers and sentinels of one service. All end with it.
///
/// All methods block, some for seconds, and need no async runtime.
#[derive(Debug)]
pub(crate) struct SentinelSetup {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
    options: SentinelOptions,
}

/// What a test wants of it.
#[derive(Clone, Debug)]
pub(crate) struct SentinelOptions {
    /// After what silence a sentinel takes the master for dead.
    pub(crate) down_after: Duration,
    /// For every server and sentinel, such as TLS.
    pub(crate) arguments: Vec<String>,
    /// For servers and sentinels, if there are any: different ones.
    pub(crate) passwords: Option<(String, String)>,
}

/// One sentinel, with its files in a folder of its own.
#[derive(Debug)]
struct Sentinel {
    port: u16,
    child: Mutex<Option<Child>>,
    folder: TempDir,
}

impl Default for SentinelOptions {
    fn default() -> Self {
        Self { down_after: Duration::from_millis(500), arguments: Vec::new(), passwords: None }
    }
}

impl SentinelSetup {
    pub(crate) const SERVICE: &str = "orders";

    pub(crate) fn start() -> Self {
        Self::with(SentinelOptions::default())
    }

    /// Returns once the sentinels know each other and the replicas are in step.
    pub(crate) fn with(options: SentinelOptions) -> Self {
        let mut arguments = vec!["--repl-diskless-sync-delay", "0"];
        arguments.extend(options.arguments.iter().map(String::as_str));
        if let Some((servers, _)) = &options.passwords {
            arguments.extend(["--requirepass", servers, "--masterauth", servers]);
        }
        let servers: Vec<_> =
            (0..SERVERS).map(|_| RedisServer::with_arguments(&arguments)).collect();
        let mut setup = Self { servers, sentinels: Vec::new(), options };
        for replica in 1..SERVERS {
            setup.follow(replica, 0);
        }
        setup.wait_for_replicas(0);
        let ports: Vec<_> = (0..SENTINELS).map(|_| free_port()).collect();
        setup.sentinels =
            (0..SENTINELS).map(|index| Sentinel::start(&setup, index, &ports)).collect();
        setup.wait_until_whole();
        setup
    }

    /// The URL for a client.
    pub(crate) fn url(&self) -> String {
        match &self.options.passwords {
            None => self.url_for(Self::SERVICE),
            Some((servers, sentinels)) => format!(
                "redis-sentinel://:{servers}@{}/{}?sentinel_password={sentinels}",
                self.hosts(),
                Self::SERVICE
            ),
        }
    }

    /// The URL for a client of a service of another name, without passwords.
    pub(crate) fn url_for(&self, service: &str) -> String {
        format!("redis-sentinel://{}/{service}", self.hosts())
    }

    /// The sentinels, as in a URL.
    pub(crate) fn hosts(&self) -> String {
        let hosts = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The master, as the sentinels that run see it; `None` if they disagree, as they do for a moment
    /// in a failover.
    pub(crate) fn master(&self) -> Option<&RedisServer> {
        let answers: Vec<Option<(String, u16)>> = self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.runs())
            .filter_map(|sentinel| {
                let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE];
                self.run(sentinel.port, false, &asked).ok()
            })
            .collect();
        let (_, port) = answers.first()?.clone()?;
        let agree = answers.iter().all(|answer| answer.as_ref().is_some_and(|(_, p)| *p == port));
        self.servers.iter().find(|server| agree && server.port() == port)
    }

    /// Waits until all sentinels that run name one master, other than `former` if that is given.
    pub(crate) fn wait_for_master(&self, former: Option<u16>) -> &RedisServer {
        let start = Instant::now();
        loop {
            if let Some(master) = self.master().filter(|master| Some(master.port()) != former) {
                return master;
            }
            assert!(start.elapsed() < LIMIT, "the sentinels name no new master within {LIMIT:?}");
            thread::sleep(POLL_EVERY);
        }
    }

    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Kills the master. Returns its port; the failover begins when the sentinels have noticed.
    pub(crate) fn kill_master(&self) -> u16 {
        let master = self.wait_for_master(None);
        master.kill();
        master.port()
    }

    /// Freezes the master: its connections stay, and nothing is answered. Returns its port.
    pub(crate) fn pause_master(&self) -> u16 {
        let master = self.wait_for_master(None);
        master.pause();
        master.port()
    }

    /// Has the sentinels replace the master, which goes on as a replica. Returns its port.
    pub(crate) fn order_failover(&self) -> u16 {
        let former = self.wait_for_master(None).port();
        let start = Instant::now();
        loop {
            let port = self.sentinels.iter().find(|sentinel| sentinel.runs()).map(|s| s.port);
            let asked = ["SENTINEL", "FAILOVER", Self::SERVICE];
            match self.run::<String>(port.expect("a sentinel runs"), false, &asked) {
                Ok(_) => return former,
                // The last one is not over yet, or no replica is good enough yet.
                Err(error) => assert!(start.elapsed() < LIMIT, "no failover: {error}"),
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Starts servers again that were killed, as replicas of the present master, and waits until all
    /// are ready for the next failover.
    pub(crate) fn heal(&self) {
        let master = self.wait_for_master(None).port();
        let master = self.index_of(master);
        for (index, server) in self.servers.iter().enumerate() {
            if self.run::<String>(server.port(), true, &["PING"]).is_err() {
                server.restart(Data::Lost);
                self.follow(index, master);
            }
        }
        self.wait_for_replicas(master);
        self.wait_until_whole();
    }

    /// Ends a sentinel.
    pub(crate) fn kill_sentinel(&self, index: usize) {
        self.sentinels[index].kill();
    }

    /// Freezes a sentinel (SIGSTOP): it accepts connections and answers nothing.
    pub(crate) fn pause_sentinel(&self, index: usize) {
        self.sentinels[index].signal(Signal::STOP);
    }

    pub(crate) fn resume_sentinel(&self, index: usize) {
        self.sentinels[index].signal(Signal::CONT);
    }

    /// Runs a command at a server as its administrator.
    pub(crate) fn run_at<T: FromRedisValue>(&self, server: &RedisServer, words: &[&str]) -> T {
        self.run(server.port(), true, words).unwrap()
    }

    /// Runs a command at each sentinel that runs, as its administrator.
    pub(crate) fn run_at_sentinels<T: FromRedisValue>(&self, words: &[&str]) -> Vec<T> {
        let running = self.sentinels.iter().filter(|sentinel| sentinel.runs());
        running.map(|sentinel| self.run(sentinel.port, false, words).unwrap()).collect()
    }

    fn index_of(&self, port: u16) -> usize {
        self.servers.iter().position(|server| server.port() == port).expect("one of ours")
    }

    fn follow(&self, replica: usize, master: usize) {
        let port = self.servers[master].port().to_string();
        self.run_at::<()>(&self.servers[replica], &["REPLICAOF", "127.0.0.1", &port]);
    }

    /// Waits until all others are in step with `master`.
    fn wait_for_replicas(&self, master: usize) {
        let start = Instant::now();
        let online = || {
            let info: String = self.run_at(&self.servers[master], &["INFO", "replication"]);
            info.matches("state=online").count()
        };
        while online() < SERVERS - 1 {
            assert!(start.elapsed() < LIMIT, "no replicas within {LIMIT:?}");
            thread::sleep(POLL_EVERY);
        }
    }

    /// Waits until every sentinel that runs could lead a failover.
    fn wait_until_whole(&self) {
        let start = Instant::now();
        let is_ready = |sentinel: &Sentinel| {
            let quorum = ["SENTINEL", "CKQUORUM", Self::SERVICE];
            let quorum = self.run::<String>(sentinel.port, false, &quorum).is_ok();
            let replicas = ["SENTINEL", "REPLICAS", Self::SERVICE];
            let replicas: Vec<HashMap<String, String>> =
                self.run(sentinel.port, false, &replicas).unwrap_or_default();
            let ready = replicas.iter().filter(|replica| {
                replica["flags"] == "slave" && replica["master-link-status"] == "ok"
            });
            quorum && ready.count() == SERVERS - 1
        };
        while !self.sentinels.iter().filter(|sentinel| sentinel.runs()).all(is_ready) {
            assert!(start.elapsed() < LIMIT, "the sentinels are not ready within {LIMIT:?}");
            thread::sleep(POLL_EVERY);
        }
    }

    fn run<T: FromRedisValue>(&self, port: u16, is_server: bool, words: &[&str]) -> RedisResult<T> {
        let passwords = self.options.passwords.as_ref();
        let password = passwords.map(|(servers, sentinels)| {
            let password = if is_server { servers } else { sentinels };
            format!(":{password}@")
        });
        let url = format!("redis://{}127.0.0.1:{port}/", password.unwrap_or_default());
        let client = redis::Client::open(url)?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        let reply = connection.req_command(redis::cmd(words[0]).arg(&words[1..]))?;
        Ok(redis::from_redis_value(reply)?)
    }
}

impl Sentinel {
    fn start(setup: &SentinelSetup, index: usize, ports: &[u16]) -> Self {
        let folder = TempDir::with_prefix("distlock-sentinel-").expect("a temporary folder");
        let port = ports[index];
        let config = folder.path().join("sentinel.conf");
        fs::write(&config, configuration(setup, index, ports)).expect("our own folder");
        let child = spawn(&config, setup, port);
        Self { port, child: Mutex::new(Some(child)), folder }
    }

    fn runs(&self) -> bool {
        self.child().is_some()
    }

    fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            child.kill().expect("the sentinel is our child");
            child.wait().expect("the sentinel is our child");
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child();
        let child = child.as_ref().expect("the sentinel runs");
        kill_process(Pid::from_child(child), signal).expect("the sentinel is our child");
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Names the replicas and the other sentinels, which they would find out in some seconds else.
fn configuration(setup: &SentinelSetup, index: usize, ports: &[u16]) -> String {
    let service = SentinelSetup::SERVICE;
    let id = |index: usize| format!("{:040x}", index + 1);
    let mut lines = vec![
        format!("port {}", ports[index]),
        "bind 127.0.0.1".to_owned(),
        format!("sentinel myid {}", id(index)),
        format!("sentinel monitor {service} 127.0.0.1 {} 2", setup.servers[0].port()),
        format!(
            "sentinel down-after-milliseconds {service} {}",
            setup.options.down_after.as_millis()
        ),
        format!("sentinel failover-timeout {service} 3000"),
    ];
    lines.extend(
        setup.servers[1..].iter().map(|replica| {
            format!("sentinel known-replica {service} 127.0.0.1 {}", replica.port())
        }),
    );
    lines.extend(ports.iter().enumerate().filter(|(other, _)| *other != index).map(
        |(other, port)| format!("sentinel known-sentinel {service} 127.0.0.1 {port} {}", id(other)),
    ));
    if let Some((servers, sentinels)) = &setup.options.passwords {
        lines.push(format!("sentinel auth-pass {service} {servers}"));
        lines.push(format!("requirepass {sentinels}"));
    }
    lines.join("\n") + "\n"
}

fn spawn(config: &PathBuf, setup: &SentinelSetup, port: u16) -> Child {
    let folder = config.parent().expect("a file in a folder");
    let log = folder.join("sentinel.log");
    let mut child = Command::new("redis-server")
        .arg(config)
        .arg("--sentinel")
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(&log)
        .args(&setup.options.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("cannot start redis-server ({error}): run ./tests/run, which installs it")
        });
    let start = Instant::now();
    // That it is ours who answers there: the sentinels' ids are checked when they meet.
    while setup.run::<String>(port, false, &["PING"]).is_err() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let ended = child.try_wait().expect("the sentinel is our child").is_some();
        if ended || start.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the sentinel on {} did not start; its log:\n{log}", address(port));
        }
        thread::sleep(POLL_EVERY);
    }
    child
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
const POLL_EVERY: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(30);
