use std::io::BufRead;
struct Item {
    name: String,
    qty: i32,
    opt: Option<u16>,
}
struct Order {
    id: u64,
    items: Vec<Item>,
    none: Vec<u64>,
    note: &'static str,
    tup: (i32, u8),
    arr: [i16; 4],
    boxed: Box<Item>,
    owner: Option<String>,
    nobody: Option<&'static str>,
}
#[no_mangle]
#[inline(never)]
pub extern "C" fn handle(o: &Order, n: i64) -> i64 {
    std::hint::black_box(o);
    std::hint::black_box(n + o.items.len() as i64)
}
fn item(name: &str) -> Item {
    Item { name: name.to_string(), qty: 5, opt: Some(7) }
}
fn main() {
    let o = Order { id: 17, items: vec![item("first"), item("second")], none: vec![], note: "note", tup: (-3, 4), arr: [1, -2, 3, 4], boxed: Box::new(item("boxed")), owner: Some("owner".to_string()), nobody: None };
    println!("ready");
    let mut line = String::new();
    while std::io::stdin().lock().read_line(&mut line).unwrap() > 0 {
        handle(&o, 42);
        println!("done");
    }
}
