use std::io::{stdin, stdout, BufRead, Write};
mod cfg {
    pub struct Pair { pub a: i32, pub b: &'static str }
    pub static LIMIT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(9);
    pub static mut COUNT: u64 = 3;
    pub static NAME: &str = "rusty";
    pub static PAIR: Pair = Pair { a: -4, b: "bee" };
}
#[inline(never)]
#[no_mangle]
fn handle(n: u64) -> u64 {
    let name: *const &str = &cfg::NAME;
    let pair: *const cfg::Pair = &cfg::PAIR;
    unsafe { cfg::COUNT + n + cfg::LIMIT.load(std::sync::atomic::Ordering::Relaxed) as u64 + std::ptr::read_volatile(name).len() as u64 + std::ptr::read_volatile(pair).b.len() as u64 }
}
fn main() {
    println!("ready");
    stdout().flush().unwrap();
    for line in stdin().lock().lines() {
        if line.is_err() { break; }
        if std::hint::black_box(handle(2)) > 100 { unsafe { cfg::COUNT += 1; } }
        println!("done");
        stdout().flush().unwrap();
    }
}
