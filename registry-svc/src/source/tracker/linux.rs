//! The tracker for Linux, with inotify.

use std::{
    collections::{HashMap, HashSet},
    ffi::{CStr, OsStr, OsString},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{self, Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        statfs,
    },
    io::Errno,
};

use tokio::io::unix::AsyncFd;

use crate::source::tracker::resolve_path;

/// Maximum lifetime of a guard. It bounds the delay of changes that cause no event.
const TRUST: Duration = Duration::from_secs(1);
/// Maximum number of watched directories and names in them. Above the limit, the tracker is reset, which costs one more
/// scan for each call.
const MAX_INTERESTS: usize = 32_768;
/// Buffer for the events of one read, in bytes. A single event has at most 272 bytes.
const BUFFER_BYTES: usize = 4_096;
/// Events that can change the target of a name.
const NAME_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);
/// `NAME_EVENTS`, and events that can change the content of a file. The close event reports writes through a mapping.
const CONTENT_EVENTS: WatchFlags = NAME_EVENTS.union(WatchFlags::MODIFY).union(WatchFlags::CLOSE_WRITE);
/// The magic numbers (`linux/magic.h`) of file systems that change only through this kernel.
const LOCAL: &[u32] = &[
    0x0000_EF53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs
];

/// Records changes of watched directories.
#[derive(Debug, Default)]
pub(crate) struct ChangeTracker {
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    descriptor: Descriptor,
    log: EventLog,
}

/// The inotify descriptor.
#[derive(Debug, Default)]
enum Descriptor {
    /// Not requested yet, or closed for a reset.
    #[default]
    Closed,
    /// A non-blocking descriptor.
    Open(Arc<OwnedFd>),
    /// The operating system refused to create one.
    Refused,
}

/// The recorded events. The clock counts relevant changes, so it does not advance while nothing happens.
#[derive(Debug, Default)]
struct EventLog {
    clock: u64,
    /// The clock value since which no event was missed.
    began: u64,
    directories: HashMap<Watch, Directory>,
    /// The number of directories and names.
    interests: usize,
}

/// The kernel's identifier of a watched directory, independent of the path that leads to it. A descriptor never reuses
/// an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch(i32);

/// A directory that is watched.
#[derive(Debug, Default)]
struct Directory {
    /// The relevant names.
    names: HashSet<OsString>,
    /// Whether every name is relevant.
    everything: bool,
    /// The clock value of the last relevant change.
    changed: u64,
}

/// The entries of a directory that are relevant to a scan.
#[derive(Clone, Copy, Debug)]
enum Interest<'a> {
    /// The target of a name.
    Name(&'a OsStr),
    /// Every name, and the content of its file.
    Everything,
}

/// A guarantee that cached values are current. [`ChangeTracker::is_current`] tells whether the guarantee still holds.
#[derive(Debug)]
pub(crate) struct CacheGuard {
    made: Instant,
    /// The clock value up to which no covered location changed. Advanced by each successful check.
    since: AtomicU64,
    directories: Vec<Watch>,
}

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    tracker: &'a ChangeTracker,
    /// `None` if no guard can be given for this scan.
    descriptor: Option<Arc<OwnedFd>>,
    made: Instant,
    since: u64,
    /// The watches of directories, by path, and the events that each watch reports.
    known: HashMap<PathBuf, (Watch, WatchFlags)>,
    directories: HashSet<Watch>,
}

