//! Listens to the bodies, outside of the store that is put to the test.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{io, thread};

use crate::clock;
use crate::judge::Judge;
use crate::report::Report;

/// Where reports come in; the judge hears them.
pub(crate) struct Witness {
    judge: Arc<Mutex<Judge>>,
    socket: PathBuf,
}

impl Witness {
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let socket = folder.join("witness");
        let listener = UnixListener::bind(&socket)?;
        let judge = Arc::new(Mutex::new(Judge::new(clock::now())));
        let for_thread = Arc::clone(&judge);
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let judge = Arc::clone(&for_thread);
                thread::spawn(move || listen(stream, &judge));
            }
        });
        Ok(Self { judge, socket })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn listen(stream: UnixStream, judge: &Mutex<Judge>) {
    let mut reports = BufReader::new(stream);
    let mut line = String::new();
    while reports.read_line(&mut line).is_ok_and(|length| length > 0) {
        // Of a killed process the last line may be cut.
        if let Some(report) = line.strip_suffix('\n').and_then(|line| line.parse::<Report>().ok()) {
            judge.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).hear(report);
        }
        line.clear();
    }
}
