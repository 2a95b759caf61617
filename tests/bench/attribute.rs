//! What the attribute costs: a build, a crate that uses it often, and a call.
//!
//! ```sh
//! cargo bench -p distlock-bench --bench attribute             # all three
//! cargo bench -p distlock-bench --bench attribute -- calls    # or those that are named
//! ```
//!
//! `build`: a clean build of `distlock-macros` and all that it needs. `expansion`: a crate of 500
//! functions, checked with the attribute and without it; the compiler's own account tells the part of
//! the expansion. `calls`: the memory store, nobody else there, so that what is left is the wrapper;
//! by median and 90th percentile of batches.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use distlock::{LockClient, LockError, LockKey, distributed_lock};
use tempfile::TempDir;

type Outcome = Result<(), Box<dyn Error>>;
type Part = (&'static str, fn() -> Outcome);

fn main() -> Outcome {
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let parts: [Part; 3] = [("build", build), ("expansion", expansion), ("calls", calls)];
    for (name, part) in parts {
        if named.is_empty() || named.iter().any(|wanted| wanted == name) {
            println!("\n{name}");
            part()?;
        }
    }
    Ok(())
}

fn row(what: &str, figure: &str) {
    println!("  {what:<52} {figure:>14}");
}

/// A clean build for each profile.
fn build() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (profile, flags) in [("dev", &[][..]), ("release", &["--release"][..])] {
        let target = TempDir::new()?;
        let started = Instant::now();
        let built = run(cargo(&root, target.path())
            .args(["build", "-p", "distlock-macros", "--features", "distlock-macros/blocking"])
            .args(flags))?;
        let text = String::from_utf8_lossy(&built.stderr).into_owned();
        let crates = text.lines().filter(|line| line.trim_start().starts_with("Compiling")).count();
        let figure = format!("{:.1} s", started.elapsed().as_secs_f64());
        row(&format!("clean, {profile} profile, {crates} crates"), &figure);
    }
    Ok(())
}

fn expansion() -> Outcome {
    let (package, target) = (TempDir::new()?, TempDir::new()?);
    write_package(package.path())?;
    let check = |name: &str| {
        let mut command = cargo(package.path(), target.path());
        // The compiler's account of its time is for nightly, unless it is told that this is one.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.args(["rustc", "--profile", "check", "--bin", name, "--", "-Ztime-passes"]);
        command
    };
    for (what, name) in [
        ("plain", "plain"),
        ("#[distributed_lock], async", "locked"),
        ("#[distributed_lock], not async", "locked_sync"),
    ] {
        let source = package.path().join(format!("src/bin/{name}.rs"));
        let mut whole = Vec::new();
        let mut expanding = Vec::new();
        // The first run builds what the crate needs.
        for round in 0..=ROUNDS {
            fs::write(&source, fs::read(&source)?)?;
            let started = Instant::now();
            let checked = run(&mut check(name))?;
            if round > 0 {
                whole.push(started.elapsed());
                expanding.push(pass(&checked, "macro_expand_crate"));
            }
        }
        row(&format!("{FUNCTIONS} functions, {what}: cargo check"), &milliseconds(&mut whole));
        row("  of it expanding macros", &milliseconds(&mut expanding));
    }
    Ok(())
}