impl ChangeTracker {
    /// Starts a scan.
    #[must_use]
    pub(crate) fn scan(&self) -> Scan<'_> {
        let made = Instant::now();
        let mut watched = self.lock();
        watched.drain();
        Scan {
            tracker: self,
            descriptor: watched.open(),
            made,
            since: watched.log.clock,
            known: HashMap::new(),
            directories: HashSet::new(),
        }
    }

    /// Returns whether values read under the guard are current. Never blocks on the disk.
    #[must_use]
    pub(crate) fn is_current(&self, guard: &CacheGuard) -> bool {
        guard.made.elapsed() <= TRUST && self.holds(guard)
    }

    /// Waits until values read under the guard may have changed. Cancel safe.
    pub(crate) async fn changed(&self, guard: &CacheGuard) {
        // Each waiter has its own handle, because each needs the wake-up. The handle is created before the check, so
        // that an event between the check and the wait is not missed.
        let Some(events) = self.events() else { return };
        while self.holds(guard) {
            match events.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for changes on disk; they are found by polling");
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Returns a handle that becomes readable when an event arrives. `None` if there is no descriptor.
    fn events(&self) -> Option<AsyncFd<OwnedFd>> {
        let descriptor = match &self.lock().descriptor {
            Descriptor::Open(descriptor) => Arc::clone(descriptor),
            Descriptor::Closed | Descriptor::Refused => return None,
        };
        #[expect(
            deprecated,
            reason = "the replacement is unsafe; the handle owns its descriptor, so this is sound"
        )]
        AsyncFd::new(descriptor.try_clone().ok()?).ok()
    }

    /// Returns whether no location that the guard covers has changed.
    fn holds(&self, guard: &CacheGuard) -> bool {
        let mut watched = self.lock();
        watched.drain();
        let log = &watched.log;
        let since = guard.since.load(Ordering::Relaxed);
        if since == log.clock {
            return true;
        }
        let holds = log.is_unchanged(since, &guard.directories);
        if holds {
            guard.since.store(log.clock, Ordering::Relaxed);
        }
        holds
    }

    /// Records an interest of a scan that began at `since`. Returns false if an event was missed since then.
    fn add_interest(&self, watch: Watch, interest: Interest<'_>, since: u64) -> bool {
        let mut watched = self.lock();
        if since < watched.log.began {
            return false;
        }
        if watched.log.interests >= MAX_INTERESTS {
            watched.reset();
            return false;
        }
        watched.log.add_interest(watch, interest);
        true
    }

    /// Locks the state. The lock is never held during disk access, and code under it does not panic.
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn open(&mut self) -> Option<Arc<OwnedFd>> {
        if matches!(self.descriptor, Descriptor::Closed) {
            self.descriptor = match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
                Ok(descriptor) => Descriptor::Open(Arc::new(descriptor)),
                Err(error) => {
                    tracing::warn!(%error, "inotify is not available; every call scans the disk");
                    Descriptor::Refused
                }
            };
        }
        match &self.descriptor {
            Descriptor::Open(descriptor) => Some(Arc::clone(descriptor)),
            Descriptor::Closed | Descriptor::Refused => None,
        }
    }

    /// Reads all queued events.
    fn drain(&mut self) {
        let Self {
            descriptor: Descriptor::Open(descriptor),
            log,
        } = self
        else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = Reader::new(&**descriptor, &mut buffer);
        let error = loop {
            match events.next() {
                Ok(event) => log.record(event.events(), Watch(event.wd()), event.file_name()),
                Err(Errno::AGAIN) => return,
                Err(error) => break error,
            }
        };
        tracing::warn!(%error, "inotify failed; every call scans the disk");
        log.forget();
        self.descriptor = Descriptor::Refused;
    }

    fn reset(&mut self) {
        // The scan still holds the descriptor, so the slow close does not happen under the lock.
        self.descriptor = Descriptor::Closed;
        self.log.forget();
    }
}

