// What rustc returns its own way: pairs of scalars, aggregates, nothing.
use std::hint::black_box;

pub struct Point { pub x: i32, pub y: i32 }
pub struct Mixed { pub a: i64, pub b: f64 }
pub struct Three { pub a: f32, pub b: f32, pub c: f32 }
pub struct Bytes { pub a: u8, pub b: u8, pub c: u8 }
pub struct Big { pub a: u64, pub b: u64, pub c: u64 }

#[inline(never)]
pub fn nothing() { black_box(0); }
#[inline(never)]
pub fn int(v: i32) -> i32 { black_box(v) - 100 }
#[inline(never)]
pub fn float() -> f64 { black_box(2.5) }
#[inline(never)]
pub fn text(s: &str) -> &str { black_box(s) }
#[inline(never)]
pub fn point() -> Point { Point { x: black_box(1), y: 2 } }
#[inline(never)]
pub fn mixed() -> Mixed { Mixed { a: black_box(1), b: 2.5 } }
#[inline(never)]
pub fn three() -> Three { Three { a: black_box(1.0), b: 2.0, c: 3.5 } }
#[inline(never)]
pub fn bytes() -> Bytes { Bytes { a: black_box(1), b: 2, c: 3 } }
#[inline(never)]
pub fn tuple() -> (u64, bool) { (black_box(7), true) }
#[inline(never)]
pub fn big() -> Big { Big { a: black_box(1), b: 2, c: 3 } }
#[inline(never)]
pub fn maybe(v: i32) -> Option<i32> { if black_box(v) > 0 { Some(v) } else { None } }

#[inline(never)]
pub fn done() -> Result<(), u32> { black_box(Ok(())) }

#[inline(never)]
pub fn start() {
    nothing();
    black_box((int(58), float(), text("hello"), maybe(3)));
    black_box((point(), mixed(), three(), bytes(), big(), tuple()));
    let _ = black_box(done());
}

fn main() { start(); }
