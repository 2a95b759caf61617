use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "a:<name>")]
fn use_after_move(name: String) -> Result<String, LockError> {
    drop(name);
    Ok(name)
}

#[distributed_lock(key = "a")]
fn not_mutable(sku_id: u64) -> Result<u64, LockError> {
    sku_id += 1;
    Ok(sku_id)
}

#[distributed_lock(key = "a")]
fn borrows_a_local(name: String) -> Result<&'static str, LockError> {
    Ok(name.as_str())
}

#[distributed_lock(key = "a")]
fn moves_out(names: &Vec<String>) -> Result<Vec<String>, LockError> {
    Ok(*names)
}

fn main() {}
