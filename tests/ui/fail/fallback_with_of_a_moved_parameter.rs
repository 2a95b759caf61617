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

struct Order {
    id: u64,
    name: String,
}

#[distributed_lock(key = "a:<id>", fallback_with = |error| Err(format!("{id}: {error}")))]
async fn part(Order { id, .. }: Order) -> Result<u64, String> {
    Ok(id)
}

#[distributed_lock(key = "a:<id>", fallback = Ok(format!("{id} {name}")))]
async fn part_in_fallback(Order { id, name, .. }: Order) -> Result<String, LockError> {
    Ok(format!("{id} {name}"))
}

fn main() {}
