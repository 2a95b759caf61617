//! What must hold in every state.

use super::Explored;
use super::bounds::SERVED_BY;
use super::caller::Caller;
use super::process::{Life, Process};
use super::world::World;

use stateright::Property;

/// A rule that a process broke by what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Breach {
    /// A hold began under an owner that was given up.
    HeldAfterRelease,
    /// A request other than a release was sent for an owner that was given up.
    UsedAfterRelease,
}

pub(super) fn all() -> Vec<Property<Explored>> {
    vec![
        Property::always("never two valid holds", |_, world: &World| world.valid_holds() <= 1),
        Property::always(
            "no renewal, nor any other use of an owner, after its release",
            |_, world: &World| !world.broke(Breach::UsedAfterRelease),
        ),
        Property::always("no hold under an owner that was given up", |_, world: &World| {
            !world.broke(Breach::HeldAfterRelease)
        }),
        Property::always("no lock in the store that nobody will free", |_, world: &World| {
            world.holder_is_known()
        }),
        Property::always(
            "no place in the queue that nobody will take or leave",
            |_, world: &World| world.places_are_known(),
        ),
        Property::always("each hold is known to the queue of its process", |_, world: &World| {
            world.processes.iter().all(Process::knows_its_holds)
        }),
        Property::always("without a fault no lock lapses", |explored, world: &World| {
            !world.lapsed || world.had_faults(explored)
        }),
        Property::always("without a fault no lock stands idle", |explored, world: &World| {
            !world.idled || world.had_faults(explored) || world.had_stalls(explored)
        }),
        Property::always("every waiter is served in time", |_, world: &World| {
            world.now <= SERVED_BY && !world.is_at_rest() || !world.has_hope()
        }),
        Property::always("everything comes to rest", |_, world: &World| world.now <= SERVED_BY),
        // That the runs do reach what they are about.
        Property::sometimes("a lock is passed on inside a process", |explored, world: &World| {
            explored.0.callers[0] < 2 || world.processes.iter().any(|process| process.passed_on)
        }),
        Property::sometimes("every caller has been and gone", |_, world: &World| {
            world.is_at_rest() && world.callers().all(|caller| matches!(caller, Caller::Gone))
        }),
    ]
}

impl World {
    fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.processes.iter().flat_map(|process| &process.callers)
    }

    fn valid_holds(&self) -> usize {
        let holdings = self.processes.iter().flat_map(Process::holdings);
        holdings.filter(|holding| holding.is_valid(self.now)).count()
    }

    fn broke(&self, breach: Breach) -> bool {
        self.processes.iter().any(|process| process.breach == Some(breach))
    }

    pub(super) fn has_hope(&self) -> bool {
        self.callers().any(Caller::hopes)
    }

    fn holder_is_known(&self) -> bool {
        self.store.holder.as_ref().is_none_or(|(owner, _)| self.is_known(owner))
    }

    fn places_are_known(&self) -> bool {
        self.store.places.iter().all(|(owner, _)| self.is_known(owner))
    }

    /// Whether some process knows of the owner; what a dead one left behind lapses.
    fn is_known(&self, owner: &str) -> bool {
        self.processes.iter().any(|process| {
            process.made(owner) && process.life == Life::Dead || process.answers_for(owner)
        })
    }
}

impl Process {
    pub(super) fn made(&self, owner: &str) -> bool {
        owner.starts_with(&format!("{}/", self.index))
    }

    fn knows_its_holds(&self) -> bool {
        self.holdings()
            .filter(|holding| holding.watched)
            .all(|holding| self.waiting.knows_hold(super::KEY, &holding.lock.owner))
    }
}
