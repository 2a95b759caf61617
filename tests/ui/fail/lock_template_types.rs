use distlock::lock_template;

lock_template! {
    pub STOCK = "stock:lock:<sku_id as u64>";
    pub SESSION = "session:<id as uuid>";
    TYPO = "stock:<sku_id as u65>";
    TWO_WAYS = "stock:<sku_id as u64>:<sku_id>";
    NO_NAME = "stock:<order.id as u64>";
}

fn main() {
    let _ = STOCK.key("007");
    let _ = STOCK.key(&7_u32);
    let _ = SESSION.key("0F1B2C3D4E5F60718293A4B5C6D7E8F9");
    let _ = STOCK.key(&7);
}