impl EventLog {
    fn record(&mut self, kind: ReadFlags, watch: Watch, name: Option<&CStr>) {
        if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.mark_unreliable();
            return;
        }
        let Some(directory) = self.directories.get_mut(&watch) else {
            return;
        };
        if !directory.is_relevant(name) {
            return;
        }
        self.clock += 1;
        directory.changed = self.clock;
        // The directory was removed, so it is no longer watched.
        if kind.contains(ReadFlags::IGNORED)
            && let Some(gone) = self.directories.remove(&watch)
        {
            self.interests -= 1 + gone.names.len();
        }
    }

    fn add_interest(&mut self, watch: Watch, interest: Interest<'_>) {
        let directory = self.directories.entry(watch).or_insert_with(|| {
            self.interests += 1;
            Directory::default()
        });
        match interest {
            Interest::Everything => directory.everything = true,
            Interest::Name(name) => {
                if !directory.names.contains(name) {
                    directory.names.insert(name.to_owned());
                    self.interests += 1;
                }
            }
        }
    }

    fn is_unchanged(&self, since: u64, directories: &[Watch]) -> bool {
        let is_unchanged = |watch: &Watch| {
            let directory = self.directories.get(watch);
            directory.is_some_and(|directory| directory.changed <= since)
        };
        since >= self.began && directories.iter().all(is_unchanged)
    }

    /// Records that events were missed, which invalidates every earlier guard.
    fn mark_unreliable(&mut self) {
        self.clock += 1;
        self.began = self.clock;
    }

    /// Removes all watches.
    fn forget(&mut self) {
        self.directories.clear();
        self.interests = 0;
        self.mark_unreliable();
    }
}

impl Directory {
    /// Returns whether an event is relevant. An event without a name is about the directory itself.
    fn is_relevant(&self, name: Option<&CStr>) -> bool {
        let is_observed = |name: &CStr| self.names.contains(OsStr::from_bytes(name.to_bytes()));
        self.everything || name.is_none_or(is_observed)
    }
}

impl Interest<'_> {
    const fn flags(self) -> WatchFlags {
        match self {
            Self::Name(_) => NAME_EVENTS,
            Self::Everything => CONTENT_EVENTS,
        }
    }
}

impl Scan<'_> {
    /// Starts a scan of a part of the locations of this scan. The part gives its own guard; see [`Self::include`].
    #[must_use]
    pub(crate) fn part(&self) -> Self {
        Self {
            tracker: self.tracker,
            descriptor: self.descriptor.clone(),
            made: Instant::now(),
            // The known directories have been watched since this time.
            since: self.since,
            known: self.known.clone(),
            directories: HashSet::new(),
        }
    }

    /// Observes an absolute path whose target determines a project or the home.
    pub(crate) fn observe_path(&mut self, path: &Path) {
        match path::absolute(path) {
            Ok(path) => {
                self.follow(Path::new("/"), &path);
            }
            Err(_) => self.mark_unreliable(),
        }
    }

    /// Observes whether a canonical directory has an entry with that name.
    pub(crate) fn observe_entry(&mut self, directory: &Path, name: &str) {
        self.watch(directory, Interest::Name(OsStr::new(name)));
    }

    /// Observes all entries of a directory below a canonical one. The directory may be created later, so the path to it
    /// is observed too.
    pub(crate) fn observe_directory(&mut self, base: &Path, relative: &str) {
        self.everything_at(base, Path::new(relative));
    }

    /// Observes all entries of the directory at this absolute path.
    pub(crate) fn observe_entries(&mut self, path: &Path) {
        self.everything_at(Path::new("/"), path);
    }

    /// Observes the target of the link at this absolute path.
    pub(crate) fn observe_link(&mut self, path: &Path) {
        let end = self.follow(Path::new("/"), path);
        if let Some(directory) = end.as_deref().and_then(Path::parent) {
            self.watch(directory, Interest::Everything);
        }
    }

    /// Marks the scan as unreliable because a scanned location can change without an event. [`Self::finish`] then
    /// returns `None`.
    pub(crate) fn mark_unreliable(&mut self) {
        self.descriptor = None;
    }

    /// Returns whether values read under the guard are still current. If so, the guard's locations are added to this
    /// scan.
    #[must_use]
    pub(crate) fn reuse(&mut self, guard: &CacheGuard) -> bool {
        let holds = self.tracker.is_current(guard);
        if holds {
            self.include(guard);
        }
        holds
    }

    /// Adds the locations of a guard that holds.
    pub(crate) fn include(&mut self, guard: &CacheGuard) {
        self.made = self.made.min(guard.made);
        self.directories.extend(&guard.directories);
    }

    /// Returns the guard for all scanned locations. `None` if the scan is unreliable or a location changed during the
    /// scan.
    #[must_use]
    pub(crate) fn finish(self) -> Option<CacheGuard> {
        self.descriptor.as_ref()?;
        let directories: Vec<Watch> = self.directories.into_iter().collect();
        let mut watched = self.tracker.lock();
        watched.drain();
        let is_unchanged = watched.log.is_unchanged(self.since, &directories);
        is_unchanged.then(|| CacheGuard {
            made: self.made,
            since: AtomicU64::new(self.since),
            directories,
        })
    }

    fn everything_at(&mut self, from: &Path, path: &Path) {
        let end = self.follow(from, path);
        if let Some(directory) = end.filter(|end| end.is_dir()) {
            self.watch(&directory, Interest::Everything);
        }
    }

    fn follow(&mut self, from: &Path, path: &Path) -> Option<PathBuf> {
        resolve_path::resolve(from, path, &mut |directory: &Path, name: &OsStr| {
            self.watch(directory, Interest::Name(name));
        })
    }

    /// Watches a directory. Changes after this call are recorded, and a read after this call sees all changes before
    /// it.
    fn watch(&mut self, directory: &Path, interest: Interest<'_>) {
        match self.add_watch(directory, interest.flags()) {
            Some(watch) if self.tracker.add_interest(watch, interest, self.since) => {
                self.directories.insert(watch);
            }
            Some(_) | None => self.mark_unreliable(),
        }
    }

    /// Adds a kernel watch for a directory, given by its canonical path, with at least these flags.
    fn add_watch(&mut self, directory: &Path, flags: WatchFlags) -> Option<Watch> {
        let descriptor = self.descriptor.as_ref()?;
        if let Some((watch, known)) = self.known.get(directory)
            && known.contains(flags)
        {
            return Some(*watch);
        }
        if !is_local(directory) {
            return None;
        }
        let watch = Watch(inotify::add_watch(descriptor, directory, flags).ok()?);
        self.known.insert(directory.to_owned(), (watch, flags));
        Some(watch)
    }
}

