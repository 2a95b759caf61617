//! An instance as a process of its own: this very binary, started again.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use distlock::LockClient;
use tokio::sync::oneshot;

use crate::instance::{News, Order, Way};
use crate::run::Instance;

/// The parent's side.
pub(crate) struct Process(Child);

impl Process {
    /// Starts an instance, which waits for [`go`](Instance::go). What it tells goes to `news`.
    pub(crate) fn start(
        order: &Order,
        redis_url: &str,
        news: Sender<(u32, News)>,
    ) -> io::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg(FIRST_ARGUMENT)
            .args([order.instance.to_string(), order.sku_id.to_string(), order.way.to_string()])
            .arg(order.stop_in_sale.unwrap_or(0).to_string())
            .arg(&order.file)
            .env("REDIS_URL", redis_url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let instance = order.instance;
        thread::spawn(move || {
            let mut is_over = false;
            for line in lines.map_while(Result::ok) {
                let told = News::from(&*line);
                is_over = matches!(told, News::Done { .. } | News::Failed(_));
                let _ = news.send((instance, told));
            }
            if !is_over {
                let _ = news.send((instance, News::Failed("ended before its time".to_owned())));
            }
        });
        Ok(Self(child))
    }
}

impl Instance for Process {
    fn go(&mut self) {
        // If the process has gone, its news say so.
        let _ = self.0.stdin.as_mut().expect("piped").write_all(b"go\n");
    }

    fn kill(&mut self) {
        // This is SIGKILL: the process can do nothing about it and gives nothing back.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.0.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The instance's side: carries out the order in the arguments, if there is one.
pub(crate) fn carry_out(mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    if arguments.next()? != FIRST_ARGUMENT {
        return None;
    }
    let arguments: Vec<_> = arguments.collect();
    let told = read(&arguments).and_then(|order| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(sell(order))
    });
    if let Err(error) = told {
        tell(&News::Failed(error.to_string()));
    }
    Some(ExitCode::SUCCESS)
}

async fn sell(order: Order) -> Result<(), Box<dyn Error>> {
    let locks = match order.way {
        Way::Locked => Some(LockClient::connect(&env::var("REDIS_URL")?).await?),
        Way::Conditional | Way::Unlocked => None,
    };
    if let Some(locks) = &locks {
        // From here on `#[distributed_lock]` uses this client.
        locks.install_default()?;
    }
    let (started, start) = oneshot::channel();
    thread::spawn(move || {
        let mut lines = io::stdin().lines();
        if lines.next().is_some() {
            let _ = started.send(());
        }
        // The parent's end of the pipe closes with the parent, however that ends.
        if lines.next().is_none() {
            std::process::exit(1);
        }
    });
    let go = async {
        let _ = start.await;
    };
    order.carry_out(go, |news| tell(&news)).await;
    if let Some(locks) = locks {
        locks.shutdown(Duration::from_secs(1)).await?;
    }
    Ok(())
}

fn tell(news: &News) {
    // Nobody to tell: the parent has gone, and this process ends for the same reason.
    let _ = writeln!(io::stdout(), "{news}");
}

fn read(arguments: &[String]) -> Result<Order, Box<dyn Error>> {
    let [instance, sku_id, way, stop_in_sale, file] = arguments else {
        return Err("these arguments are for the example itself".into());
    };
    Ok(Order {
        file: file.into(),
        instance: instance.parse()?,
        sku_id: sku_id.parse()?,
        way: way.parse()?,
        stop_in_sale: Some(stop_in_sale.parse()?).filter(|sale| *sale > 0),
    })
}

const FIRST_ARGUMENT: &str = "instance";
