//! What may go wrong, once or twice in a run, at any point.

use super::bounds::{Bounds, FROZEN, LATE, STRAY};
use super::line::{Answer, Line, Way};
use super::process::{Life, Process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process is gone, with all that it knew.
    Die,
    /// A message arrives twice, the second time late.
    DoubleNews(usize),
    /// Nothing of the process runs, for longer than a lease if the checker wants.
    Freeze,
    /// The store did what was asked, and the sender never learns.
    LoseAnswer(usize),
    /// The channel is lost, and what is under way on it with it; but its next request takes effect
    /// late.
    LoseChannel(usize),
    LoseNews(usize),
    /// The store is never asked.
    LoseRequest(usize),
    SlowAnswer(usize),
    SlowNews(usize),
    /// The store is asked late, and later requests with it.
    SlowRequest(usize),
}

impl Fault {
    /// What may go wrong for `process` now.
    pub(super) fn all(process: &Process) -> impl Iterator<Item = Self> {
        let Line { ways, answers, news, .. } = &process.line;
        let in_time = |way: &usize| ways[*way].front().is_some_and(|head| head.delay.is_none());
        let ways = (0..ways.len()).filter(in_time);
        let answers = (0..answers.len()).filter(|at| answers[*at].delay.is_none());
        let news = (0..news.len()).filter(|at| news[*at].1.is_none());
        [Self::Die, Self::Freeze]
            .into_iter()
            .chain(ways.flat_map(|way| {
                [Self::LoseChannel(way), Self::LoseRequest(way), Self::SlowRequest(way)]
            }))
            .chain(answers.flat_map(|at| [Self::LoseAnswer(at), Self::SlowAnswer(at)]))
            .chain(
                news.flat_map(|at| [Self::DoubleNews(at), Self::LoseNews(at), Self::SlowNews(at)]),
            )
    }

    /// Makes it go wrong.
    pub(super) fn strike(self, process: &mut Process, bounds: &Bounds) {
        let now = process.now();
        let late = Some(now + LATE);
        let line = &mut process.line;
        match self {
            Self::Die => process.die(bounds),
            Self::DoubleNews(at) => {
                let news = line.news[at].0.clone();
                line.news.push((news, late));
            }
            Self::Freeze => process.life = Life::Frozen(now + FROZEN),
            Self::LoseAnswer(at) => {
                line.answers[at].reply = None;
                line.answers[at].delay = late;
            }
            Self::LoseChannel(way) => {
                let mut stray = line.ways[way][0].clone();
                stray.delay = Some(now + STRAY);
                line.strays.push(stray);
                while !line.ways[way].is_empty() {
                    give_up_on(line, way);
                }
                if way == Way::Callers as usize {
                    line.channel += 1;
                }
            }
            Self::LoseNews(at) => drop(line.news.remove(at)),
            Self::LoseRequest(way) => give_up_on(line, way),
            Self::SlowAnswer(at) => line.answers[at].delay = late,
            Self::SlowNews(at) => line.news[at].1 = late,
            Self::SlowRequest(way) => line.ways[way][0].delay = late,
        }

        /// The sender of the next request gets no answer, and notices sooner or later.
        fn give_up_on(line: &mut Line, way: usize) {
            let request = line.ways[way].pop_front().unwrap();
            let delay = Some(request.sent_at + LATE);
            line.answers.push(Answer { request, reply: None, delay });
        }
    }
}
