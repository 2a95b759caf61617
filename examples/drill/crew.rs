//! The processes of the drill, each behind a proxy of its own, and the server they all use.

use std::error::Error;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clock;
use crate::fault::{Fault, Kind};
use crate::plan::Plan;
use crate::support::{Data, Proxy, RedisServer};
use crate::witness::Witness;
use crate::work;
use crate::worker::{Order, VARIABLE};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) struct Crew<'a> {
    plan: &'a Plan,
    /// How this program starts itself as a worker.
    program: &'a dyn Fn() -> Command,
    server: RedisServer,
    members: Vec<Member>,
    pub(crate) witness: Witness,
    /// Of the witness's socket; goes last.
    _folder: TempDir,
}

struct Member {
    number: u32,
    starts: u32,
    proxy: Proxy,
    child: Option<Child>,
    frozen: bool,
}

impl<'a> Crew<'a> {
    pub(crate) fn start(plan: &'a Plan, program: &'a dyn Fn() -> Command) -> Result<Self> {
        let folder = TempDir::with_prefix("drill-")?;
        let server = RedisServer::durable();
        let members = (0..plan.processes).map(|number| Member {
            number,
            starts: 0,
            proxy: Proxy::start(server.address()),
            child: None,
            frozen: false,
        });
        let members = members.collect();
        let witness = Witness::start(folder.path())?;
        let mut crew = Self { plan, program, server, members, witness, _folder: folder };
        for number in 0..plan.processes {
            crew.start_process(number)?;
        }
        Ok(crew)
    }

    /// Makes a fault happen.
    pub(crate) fn begin(&mut self, fault: &Fault) -> Result<()> {
        let from = clock::now();
        self.witness.judge().fault_begins(fault.kind, from);
        let key = work::key(fault.key);
        let key = key.as_str();
        match fault.kind {
            Kind::Kill => self.each(fault, Self::kill)?,
            Kind::Freeze => self.each(fault, Self::freeze)?,
            Kind::Cut => self.each_proxy(fault, Proxy::cut),
            Kind::Reset => self.each_proxy(fault, Proxy::reset),
            Kind::Delay => self.each_proxy(fault, |proxy| {
                proxy.delay_requests(fault.delay);
                proxy.delay_replies(fault.delay);
            }),
            Kind::Blackhole => self.each_proxy(fault, Proxy::blackhole),
            Kind::Stall => self.each_proxy(fault, Proxy::stall),
            Kind::Refuse => self.each_proxy(fault, |proxy| {
                proxy.refuse();
                proxy.cut();
            }),
            Kind::DropReplies => self.each_proxy(fault, |proxy| {
                proxy.drop_next_reply("SET");
                proxy.drop_next_reply("EVALSHA");
                proxy.cut_at_next_reply("EVALSHA");
            }),
            Kind::PauseRedis => self.server.pause(),
            Kind::RestartRedis | Kind::RestartEmpty => self.server.kill(),
            Kind::Flush => self.ask::<()>(&["FLUSHALL"])?,
            Kind::Delete => self.ask::<()>(&["DEL", key])?,
            Kind::Overwrite => {
                let milliseconds = fault.lasts.as_millis().max(1).to_string();
                self.ask::<()>(&["SET", key, "another program", "PX", &milliseconds])?;
            }
            Kind::Replace => {
                let script = "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'no lock')";
                self.ask::<()>(&["EVAL", script, "1", key])?;
            }
            Kind::ScriptFlush => self.ask::<()>(&["SCRIPT", "FLUSH"])?,
            Kind::ClientKill => {
                self.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal"])?;
                self.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
            }
            Kind::SubscriberKill => self.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"])?,
            Kind::LoseCounters => {
                self.ask::<()>(&["DEL", "distlock:fence"])?;
            }
        }
        if fault.kind == Kind::Flush || fault.kind.is_by_hand() {
            let key = fault.kind.is_by_hand().then_some(fault.key);
            self.witness.judge().locks_lost(fault.kind, key, from, clock::now());
        }
        if fault.kind == Kind::RestartEmpty {
            // Until it is back nobody can tell when it ends.
            self.witness.judge().locks_lost(
                fault.kind,
                None,
                from,
                from + clock::nanos(fault.lasts),
            );
        }
        Ok(())
    }

