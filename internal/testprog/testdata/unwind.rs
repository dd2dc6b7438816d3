// Rust panics through functions that are followed. Obeys what the cases of rounds.h do.
use std::io::{BufRead, Write};
use std::panic::{catch_unwind, panic_any, resume_unwind, set_hook, AssertUnwindSafe};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::mpsc;

static WRONG: AtomicI64 = AtomicI64::new(0);
static DROPPED: AtomicI64 = AtomicI64::new(0);

fn check(ok: bool, what: &str) {
    if !ok && WRONG.fetch_add(1, SeqCst) < 10 {
        eprintln!("wrong: {}", what);
    }
}

// Caught two frames above, past values that are dropped on the way.
struct Scoped(i64);
impl Drop for Scoped {
    fn drop(&mut self) {
        ca_drop(self.0);
    }
}
#[no_mangle]
#[inline(never)]
fn ca_drop(n: i64) {
    DROPPED.fetch_add(n, SeqCst);
}
#[no_mangle]
#[inline(never)]
fn ca_inner(v: i64) -> i64 {
    if v % 2 == 1 {
        panic_any(v);
    }
    v
}
#[no_mangle]
#[inline(never)]
fn ca_mid(v: i64) -> i64 {
    let _a = Scoped(1);
    let b = vec![Scoped(2), Scoped(3)];
    ca_inner(v) + b.len() as i64
}
#[no_mangle]
#[inline(never)]
fn ca_outer(v: i64) -> i64 {
    match catch_unwind(|| ca_mid(v)) {
        Ok(r) => r,
        Err(e) => -*e.downcast_ref::<i64>().unwrap(),
    }
}
fn catch_round(i: i64) -> i64 {
    DROPPED.store(0, SeqCst);
    let r = ca_outer(2 * i) + ca_outer(2 * i + 1);
    check(r == 1 && DROPPED.load(SeqCst) == 12, "catch");
    r + i
}

// Caught and resumed by every frame of a recursion.
#[no_mangle]
#[inline(never)]
fn rs_down(n: i64) -> i64 {
    if n == 0 {
        panic_any(0i64);
    }
    match catch_unwind(|| rs_down(n - 1)) {
        Ok(r) => r,
        Err(e) => resume_unwind(Box::new(e.downcast_ref::<i64>().unwrap() + 1)),
    }
}
fn resume_round(i: i64) -> i64 {
    let e = catch_unwind(|| rs_down(5)).unwrap_err();
    let r = *e.downcast_ref::<i64>().unwrap();
    check(r == 5, "resume");
    r + i
}

// A thread that ends by a panic, of a bound check.
#[no_mangle]
#[inline(never)]
fn th_inner(list: &[i64], v: usize) -> i64 {
    list[v]
}
#[no_mangle]
#[inline(never)]
fn th_outer(v: usize) -> i64 {
    let _a = Scoped(1);
    th_inner(&[1, 2, 3], v) + 1
}
fn thread_round(i: i64) -> i64 {
    DROPPED.store(0, SeqCst);
    let good = std::thread::spawn(|| th_outer(2));
    let bad = std::thread::spawn(|| th_outer(3));
    let r = good.join().unwrap();
    let message = bad.join().unwrap_err().downcast::<String>().unwrap();
    check(r == 4 && message.contains("out of bounds") && DROPPED.load(SeqCst) == 2, "thread");
    r + i
}

// A closure behind a pointer, and a panic while another frame's value is dropped.
#[no_mangle]
#[inline(never)]
fn cl_call(f: &mut dyn FnMut() -> i64) -> i64 {
    f()
}
#[no_mangle]
#[inline(never)]
fn cl_outer(v: i64) -> i64 {
    let mut kept = 0;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        cl_call(&mut || {
            kept = v;
            panic_any(v)
        })
    }));
    kept + *caught.unwrap_err().downcast_ref::<i64>().unwrap()
}
fn closure_round(i: i64) -> i64 {
    let r = cl_outer(i);
    check(r == 2 * i, "closure");
    r
}

fn play(name: &str) -> fn(i64) -> i64 {
    match name {
        "catch" => catch_round,
        "resume" => resume_round,
        "thread" => thread_round,
        "closure" => closure_round,
        _ => panic!("no case {}", name),
    }
}

fn say(line: String) {
    let mut out = std::io::stdout();
    out.write_all((line + "\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn main() {
    set_hook(Box::new(|_| {}));
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            tell.send(line.unwrap()).unwrap();
        }
    });
    say("ready".to_string());
    while let Ok(line) = lines.recv() {
        let words: Vec<&str> = line.split(' ').collect();
        let round = play(words[1]);
        if words[0] == "run" {
            let n: i64 = words[2].parse().unwrap();
            let sum: i64 = (0..n).map(round).sum();
            say(format!("ran {} {} sum {}", words[1], n, sum));
        } else {
            say("looping".to_string());
            let mut n = 0;
            while lines.try_recv().is_err() {
                round(n % 1000);
                n += 1;
            }
            say(format!("looped {} {}", words[1], n));
        }
    }
    match WRONG.load(SeqCst) {
        0 => say("right".to_string()),
        n => {
            say(format!("wrong {}", n));
            std::process::exit(1);
        }
    }
}
