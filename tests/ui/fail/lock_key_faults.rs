use distlock::lock_key;

fn main() {
    let sku_id = 7;
    lock_key!("stock:<sku_idd>");
    lock_key!("stock:<sku_id>:<>");
    lock_key!("stock:<sku_id + 1>");
    lock_key!("stock:<sku_id as u64>");
    lock_key!("stock:<nothing>");
    lock_key!();
    lock_key!(sku_id);
    lock_key!("stock:<sku_id>", wait = "3s");
    let nothing: Option<u64> = None;
}