    /// Ends a fault.
    pub(crate) fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault.kind {
            Kind::Kill => self.each(fault, Self::start_process)?,
            Kind::Freeze => self.each(fault, Self::thaw)?,
            Kind::Delay | Kind::Blackhole | Kind::Stall | Kind::Refuse | Kind::DropReplies => {
                self.each_proxy(fault, Proxy::heal);
            }
            Kind::PauseRedis => self.server.resume(),
            Kind::RestartRedis => self.server.restart(Data::Kept),
            Kind::RestartEmpty => self.server.restart(Data::Lost),
            Kind::Replace => {
                let script = "if redis.call('TYPE', KEYS[1]).ok == 'list' then \
                              redis.call('DEL', KEYS[1]) end";
                self.ask::<()>(&["EVAL", script, "1", work::key(fault.key).as_str()])?;
            }
            Kind::ClientKill
            | Kind::Cut
            | Kind::Delete
            | Kind::Flush
            | Kind::LoseCounters
            | Kind::Overwrite
            | Kind::Reset
            | Kind::ScriptFlush
            | Kind::SubscriberKill => {}
        }
        Ok(())
    }

    /// Whether all those that a fault can have touched have done work that began after `since`.
    pub(crate) fn have_worked(&self, since: clock::Moment) -> bool {
        self.witness.judge().have_worked(since, 0..self.plan.processes, 0..self.plan.keys)
    }

    /// Fails if a process ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(child) = &mut member.child
                && let Some(status) = child.try_wait()?
            {
                return Err(format!("process {} ended by itself: {status}", member.number).into());
            }
        }
        Ok(())
    }

    /// Tells all processes to end in order, and waits until they have.
    pub(crate) fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(child) = &mut member.child {
                child.stdin.as_mut().ok_or("the worker listens")?.write_all(b"stop\n")?;
            }
        }
        let start = Instant::now();
        for member in &mut self.members {
            let Some(mut child) = member.child.take() else { continue };
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if start.elapsed() > STOP_WITHIN {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("process {} does not end", member.number).into());
                }
                thread::sleep(Duration::from_millis(10));
            };
            if !status.success() {
                return Err(format!("process {} ended with {status}", member.number).into());
            }
        }
        Ok(())
    }

    /// What stands in the store, but for the counters of the fencing tokens.
    pub(crate) fn left_behind(&self) -> Result<Vec<String>> {
        let keys: Vec<String> = self.ask(&["KEYS", "*"])?;
        Ok(keys.into_iter().filter(|key| key != "distlock:fence").collect())
    }

    fn start_process(&mut self, number: u32) -> Result<()> {
        let member = &mut self.members[number as usize];
        if member.child.is_some() {
            return Ok(());
        }
        member.starts += 1;
        let order = Order {
            process: number,
            start: member.starts,
            tasks: self.plan.tasks,
            keys: self.plan.keys,
            url: member.proxy.url(),
            witness: self.witness.socket().to_owned(),
        };
        let child = (self.program)()
            .env(VARIABLE, order.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        member.child = Some(child);
        Ok(())
    }

    fn kill(&mut self, number: u32) -> Result<()> {
        let member = &mut self.members[number as usize];
        if let Some(mut child) = member.child.take() {
            child.kill()?;
            child.wait()?;
            let mut judge = self.witness.judge();
            judge.gone(number, member.starts, clock::now());
            judge.thaw(number, clock::now());
            member.frozen = false;
        }
        Ok(())
    }

    fn freeze(&mut self, number: u32) -> Result<()> {
        let member = &mut self.members[number as usize];
        if let Some(child) = &member.child {
            self.witness.judge().freeze(number, clock::now());
            member.frozen = true;
            kill_process(Pid::from_child(child), Signal::STOP)?;
        }
        Ok(())
    }

    fn thaw(&mut self, number: u32) -> Result<()> {
        let member = &mut self.members[number as usize];
        if let Some(child) = member.child.as_ref().filter(|_| member.frozen) {
            self.witness.judge().thaw(number, clock::now());
            member.frozen = false;
            kill_process(Pid::from_child(child), Signal::CONT)?;
        }
        Ok(())
    }

    fn each(&mut self, fault: &Fault, act: impl Fn(&mut Self, u32) -> Result<()>) -> Result<()> {
        let numbers = match fault.process {
            Some(number) => number..number + 1,
            None => 0..self.plan.processes,
        };
        numbers.into_iter().try_for_each(|number| act(self, number))
    }

    fn each_proxy(&self, fault: &Fault, act: impl Fn(&Proxy)) {
        for member in &self.members {
            if fault.process.is_none_or(|number| number == member.number) {
                act(&member.proxy);
            }
        }
    }

    /// Asks the server itself, past the proxies.
    fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let client = redis::Client::open(self.server.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        Ok(command.query(&mut connection)?)
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The longest call, and the shut-down.
const STOP_WITHIN: Duration = Duration::from_secs(30);
