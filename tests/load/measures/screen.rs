//! The cost of `troupe top` with many sessions.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    num::NonZero,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use troupe_tests::{process, terminal, tree::Tree};

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{Samples, millis},
    served::{Served, Upkeep, processor_time, resident},
    turns::{self, Worker},
};

/// Columns and rows of the terminal.
const SIZE: (u16, u16) = (120, 40);
/// Calls per second.
const RATE: u64 = 1_700;
/// One of this number of calls gives a thread another turn, which changes its status several times. The other calls set
/// a note.
const TURN_EVERY: usize = 20;
/// Callers that cause the events.
const WRITERS: u64 = 16;
/// The escape sequence that begins a synchronized update. Each picture has one.
const PICTURE: &[u8] = b"\x1b[?2026h";

pub(crate) async fn run(plan: Plan) -> Chapter {
    let (sessions, threads) = plan.screen;
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let _worker = Worker::attach(supervisor.address).await;
    let mut trees = Vec::new();
    for _ in 0..sessions {
        let tree = supervisor.tree().await;
        turns::play(&tree, threads, 1).await;
        trees.push(tree);
    }
    let screen = Screen::start(&supervisor, &registry);
    let shown = format!("{} thread", sessions * (threads + 1));
    while !screen.text().contains(&shown) {
        sleep(Duration::from_millis(20)).await;
    }
    // The ages of the open sessions change each second in their first minute.
    let is_in_seconds = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let is_young = |line: &str| line.contains("session ") && line.split_whitespace().any(is_in_seconds);
    while screen.text().lines().any(is_young) && plan.rounds > 1 {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(plan.rest).await;
    let before = screen.counts();
    sleep(plan.rest * 4).await;
    let idle = screen.counts().0 - before.0;

    let id = screen.process.id();
    let (processor, counts, since) = (processor_time(id), screen.counts(), Instant::now());
    let load = tokio::spawn(events(trees, plan.open * 5));
    let mut delays = Vec::new();
    let mut key = b'j';
    while !load.is_finished() {
        if let Some(delay) = screen.paint_after(key).await {
            delays.push(delay);
        }
        key = if key == b'j' { b'k' } else { b'j' };
        sleep(Duration::from_millis(73)).await;
    }
    let count = load.await.unwrap();
    let took = since.elapsed().as_secs_f64();
    let pictures = (screen.counts().1 - counts.1) as f64 / took;
    let delays = Samples(delays);
    let mut figures = vec![
        Figure::new("events", count as f64 / took, "a second"),
        Figure::new("pictures", pictures, "a second").at_most(30.0),
        Figure::new("from a key to its picture, p50", millis(delays.quantile(0.5)), "ms"),
        Figure::new("from a key to its picture, p99", millis(delays.quantile(0.99)), "ms").at_most(50.0),
        Figure::new("bytes written while nothing changes", idle as f64, "bytes").at_most(0.0),
    ];
    if let (Some(before), Some(after)) = (processor, processor_time(id)) {
        let part = (after - before).as_secs_f64() / took;
        figures.push(Figure::new("processor, of one core", part * 100.0, "%").at_most(15.0));
    }
    if let Some(resident) = resident(id) {
        figures.push(Figure::new("resident", resident * 1_024.0 / 1e6, "MB").at_most(150.0));
    }
    Chapter {
        title: "The screen of `troupe top`",
        how: format!(
            "{sessions} sessions with {threads} settled threads each, {RATE} calls per second for {took:.0} s, on a \
             terminal of {} by {} characters. Every {TURN_EVERY}th call gives a thread another turn, the other calls \
             set a note. A key that selects another row is pressed about ten times per second.",
            SIZE.0, SIZE.1
        ),
        figures,
    }
}

/// Makes calls at a fixed rate, spread over all threads. Returns the number of their events.
async fn events(trees: Vec<Tree>, time: Duration) -> u64 {
    let mut targets = Vec::new();
    let mut before = 0;
    for tree in &trees {
        let threads = tree.threads().await.into_iter().filter(|thread| thread.depth > 0);
        targets.extend(threads.map(|thread| (tree.clone(), thread.thread_id)));
        before += tree.head().await;
    }
    let targets = Arc::new(targets);
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        let targets = Arc::clone(&targets);
        writing.spawn(async move {
            let mut due = interval(Duration::from_secs(1) * WRITERS as u32 / RATE as u32);
            due.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let end = Instant::now() + time;
            let mut count = 0;
            while Instant::now() < end {
                due.tick().await;
                let place = (count * WRITERS as usize + writer as usize) * 7_919 % targets.len();
                let (tree, thread) = &targets[place];
                if count % TURN_EVERY == 0 {
                    tree.send(thread, "again").await;
                } else {
                    tree.note(thread, &format!("note {count}")).await;
                }
                count += 1;
            }
        });
    }
    writing.join_all().await;
    let mut after = 0;
    for tree in &trees {
        after += tree.head().await;
    }
    after - before
}

/// `troupe top` on a pseudo-terminal.
struct Screen {
    process: Child,
    terminal: File,
    output: Arc<Mutex<Output>>,
}

struct Output {
    emulator: vt100::Parser,
    bytes: usize,
    pictures: usize,
    /// The selected row and when it was selected.
    selected: (Option<u16>, Instant),
}

impl Screen {
    fn start(supervisor: &Served, registry: &Served) -> Self {
        let (columns, rows) = SIZE;
        let (terminal, slave) = terminal::open(columns, rows);
        let process = Command::new(process::troupe())
            .args([
                "top",
                "--alert",
                "off",
                "--supervisor",
                &format!("http://{}", supervisor.address),
            ])
            .args(["--registry", &format!("http://{}", registry.address)])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(Output {
            emulator: vt100::Parser::new(NonZero::new(rows).unwrap(), NonZero::new(columns).unwrap(), 0),
            bytes: 0,
            pictures: 0,
            selected: (None, Instant::now()),
        }));
        let (mut reader, shared) = (terminal.try_clone().unwrap(), Arc::clone(&output));
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(count) = reader.read(&mut buffer) {
                shared.lock().unwrap().take(&buffer[..count]);
            }
        });
        Self {
            process,
            terminal,
            output,
        }
    }

    fn text(&self) -> String {
        self.output.lock().unwrap().emulator.screen().contents()
    }

    /// Returns the number of bytes and of pictures.
    fn counts(&self) -> (usize, usize) {
        let output = self.output.lock().unwrap();
        (output.bytes, output.pictures)
    }

    /// Presses a key that selects another row. Returns the time until the row is selected on the screen; `None` if no
    /// other row is selected within a second.
    async fn paint_after(&self, key: u8) -> Option<Duration> {
        let (before, _) = self.output.lock().unwrap().selected;
        let pressed = Instant::now();
        (&self.terminal).write_all(&[key]).unwrap();
        while pressed.elapsed() < Duration::from_secs(1) {
            let (selected, at) = self.output.lock().unwrap().selected;
            if selected != before {
                return Some(at.duration_since(pressed));
            }
            sleep(Duration::from_millis(1)).await;
        }
        None
    }
}

impl Output {
    fn take(&mut self, bytes: &[u8]) {
        self.emulator.process(bytes);
        self.bytes += bytes.len();
        self.pictures += bytes.windows(PICTURE.len()).filter(|window| *window == PICTURE).count();
        let screen = self.emulator.screen();
        let is_selected = |row: &u16| screen.cell(*row, 1).is_some_and(vt100::Cell::inverse);
        let selected = (0..SIZE.1).find(is_selected);
        if selected != self.selected.0 {
            self.selected = (selected, Instant::now());
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
