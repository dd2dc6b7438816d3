// A program as people write them: traits, enumerations with data, closures, slices.
use std::collections::HashMap;
use std::fmt::Debug;
use std::hint::black_box;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Color {
    Red,
    Green = 5,
    Blue,
}

#[derive(Clone, Debug)]
enum Shape {
    Empty,
    Circle(f64),
    Rect { w: u32, h: i16 },
    Named(String, Color),
}

#[derive(Clone, Copy, Debug)]
struct Point {
    x: i32,
    y: i64,
    z: u8,
}

struct Pair<T, U>(T, U);

trait Area {
    fn area(&self) -> f64;
    fn twice(&self) -> f64 {
        let a = self.area();
        a * 2.0
    }
}

impl Area for Shape {
    #[inline(never)]
    fn area(&self) -> f64 {
        match self {
            Shape::Empty => 0.0,
            Shape::Circle(r) => {
                let r2 = r * r;
                r2 * 3.0
            }
            Shape::Rect { w, h } => {
                let wide = *w as f64;
                wide * *h as f64
            }
            Shape::Named(name, color) => {
                let n = name.len();
                n as f64 + *color as u8 as f64
            }
        }
    }
}

#[inline(never)]
fn sum<T: Copy + Into<i64> + Debug>(items: &[T], start: i64) -> i64 {
    let mut total = start;
    for (i, item) in items.iter().enumerate() {
        let v: i64 = (*item).into();
        total += v * i as i64;
    }
    black_box(total)
}

#[inline(never)]
fn points(list: &mut Vec<Point>, at: &Point, limit: Option<u32>, flag: bool) -> i64 {
    let mut best = at.y;
    for p in list.iter_mut() {
        p.x += at.x;
        let far = (p.x as i64) * p.y + p.z as i64;
        if far > best {
            best = far;
        }
    }
    let most = match limit {
        Some(n) if flag => n as i64,
        _ => -1,
    };
    black_box(best + most)
}

#[inline(never)]
fn texts(name: &str, owned: String, pair: Pair<u16, i8>, letter: char, wide: u128) -> usize {
    let first = name.len();
    let second = owned.len();
    let Pair(a, b) = pair;
    let low = wide as u64;
    black_box(first + second * a as usize + b as usize + letter as usize + low as usize % 7)
}

#[inline(never)]
fn closures(n: i32, step: i16, scale: f32) -> i64 {
    let mut outer = n as i64;
    let mut add = |v: i64| {
        outer += v * step as i64;
        let scaled = scale * v as f32;
        scaled as i64
    };
    let mut sum = 0i64;
    for k in 0..n {
        sum += add(k as i64);
    }
    let boxed: Box<dyn Fn(i64) -> i64> = Box::new(move |k| sum + k);
    black_box(boxed(outer))
}

#[inline(never)]
fn arrays(rows: [[i16; 3]; 2], color: Color, r: Result<u8, Color>, f: fn(i64) -> i64) -> i64 {
    let mut acc = 0i64;
    for row in rows {
        for cell in row {
            acc += cell as i64;
        }
    }
    let code = color as i64;
    let good = match r {
        Ok(v) => v as i64,
        Err(c) => -(c as i64),
    };
    black_box(f(acc + code) + good)
}

fn double(v: i64) -> i64 {
    v * 2
}

fn main() {
    let mut total = 0i64;
    for k in 0..3i32 {
        total += sum(&[1i32, 2, 3 + k], 4) + sum(&[1i8, -2], k as i64);
        let mut list = vec![Point { x: k, y: 2, z: 3 }, Point { x: 4, y: -5, z: 6 }];
        total += points(&mut list, &Point { x: 1, y: k as i64, z: 9 }, if k == 1 { None } else { Some(7) }, k != 2);
        total += texts("some", format!("owned {k}"), Pair(k as u16, -4), 'ä', (7u128 << 64) + k as u128) as i64;
        total += closures(k + 2, -3, 1.5);
        total += arrays([[1, 2, k as i16], [4, 5, 6]], Color::Blue, if k == 0 { Ok(8) } else { Err(Color::Red) }, double);
        for shape in [Shape::Empty, Shape::Circle(k as f64 + 0.5), Shape::Rect { w: 3, h: -4 }, Shape::Named("n".to_string(), Color::Green)] {
            total += shape.twice() as i64;
        }
        let mut map = HashMap::new();
        map.insert(k, "v");
        total += map.len() as i64;
    }
    println!("{total}");
}
