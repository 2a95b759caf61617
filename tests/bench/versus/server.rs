//! The redis-server that all contestants share, and questions to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server on a free port, which ends with this.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    process: Child,
    questions: BufReader<TcpStream>,
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for _ in 0..PORT_TRIES {
            let port = free_port();
            let mut process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--appendonly", "no", "--loglevel", "warning", "--maxclients", "10000"])
                .arg("--dir")
                .arg(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            if let Some(stream) = connect(port, &mut process) {
                let questions = BufReader::new(stream);
                return Self { port, process, questions, _folder: folder };
            }
        }
        panic!("redis-server did not start on any of {PORT_TRIES} ports");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// CPU time of the server so far, in nanoseconds.
    pub(crate) fn cpu_ns(&mut self) -> f64 {
        let info = self.ask("INFO cpu");
        1e9 * (field(&info, "used_cpu_user:") + field(&info, "used_cpu_sys:"))
    }

    /// How many connections there are, without those of the harness.
    pub(crate) fn connections(&mut self) -> f64 {
        field(&self.ask("INFO clients"), "connected_clients:") - 1.0
    }

    /// Counts the calls that occupy the server for more than a millisecond, from here on.
    pub(crate) fn watch_slow_calls(&mut self) {
        self.ask("CONFIG SET slowlog-log-slower-than 1000");
        self.ask("SLOWLOG RESET");
    }

    /// How many such calls there were; the log keeps 128.
    pub(crate) fn slow_calls(&mut self) -> f64 {
        self.ask("SLOWLOG LEN").trim_start_matches(':').parse().unwrap_or(f64::NAN)
    }

    pub(crate) fn forget_everything(&mut self) {
        self.ask("FLUSHALL");
    }

    /// Makes the monitor see `text`.
    pub(crate) fn echo(&mut self, text: &str) {
        self.ask(&format!("ECHO {text}"));
    }

    /// Sends one inline command and reads its reply: a status, or a text.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        let line = format!("{command}\r\n");
        self.questions.get_mut().write_all(line.as_bytes()).expect("the server runs");
        let mut first = String::new();
        self.questions.read_line(&mut first).expect("the server answers");
        let Some(length) = first.strip_prefix('$') else {
            return first.trim_end().to_owned();
        };
        let length: usize = length.trim_end().parse().expect("a bulk reply has a length");
        let mut text = vec![0; length + 2];
        self.questions.read_exact(&mut text).expect("the server answers");
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connect(port: u16, process: &mut Child) -> Option<TcpStream> {
    let begun_at = Instant::now();
    while begun_at.elapsed() < START_LIMIT {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            stream.set_nodelay(true).expect("a socket of ours");
            return Some(stream);
        }
        if process.try_wait().ok()?.is_some() {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

fn field(info: &str, name: &str) -> f64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(f64::NAN)
}

const PORT_TRIES: usize = 10;
const START_LIMIT: Duration = Duration::from_secs(10);
