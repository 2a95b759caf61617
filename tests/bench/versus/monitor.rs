//! Counts the commands that clients send, as MONITOR shows them: what scripts call by themselves is
//! marked there, and INFO counts it like the rest.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::server::Server;

/// A count that runs from [`start`](Self::start) to the drop.
#[derive(Debug)]
pub(crate) struct Monitor {
    stream: TcpStream,
    marks: Receiver<u64>,
}

impl Monitor {
    pub(crate) fn start(server: &Server) -> Self {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("the server runs");
        stream.write_all(b"MONITOR\r\n").expect("the server runs");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket of ours"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("the server answers");
        let (sender, marks) = channel();
        thread::spawn(move || {
            let mut count = 0;
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line);
                if text.contains(MARK) {
                    if sender.send(count).is_err() {
                        return;
                    }
                } else if is_sent(&text) {
                    count += 1;
                }
                line.clear();
            }
        });
        Self { stream, marks }
    }

    /// How many commands were sent so far.
    pub(crate) fn count(&self, server: &mut Server) -> f64 {
        server.echo(MARK);
        self.marks.recv().expect("the server runs") as f64
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// `1700000000.123456 [0 127.0.0.1:50000] "SET" ...`, not from a script, not of the harness.
fn is_sent(line: &str) -> bool {
    let Some((_, rest)) = line.split_once('[') else { return false };
    let Some((source, command)) = rest.split_once(']') else { return false };
    !source.ends_with("lua") && !command.starts_with(" \"INFO\"")
}

const MARK: &str = "distlock-bench-mark";
