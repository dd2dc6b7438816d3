use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, LinkedList, VecDeque};
use std::io::BufRead;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
struct Node {
    id: i32,
    next: Option<Rc<Node>>,
}
mod own {
    pub struct Duration {
        pub secs: i64,
        pub nanos: i32,
    }
    pub struct LinkedList {
        pub head: Option<std::ptr::NonNull<Link>>,
        pub len: u32,
        pub cap: u32,
    }
    pub struct Link {
        pub next: Option<std::ptr::NonNull<Link>>,
        pub element: u8,
    }
}
struct Buffer {
    ptr: i32,
}
struct All {
    back: own::Duration,
    links: own::LinkedList,
    buffer: Rc<Buffer>,
    ages: HashMap<String, i32>,
    empty: HashMap<u8, u8>,
    many: HashMap<u32, u64>,
    tree: BTreeMap<i32, String>,
    big: BTreeMap<u16, u32>,
    none: BTreeMap<u16, u32>,
    hashed: HashSet<u64>,
    sorted: BTreeSet<u8>,
    deque: VecDeque<i32>,
    list: LinkedList<i32>,
    rc: Rc<i32>,
    node: Rc<Node>,
    weak: Weak<i32>,
    gone: Weak<i32>,
    never: Weak<i32>,
    mutex: Arc<Mutex<i32>>,
    lock: RwLock<u8>,
    cell: Cell<i32>,
    refcell: RefCell<String>,
    path: std::path::PathBuf,
    os: std::ffi::OsString,
    boxed: Box<i32>,
    half: Duration,
    tiny: Duration,
    atomic: AtomicU32,
    flag: AtomicBool,
    function: fn(i32) -> i32,
    nonzero: std::num::NonZeroU32,
    wrapping: std::num::Wrapping<i32>,
    some: Option<Rc<i32>>,
    text: Option<std::path::PathBuf>,
}
#[no_mangle]
pub extern "C" fn twice(n: i32) -> i32 {
    2 * n
}
fn doubled(n: i32) -> i32 {
    twice(n)
}
#[no_mangle]
#[inline(never)]
pub extern "C" fn handle(a: &All, m: &HashMap<u8, u8>, n: i64) -> i64 {
    std::hint::black_box(a);
    std::hint::black_box(n + m.len() as i64)
}
fn main() {
    let rc = Rc::new(5);
    let short = Rc::new(6);
    let mut deque: VecDeque<i32> = (0..5).collect();
    deque.push_front(-1);
    let mut a = All {
        back: own::Duration { secs: -2, nanos: 500_000_000 },
        links: own::LinkedList { head: std::ptr::NonNull::new(Box::into_raw(Box::new(own::Link { next: None, element: 3 }))), len: 1, cap: 8 },
        buffer: Rc::new(Buffer { ptr: 77 }),
        ages: HashMap::from([("carl".to_string(), 3), ("anna".to_string(), 1), ("bert".to_string(), 2)]),
        empty: HashMap::new(),
        many: (0..300).map(|i| (i, i as u64 * 2)).collect(),
        tree: BTreeMap::from([(2, "two".to_string()), (1, "one".to_string())]),
        big: (0..1000).map(|i| (i, i as u32 * 3)).collect(),
        none: BTreeMap::new(),
        hashed: HashSet::from([7, 8]),
        sorted: BTreeSet::from([3, 1]),
        deque,
        list: LinkedList::from([1, 2]),
        rc: rc.clone(),
        node: Rc::new(Node { id: 1, next: Some(Rc::new(Node { id: 2, next: None })) }),
        weak: Rc::downgrade(&rc),
        gone: Rc::downgrade(&short),
        never: Weak::new(),
        mutex: Arc::new(Mutex::new(9)),
        lock: RwLock::new(8),
        cell: Cell::new(4),
        refcell: RefCell::new("refcell".to_string()),
        path: "/a/path".into(),
        os: "os".into(),
        boxed: Box::new(3),
        half: Duration::from_millis(1500),
        tiny: Duration::from_nanos(2500),
        atomic: AtomicU32::new(11),
        flag: AtomicBool::new(true),
        function: doubled,
        nonzero: std::num::NonZeroU32::new(12).unwrap(),
        wrapping: std::num::Wrapping(-2),
        some: Some(rc.clone()),
        text: Some("/b".into()),
    };
    drop(short);
    for i in 0..300 {
        if i >= 3 {
            a.many.remove(&i);
        }
    }
    let m = HashMap::from([(1, 2)]);
    println!("ready");
    let mut line = String::new();
    while std::io::stdin().lock().read_line(&mut line).unwrap() > 0 {
        handle(&a, &m, 42);
        println!("done");
    }
}
