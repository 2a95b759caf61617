//! One failover after the other, and the table of what came of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use distlock::LockClient;
use tokio::task::{JoinSet, spawn_blocking};

use crate::load::Load;
use crate::topology::Topology;

/// What to measure.
pub(crate) struct Plan {
    pub(crate) topology: String,
    runs: usize,
    /// All ways, if none is given.
    way: Option<String>,
    min_replicas: u32,
}

/// What came of the failovers of one way.
#[derive(Default)]
struct Row {
    without_any: Vec<Duration>,
    without_one: Vec<Duration>,
    most_at_once: usize,
    lost: usize,
    failed: usize,
}

impl Plan {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut plan = Self { topology: String::new(), runs: 5, way: None, min_replicas: 0 };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--runs" => plan.runs = value()?.parse().map_err(|_| "--runs needs a number")?,
                "--way" => plan.way = Some(value()?),
                "--min-replicas" => {
                    let count = value()?.parse();
                    plan.min_replicas = count.map_err(|_| "--min-replicas needs a number")?;
                }
                topology if plan.topology.is_empty() => topology.clone_into(&mut plan.topology),
                other => return Err(format!("{other:?} means nothing here")),
            }
        }
        if plan.runs == 0 {
            return Err("--runs needs a number from 1".to_owned());
        }
        Ok(plan)
    }
}

pub(crate) async fn run(plan: &Plan, topology: Arc<dyn Topology>) -> Result<(), String> {
    let ways: Vec<_> = topology
        .ways()
        .iter()
        .filter(|way| plan.way.as_deref().is_none_or(|wanted| wanted == **way))
        .collect();
    if ways.is_empty() {
        return Err(format!("{} fails over by {}", plan.topology, topology.ways().join(", ")));
    }
    if plan.min_replicas > topology.replicas() {
        return Err(format!("{} has {} replicas", plan.topology, topology.replicas()));
    }
    println!("{HEAD}");
    for way in ways {
        let mut row = Row::default();
        for _ in 0..plan.runs {
            once(&topology, way, plan.min_replicas, &mut row).await?;
        }
        row.print(&plan.topology, way, plan.min_replicas);
    }
    Ok(())
}

/// One failover, with clients of its own.
async fn once(
    topology: &Arc<dyn Topology>,
    way: &'static str,
    min_replicas: u32,
    row: &mut Row,
) -> Result<(), String> {
    let load = Arc::new(Load::on(topology.keys()));
    let stranded = if way == "lag" {
        let topology = Arc::clone(topology);
        let builder = spawn_blocking(move || topology.stranded()).await;
        builder.map_err(|error| error.to_string())?
    } else {
        None
    };
    let builders = (0..CLIENTS).map(|_| topology.builder()).chain(stranded);
    let clients: Result<Vec<_>, _> = builders
        .map(|builder| builder.lease(LEASE).wait(WAIT).min_replicas(min_replicas).build())
        .collect();
    let clients: Vec<LockClient> = clients.map_err(|error| error.to_string())?;
    let mut callers = JoinSet::new();
    load.start(&clients, &mut callers);
    let start = Instant::now();
    flows(&load, start, "before the failover").await?;

    if way == "lag" {
        blocking(topology, |topology| topology.cut_off()).await?;
        load.work_long(true);
        tokio::time::sleep(FORGOTTEN).await;
    }
    let began_at = Instant::now();
    blocking(topology, move |topology| topology.fail_over(way)).await?;
    load.work_long(false);
    if min_replicas > 0 {
        // Too few are left of those that must have a lock.
        blocking(topology, |topology| topology.heal()).await?;
    }
    flows(&load, Instant::now(), "after the failover").await?;
    // A holder that was left behind needs its lease to be passed over.
    tokio::time::sleep(LEASE / 2).await;
    flows(&load, Instant::now(), "a while after the failover").await?;

    let (without_any, without_one) = load.gaps(began_at);
    load.stop();
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    for client in clients {
        // What was left behind is given back in the background; then nobody is left to hold anything.
        let _ = client.shutdown(Duration::from_secs(1)).await;
    }
    row.without_any.push(without_any);
    row.without_one.push(without_one);
    row.most_at_once = row.most_at_once.max(load.most_at_once());
    row.lost += load.lost.load(Ordering::Relaxed);
    row.failed += load.failed.load(Ordering::Relaxed);
    let errors = load.errors.lock().expect("nothing panics under it").clone();
    eprintln!("{way}: {without_any:.2?} without any grant, {without_one:.2?} of a key, {errors:?}");
    blocking(topology, |topology| topology.heal()).await
}

/// Does something to the servers that blocks.
async fn blocking(
    topology: &Arc<dyn Topology>,
    work: impl FnOnce(&dyn Topology) + Send + 'static,
) -> Result<(), String> {
    let topology = Arc::clone(topology);
    spawn_blocking(move || work(&*topology)).await.map_err(|error| error.to_string())
}

/// Waits until every key was granted some times after `since`.
async fn flows(load: &Load, since: Instant, when: &str) -> Result<(), String> {
    let start = Instant::now();
    while !load.flows(since, 20) {
        if start.elapsed() > LIMIT {
            return Err(format!("{when}: not all keys are granted within {LIMIT:?}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

impl Row {
    fn print(mut self, topology: &str, way: &str, min_replicas: u32) {
        let figures = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
            format!("{:>6.2} / {:>5.2} s", median.as_secs_f64(), longest.as_secs_f64())
        };
        println!(
            "  {topology:<9} {way:<6} {min_replicas:>8} {:>6}    {:<20}  {:<20}    {:>7} {:>6} {:>8}",
            self.without_any.len(),
            figures(&mut self.without_any),
            figures(&mut self.without_one),
            self.most_at_once,
            self.lost,
            self.failed
        );
    }
}

const HEAD: &str = concat!(
    "                     min_             without any grant     without one of a key    bodies           calls\n",
    "  topology  way    replicas   runs    median / longest      median / longest        at once   lost   failed",
);
const CLIENTS: usize = 3;
const LEASE: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(3);
/// How much of what was granted the replicas lack.
const FORGOTTEN: Duration = Duration::from_millis(150);
const LIMIT: Duration = Duration::from_secs(60);
