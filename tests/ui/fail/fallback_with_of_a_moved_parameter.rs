use distlock::{LockError, distributed_lock};

// It is also called when the lock is lost, and then the body has had the parameter.
#[distributed_lock(key = "a:<name>", fallback_with = |error| format!("{name}: {error}"))]
async fn moved(name: String) -> String {
    name
}

#[distributed_lock(key = "a:<name>", fallback_with = |error| format!("{name}: {error}"))]
async fn borrowed(name: &str) -> String {
    name.to_owned()
}

#[distributed_lock(key = "a:<id>", fallback_with = |error| format!("{id}: {error}"))]
async fn copied(id: u64) -> String {
    id.to_string()
}

#[distributed_lock(key = "a:<name>", fallback = Ok(name))]
async fn never_started(name: String) -> Result<String, LockError> {
    Ok(name)
}

fn main() {}
