//! All that may happen next, and what it does.

use stateright::{Model, Property};

use super::bounds::{Bounds, Driver, SERVED_BY};
use super::caller::{Attention, Caller, Ending};
use super::fault::Fault;
use super::line::{Answer, Reply, Request};
use super::process::{Life, Process};
use super::world::World;
use super::{Explored, rules};
use crate::clock::Timestamp;

/// One step. Processes, callers and messages by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A caller comes.
    Come(usize, usize),
    /// The driver takes its turn.
    Drive(usize),
    /// A caller's future is dropped.
    Drop(usize, usize),
    /// A body ends.
    End(usize, usize),
    /// The store carries out the next request of a way.
    Execute(usize, usize),
    ExecuteStray(usize, usize),
    Fault(usize, Fault),
    /// Time goes on to the next thing that is due.
    GoOn,
    HearAnswer(usize, usize),
    HearNews(usize, usize),
    Poll(usize, usize),
    /// A waiting caller is not polled from now on.
    Stall(usize, usize),
    /// A body is stopped, since its lock is lost.
    Stop(usize, usize),
    Thaw(usize),
}

impl Model for Explored {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for process in &world.processes {
            self.arrivals(world, process, actions);
            world.store_actions(process, actions);
            match process.life {
                Life::Dead => {}
                Life::Frozen(_) => actions.push(Action::Thaw(process.index)),
                Life::Running => world.process_actions(process, actions),
            }
        }
        if !world.is_urgent() && world.now <= SERVED_BY && !world.is_at_rest() {
            actions.push(Action::GoOn);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        world.act(action, &self.0);
        for process in &mut world.processes {
            process.note_woken();
            if self.0.driver == Driver::AtOnce {
                process.drive_now();
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::all()
    }
}

impl Explored {
    /// Callers come in their order. Of two processes alike the first one has the first caller: the
    /// other way round is the same in mirror image.
    fn arrivals(&self, world: &World, process: &Process, actions: &mut Vec<Action>) {
        let is_away = |caller: &Caller| matches!(caller, Caller::Away);
        let next = process.callers.iter().position(is_away);
        let [first, second] = self.0.callers;
        let must_be_second = process.index == 1 && first == second;
        let is_first = world.processes[0].callers.first().is_some_and(is_away);
        let in_time = world.now <= Timestamp::NOW + self.0.come_within;
        if in_time && process.is_running() && !(must_be_second && is_first) {
            actions.extend(next.map(|caller| Action::Come(process.index, caller)));
        }
    }
}

impl World {
    fn store_actions(&self, process: &Process, actions: &mut Vec<Action>) {
        let index = process.index;
        let ways = (0..2).filter(|way| !process.line.ways[*way].is_empty());
        actions.extend(ways.map(|way| Action::Execute(index, way)));
        let strays = 0..process.line.strays.len();
        actions.extend(strays.map(|stray| Action::ExecuteStray(index, stray)));
    }

    fn process_actions(&self, process: &Process, actions: &mut Vec<Action>) {
        let index = process.index;
        let line = &process.line;
        if process.next_due() <= self.now {
            actions.push(Action::Drive(index));
        }
        actions.extend((0..line.answers.len()).map(|at| Action::HearAnswer(index, at)));
        actions.extend((0..line.news.len()).map(|at| Action::HearNews(index, at)));
        for (at, caller) in process.callers.iter().enumerate() {
            match caller {
                Caller::Holding(holding) if holding.is_valid(self.now) => {
                    actions.push(Action::End(index, at));
                }
                Caller::Holding(_) => actions.push(Action::Stop(index, at)),
                Caller::Waiting { attention: Attention::Woken, .. } => {
                    actions.push(Action::Poll(index, at));
                }
                _ => {}
            }
            let is_here = !matches!(caller, Caller::Away | Caller::Gone);
            if is_here && self.left.drops > 0 {
                actions.push(Action::Drop(index, at));
            }
            if matches!(caller, Caller::Waiting { .. }) && caller.hopes() && self.left.stalls > 0 {
                actions.push(Action::Stall(index, at));
            }
        }
        if self.left.faults > 0 {
            actions.extend(Fault::all(process).map(|fault| Action::Fault(index, fault)));
        }
    }

    fn act(&mut self, action: Action, bounds: &Bounds) {
        match action {
            Action::Come(process, caller) => self.processes[process].come(caller),
            Action::Drive(process) => self.processes[process].drive(),
            Action::Drop(process, caller) => {
                self.left.drops -= 1;
                self.processes[process].drop_caller(caller);
            }
            Action::End(process, caller) => self.processes[process].end(caller, Ending::Finished),
            Action::Execute(process, way) => {
                let request = self.processes[process].line.ways[way].pop_front().unwrap();
                let reply = self.execute(process, &request);
                let delay = None;
                if self.processes[process].life != Life::Dead {
                    let answers = &mut self.processes[process].line.answers;
                    answers.push(Answer { request, reply: Some(reply), delay });
                }
            }
            Action::ExecuteStray(process, stray) => {
                let request = self.processes[process].line.strays.remove(stray);
                self.execute(process, &request);
            }
            Action::Fault(process, fault) => {
                self.left.faults -= 1;
                fault.strike(&mut self.processes[process], bounds);
            }
            Action::GoOn => self.go_on(),
            Action::HearAnswer(process, at) => {
                let answer = self.processes[process].line.answers.remove(at);
                self.processes[process].hear_answer(answer);
            }
            Action::HearNews(process, at) => {
                let (news, _) = self.processes[process].line.news.remove(at);
                self.processes[process].hear_news(&news);
            }
            Action::Poll(process, caller) => {
                let process = &mut self.processes[process];
                if let Caller::Waiting { ticket, .. } = process.callers[caller] {
                    process.poll(caller, ticket);
                }
            }
            Action::Stall(process, caller) => {
                self.left.stalls -= 1;
                let caller = &mut self.processes[process].callers[caller];
                if let Caller::Waiting { attention, .. } = caller {
                    *attention = Attention::Stalled;
                }
            }
            Action::Stop(process, caller) => self.processes[process].end(caller, Ending::Dropped),
            Action::Thaw(process) => self.processes[process].life = Life::Running,
        }
    }

    fn execute(&mut self, process: usize, request: &Request) -> Reply {
        let (reply, news) = self.store.carry_out(process, request, self.now);
        for news in news {
            let listener = &mut self.processes[news.process];
            if listener.life != Life::Dead {
                listener.line.news.push((news, None));
            }
        }
        reply
    }
}
