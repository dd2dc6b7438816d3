// What rustc passes its own way: slices, pairs, aggregates, references.
use std::hint::black_box;

pub struct Point { pub x: i32, pub y: i32 }
pub struct Pair { pub a: f32, pub b: f32 }
pub struct Big { pub a: u64, pub b: u64, pub c: u64 }
pub struct Trio { pub a: u32, pub b: u32, pub c: u32 }
pub struct Holder<T> { pub v: T }

#[inline(never)]
pub fn scalars(a: i32, b: u8, c: bool, d: f64, e: char) { black_box((a, b, c, d, e)); }
#[inline(never)]
pub fn text(s: &str, n: i64) { black_box((s, n)); }
#[inline(never)]
pub fn aggregates(p: Point, q: Pair, b: Big, last: u16) { black_box((p.x, p.y, q.a, q.b, b.a + b.b + b.c, last)); }
#[inline(never)]
pub fn trio(t: Trio, last: u16, e: Option<u32>, lost: u8) { black_box((t.a, t.b, t.c, last, e, lost)); }

impl<T: Clone> Clone for Holder<T> {
    #[inline(never)]
    fn clone(&self) -> Self { Holder { v: black_box(self.v.clone()) } }
}
impl<T> Holder<T> {
    #[inline(never)]
    pub fn put(&mut self, v: T, n: usize) { self.v = black_box(v); black_box(n); }
}

#[inline(never)]
pub fn start() {
    scalars(-5, 250, true, 2.5, 'z');
    text("hello", 7);
    aggregates(Point { x: 1, y: 2 }, Pair { a: 1.5, b: 2.5 }, Big { a: 1, b: 2, c: 3 }, 9);
    trio(Trio { a: 1, b: 2, c: 3 }, 4, Some(5), 6);
    let mut h = Holder { v: 3u32 };
    h.put(4, 5);
    black_box(h.clone().v);
}

fn main() { start(); }