/// Returns whether a directory lies on a file system that changes only through this kernel.
fn is_local(directory: &Path) -> bool {
    let kind = statfs(directory)
        .ok()
        .and_then(|system| u32::try_from(system.f_type).ok());
    kind.is_some_and(|kind| LOCAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::temp_tree::TempTree;

    /// Creates a project with a template, and a link to the project.
    fn tree() -> TempTree {
        let tree = TempTree::new(&["other"]);
        tree.write("up/project/.codex/agents/a.md", "a");
        tree.link("up/project", "link");
        tree
    }

    fn rename(tree: &TempTree, from: &str, to: &str) {
        fs::rename(tree.at(from), tree.at(to)).unwrap();
    }

    /// Scans the project through the link.
    fn scan_by_link<'a>(tree: &TempTree, tracker: &'a ChangeTracker) -> Scan<'a> {
        let mut scan = tracker.scan();
        let project = tree.at("up/project");
        scan.observe_path(&tree.at("link"));
        scan.observe_entry(&project, ".git");
        scan.observe_directory(&project, ".codex/agents");
        scan.observe_directory(&project, "docs/templates");
        scan
    }

    #[test]
    fn guard_holds_until_a_relevant_change() {
        type Change = fn(&TempTree);
        let changes: &[(&str, bool, Change)] = &[
            ("nothing", false, |_| {}),
            ("a file of the project", false, |tree| {
                tree.write("up/project/main.rs", "x");
            }),
            ("a file elsewhere", false, |tree| {
                tree.write("other/.git", "x");
            }),
            ("a neighbour of an ancestor", false, |tree| {
                rename(tree, "other", "another");
            }),
            ("reading", false, |tree| {
                fs::read(tree.at("up/project/.codex/agents/a.md")).unwrap();
            }),
            ("a template is written", true, |tree| {
                tree.write("up/project/.codex/agents/a.md", "b");
            }),
            ("an ancestor is renamed", true, |tree| rename(tree, "up", "down")),
        ];
        for (what, matters, change) in changes {
            let tree = tree();
            let tracker = ChangeTracker::default();
            let guard = scan_by_link(&tree, &tracker).finish().expect(what);
            assert!(tracker.holds(&guard), "{what}");
            change(&tree);
            assert_eq!(tracker.holds(&guard), !matters, "{what}");
            assert_eq!(tracker.holds(&guard), !matters, "{what}, second check");
        }
    }

    #[test]
    fn change_during_scan_gives_no_guard() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let scan = scan_by_link(&tree, &tracker);
        tree.write("up/project/.codex/agents/a.md", "b");
        assert!(scan.finish().is_none());
        assert!(scan_by_link(&tree, &tracker).finish().is_some());
    }

    #[test]
    fn change_of_link_target_is_detected() {
        let tree = tree();
        let target = tree.write("other/target.md", "one");
        tree.link(target, "up/project/.codex/agents/linked.md");
        let path = tree.at("up/project/.codex/agents/linked.md");
        let tracker = ChangeTracker::default();
        let guard = || {
            let mut scan = scan_by_link(&tree, &tracker);
            scan.observe_link(&path);
            scan.finish().unwrap()
        };
        let before = guard();
        tree.write("other/target.md", "two");
        assert!(!tracker.holds(&before));
        let before = guard();
        rename(&tree, "other", "another");
        assert!(!tracker.holds(&before));
    }

    #[test]
    fn guard_of_part_covers_its_locations() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let mut whole = tracker.scan();
        let mut part = whole.part();
        part.observe_entries(&tree.at("other"));
        let part = part.finish().unwrap();
        whole.include(&part);
        let whole = whole.finish().unwrap();
        assert!(tracker.holds(&part) && tracker.holds(&whole));
        tree.write("other/x", "x");
        assert!(!tracker.holds(&part) && !tracker.holds(&whole));
        assert!(!tracker.scan().reuse(&part));
    }

    #[test]
    fn guard_expires() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let mut guard = scan_by_link(&tree, &tracker).finish().unwrap();
        guard.made = guard.made.checked_sub(2 * TRUST).unwrap();
        assert!(tracker.holds(&guard) && !tracker.is_current(&guard));
    }

    #[test]
    fn unreliable_scan_gives_no_guard() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let mut scan = scan_by_link(&tree, &tracker);
        scan.mark_unreliable();
        assert!(scan.finish().is_none());
        let mut scan = tracker.scan();
        scan.observe_entries(Path::new("/proc/self"));
        assert!(scan.finish().is_none(), "/proc does not report changes");
    }

    #[test]
    fn lost_events_invalidate_guards() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let guard = scan_by_link(&tree, &tracker).finish().unwrap();
        let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let queue: usize = queue.trim().parse().unwrap();
        // These changes are not relevant, but each takes two entries in the queue.
        tree.write("up/project/a", "");
        for _ in 0..=queue / 4 {
            rename(&tree, "up/project/a", "up/project/b");
            rename(&tree, "up/project/b", "up/project/a");
        }
        assert!(!tracker.holds(&guard));
        assert!(tracker.holds(&scan_by_link(&tree, &tracker).finish().unwrap()));
    }

    #[test]
    fn tracker_over_its_limit_is_reset() {
        let tree = tree();
        let tracker = ChangeTracker::default();
        let before = scan_by_link(&tree, &tracker).finish().unwrap();
        let mut scan = tracker.scan();
        for number in 0..=MAX_INTERESTS {
            scan.observe_entry(&tree.base, &number.to_string());
        }
        assert!(scan.finish().is_none());
        assert!(!tracker.holds(&before));
        assert!(tracker.lock().log.interests < MAX_INTERESTS);
        assert!(tracker.holds(&scan_by_link(&tree, &tracker).finish().unwrap()));
    }
}
