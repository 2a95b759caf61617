//! Which commands clients send to a server, seen by MONITOR.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::eventually::unique_key;
use super::redis_server::RedisServer;

/// A log of the commands that clients send to a server; what a script runs inside it does not count.
///
/// It lasts until it is dropped or the server ends. Its methods block for about a round trip and need
/// no async runtime.
#[derive(Debug)]
pub(crate) struct CommandLog {
    seen: Arc<Seen>,
    monitor: TcpStream,
    /// Where the marks are sent.
    marker: Mutex<TcpStream>,
}

/// A moment in the log.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Mark(usize);

#[derive(Debug, Default)]
struct Seen {
    commands: Mutex<Vec<String>>,
    more: Condvar,
}

impl CommandLog {
    /// Starts a log; what is sent after this is in it.
    pub(crate) fn start(server: &RedisServer) -> Self {
        let connect = || TcpStream::connect(server.address()).expect("the server runs");
        let mut monitor = connect();
        monitor.write_all(b"MONITOR\r\n").expect("the server runs");
        let mut lines = BufReader::new(monitor.try_clone().expect("a socket"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("the server runs");
        assert_eq!(first, "+OK\r\n", "MONITOR was refused");
        let seen = Arc::new(Seen::default());
        let for_thread = Arc::clone(&seen);
        thread::spawn(move || {
            // Not `lines()`: a line that is no UTF-8 must not end the log. It cannot come, since
            // MONITOR escapes, but an error here would be silent.
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                if let Some(command) = command_of_client(line.trim_end()) {
                    for_thread.commands().push(command);
                    for_thread.more.notify_all();
                }
                line.clear();
            }
        });
        Self { seen, monitor, marker: Mutex::new(connect()) }
    }

    /// Marks the present moment: what the server has run by now stands before the mark.
    pub(crate) fn mark(&self) -> Mark {
        let name = unique_key("mark");
        let request = format!("ECHO {name}\r\n");
        self.marker.lock().unwrap().write_all(request.as_bytes()).expect("the server runs");
        let is_mark = |command: &String| command.starts_with("ECHO ") && command.ends_with(&name);
        let index = self.wait("the mark", |commands| commands.iter().rposition(is_mark));
        Mark(index + 1)
    }

    /// The commands since `mark`, each with its arguments joined by blanks, in the order in which the
    /// server ran them.
    pub(crate) fn since(&self, mark: Mark) -> Vec<String> {
        self.between(mark, self.mark())
    }

    /// The commands between two marks.
    pub(crate) fn between(&self, start: Mark, end: Mark) -> Vec<String> {
        let commands = self.seen.commands();
        commands[start.0..end.0].iter().filter(|command| !is_any_mark(command)).cloned().collect()
    }

    /// Waits until a command after `mark` begins with `start`, such as `"EVALSHA"`.
    pub(crate) fn wait_for(&self, mark: Mark, start: &str) -> String {
        self.wait(start, |commands| {
            commands[mark.0..].iter().find(|command| command.starts_with(start)).cloned()
        })
    }

    fn wait<T>(&self, what: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        let start = Instant::now();
        let mut commands = self.seen.commands();
        loop {
            if let Some(found) = find(&commands) {
                return found;
            }
            let left = LIMIT.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| panic!("not seen within {LIMIT:?}: {what}"));
            commands = self.seen.more.wait_timeout(commands, left).unwrap().0;
        }
    }
}

impl Drop for CommandLog {
    fn drop(&mut self) {
        // Ends the thread that reads.
        let _ = self.monitor.shutdown(std::net::Shutdown::Both);
    }
}

impl Seen {
    fn commands(&self) -> MutexGuard<'_, Vec<String>> {
        self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Reads `+1700000000.123456 [0 127.0.0.1:1234] "SET" "a key" "1"`; `None` for what a script sent.
fn command_of_client(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    let (client, rest) = rest.split_once("] ")?;
    if client.split_whitespace().nth(1) == Some("lua") {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    let mut inside = false;
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match (inside, character) {
            (false, '"') => {
                inside = true;
                words.push(String::new());
            }
            (true, '"') => inside = false,
            (true, character) => {
                let word = words.last_mut().expect("pushed at the opening quote");
                match character {
                    '\\' => unescape(&mut characters, word),
                    character => word.push(character),
                }
            }
            (false, _) => {}
        }
    }
    if let Some(command) = words.first_mut() {
        command.make_ascii_uppercase();
    }
    Some(words.join(" "))
}

fn unescape(characters: &mut std::str::Chars<'_>, word: &mut String) {
    match characters.next() {
        Some('n') => word.push('\n'),
        Some('r') => word.push('\r'),
        Some('t') => word.push('\t'),
        // A byte that is no printable ASCII stays as it is printed: `\xc3`.
        Some('x') => word.push_str("\\x"),
        Some(other) => word.push(other),
        None => {}
    }
}

fn is_any_mark(command: &str) -> bool {
    command.starts_with("ECHO mark:")
}

const LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_clients_are_read_and_those_of_scripts_skipped() {
        let read = |line| command_of_client(line);
        assert_eq!(
            read(r#"+1.2 [0 127.0.0.1:1] "set" "a \"b\"" "\\ \xc3""#).as_deref(),
            Some(r#"SET a "b" \ \xc3"#)
        );
        assert_eq!(read(r#"+1.2 [0 lua] "get" "a""#), None);
    }
}