fn write_package(at: &Path) -> Outcome {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime");
    let manifest = format!(
        "[package]\nname = \"many\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\ndistlock = {{ path = {:?}, features = [\"blocking\"] }}\n",
        fs::canonicalize(runtime)?
    );
    fs::write(at.join("Cargo.toml"), manifest)?;
    fs::create_dir_all(at.join("src/bin"))?;
    for (name, locked, function) in
        [("plain", false, "async fn"), ("locked", true, "async fn"), ("locked_sync", true, "fn")]
    {
        let mut source = String::from(
            "#![allow(dead_code, unused_imports)]\n\
             use distlock::{LockError, distributed_lock};\nfn main() {}\n",
        );
        for number in 0..FUNCTIONS {
            if locked {
                writeln!(
                    source,
                    "#[distributed_lock(key = \"stock:{number}:<sku_id>:<name.as_str()>\", \
                     wait = \"3s\", lease = \"10s\")]"
                )?;
            }
            writeln!(
                source,
                "{function} f{number}(sku_id: u64, name: String, (a, _): (u8, u8)) \
                 -> Result<u64, LockError> {{\n    let sum = sku_id + u64::from(a);\n    \
                 if name.is_empty() {{ return Ok(sum); }}\n    Ok(sum + {number})\n}}"
            )?;
        }
        fs::write(at.join(format!("src/bin/{name}.rs")), source)?;
    }
    Ok(())
}

/// How long a pass of the compiler took: `time: 0.012; rss: …  macro_expand_crate`.
fn pass(output: &Output, name: &str) -> Duration {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let seconds = text.lines().find_map(|line| {
        let time = line.trim_start().strip_prefix("time:")?;
        line.split_whitespace().any(|word| word == name).then(|| {
            let seconds = time.trim_start().split(';').next().unwrap_or_default();
            seconds.parse().unwrap_or_default()
        })
    });
    Duration::from_secs_f64(seconds.unwrap_or_default())
}

fn cargo(at: &Path, target: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(at).env("CARGO_TARGET_DIR", target);
    command
}

fn run(command: &mut Command) -> Result<Output, Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}

fn milliseconds(times: &mut [Duration]) -> String {
    times.sort_unstable();
    format!("{} ms", times[times.len() / 2].as_millis())
}

async fn plain(sku_id: u64) -> Result<u64, LockError> {
    std::future::ready(Ok(sku_id)).await
}

#[distributed_lock(key = "bench:<sku_id>")]
async fn locked(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

#[distributed_lock(key = "bench:<sku_id>")]
fn locked_sync(sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

fn calls() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = LockClient::in_memory();
    runtime.block_on(locks.scope_default(async {
        measure("plain async fn", async || plain(black_box(7)).await.map(drop)).await?;
        measure("acquire and release by hand", async || {
            let key = LockKey::literal("bench:7");
            locks.lock(key).acquire().await?.release().await
        })
        .await?;
        measure("annotated async fn, uncontended", async || locked(black_box(7)).await.map(drop))
            .await?;
        let nested = async || {
            measure("annotated async fn, nested", async || locked(7).await.map(drop)).await
        };
        locks.lock(LockKey::literal("bench:7")).run(|_| nested()).await?
    }))?;
    let locks = locks.blocking();
    // Outside of the runtime: this is what the calls are made for.
    drop(runtime);
    locks.scope_default(|| {
        let call = || locked_sync(black_box(7)).map(drop);
        measure_sync("annotated fn, uncontended", call)?;
        let nested = || measure_sync("annotated fn, nested", call);
        locks.lock(LockKey::literal("bench:7")).run(|_| nested())?
    })?;
    Ok(())
}

async fn measure(
    what: &str,
    call: impl AsyncFn() -> Result<(), LockError>,
) -> Result<(), LockError> {
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let started = Instant::now();
        for _ in 0..BATCH {
            call().await?;
        }
        times.push(started.elapsed());
    }
    report(what, times);
    Ok(())
}

fn measure_sync(what: &str, call: impl Fn() -> Result<(), LockError>) -> Result<(), LockError> {
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let started = Instant::now();
        for _ in 0..BATCH {
            call()?;
        }
        times.push(started.elapsed());
    }
    report(what, times);
    Ok(())
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let of = |share: usize| (times[times.len() * share / 100] / BATCH).as_nanos();
    row(what, &format!("{} / {} ns", of(50), of(90)));
}

const FUNCTIONS: usize = 500;
const ROUNDS: usize = 3;
const BATCHES: usize = 200;
const BATCH: u32 = 100;
