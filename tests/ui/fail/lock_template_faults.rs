use distlock::lock_template;

lock_template!();
lock_template!("stock:<sku_id>");
lock_template!(pub EMPTY = "stock:<>");
lock_template!(FIELD = "stock:<order.id>:<header:x-tenant>");
lock_template!(pub SETTINGS = "stock:<sku_id>", wait = "3", lease = "1ms", key = "other");
lock_template! {
    /// Two in one.
    pub TWO = "stock:<sku_id>", ttl = "3s";
    pub HOLD = "stock", lease = "20s", max_hold = "10s";
}

fn main() {}
