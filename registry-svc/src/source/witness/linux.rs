//! The inotify witness.

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

use crate::source::{places::Lookout, witness::way};

/// Maximum lifetime of a pledge. It bounds the delay of changes that cause no event.
const TRUST: Duration = Duration::from_secs(1);
/// Maximum number of watched directories and names in them. Above the limit, the witness is reset, which costs one more
/// scan for each call.
const MAX_NOTES: usize = 32_768;
/// Buffer for the events of one read, in bytes. A single event has at most 272 bytes.
const BUFFER_BYTES: usize = 4_096;
/// Events that can change the target of a name.
const OF_NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);
/// Also events that can change the content of a file. The close event reports writes through a mapping.
const OF_CONTENT: WatchFlags = OF_NAMES.union(WatchFlags::MODIFY).union(WatchFlags::CLOSE_WRITE);
/// The file systems that change only through this kernel, by the numbers in `linux/magic.h`.
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
pub(crate) struct Witness {
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    descriptor: Descriptor,
    record: Record,
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
struct Record {
    clock: u64,
    /// The time since which no event was missed.
    began: u64,
    directories: HashMap<Watch, Directory>,
    /// The number of directories and names.
    notes: usize,
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
    /// The time of the last relevant change.
    changed: u64,
}

/// The entries of a directory that are relevant to a look.
#[derive(Clone, Copy, Debug)]
enum Interest<'a> {
    /// The target of a name.
    Name(&'a OsStr),
    /// Every name, and the content of its file.
    Everything,
}

/// A guarantee that the values read are current, as long as it holds.
#[derive(Debug)]
pub(crate) struct Pledge {
    made: Instant,
    /// The time up to which no covered location changed. Advanced by each successful check.
    since: AtomicU64,
    directories: Vec<Watch>,
}

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    witness: &'a Witness,
    /// `None` if no pledge can be given for this scan.
    descriptor: Option<Arc<OwnedFd>>,
    made: Instant,
    since: u64,
    /// The directories, by their paths, and what they are watched for.
    known: HashMap<PathBuf, (Watch, WatchFlags)>,
    directories: HashSet<Watch>,
}

impl Witness {
    /// Starts a look.
    #[must_use]
    pub(crate) fn look(&self) -> Look<'_> {
        let made = Instant::now();
        let mut watched = self.lock();
        watched.drain();
        Look {
            witness: self,
            descriptor: watched.open(),
            made,
            since: watched.record.clock,
            known: HashMap::new(),
            directories: HashSet::new(),
        }
    }

    /// Returns whether values read under the pledge are still current. Never blocks on the disk.
    #[must_use]
    pub(crate) fn vouches(&self, pledge: &Pledge) -> bool {
        pledge.made.elapsed() <= TRUST && self.holds(pledge)
    }

    fn holds(&self, pledge: &Pledge) -> bool {
        let mut watched = self.lock();
        watched.drain();
        let record = &watched.record;
        let since = pledge.since.load(Ordering::Relaxed);
        if since == record.clock {
            return true;
        }
        let holds = record.is_unchanged(since, &pledge.directories);
        if holds {
            pledge.since.store(record.clock, Ordering::Relaxed);
        }
        holds
    }

    /// Records an interest of a look that began at `since`. Returns false if an event was missed since then.
    fn note(&self, watch: Watch, interest: Interest<'_>, since: u64) -> bool {
        let mut watched = self.lock();
        if since < watched.record.began {
            return false;
        }
        if watched.record.notes >= MAX_NOTES {
            watched.start_anew();
            return false;
        }
        watched.record.note(watch, interest);
        true
    }

    /// Held only briefly and never during disk access. Code under the lock does not panic.
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
                    tracing::warn!(%error, "the system watches no directories for us; every call looks at the disk");
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
            record,
        } = self
        else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = Reader::new(&**descriptor, &mut buffer);
        let error = loop {
            match events.next() {
                Ok(event) => record.hear(event.events(), Watch(event.wd()), event.file_name()),
                Err(Errno::AGAIN) => return,
                Err(error) => break error,
            }
        };
        tracing::warn!(%error, "changes on disk are not told any more; every call looks at the disk");
        record.forget();
        self.descriptor = Descriptor::Refused;
    }

    fn start_anew(&mut self) {
        // The look still holds the descriptor, so the slow close does not happen under the lock.
        self.descriptor = Descriptor::Closed;
        self.record.forget();
    }
}

impl Record {
    fn hear(&mut self, kind: ReadFlags, watch: Watch, name: Option<&CStr>) {
        if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.doubt();
            return;
        }
        let Some(directory) = self.directories.get_mut(&watch) else {
            return;
        };
        if !directory.is_about(name) {
            return;
        }
        self.clock += 1;
        directory.changed = self.clock;
        // The directory was removed, so it is no longer watched.
        if kind.contains(ReadFlags::IGNORED)
            && let Some(gone) = self.directories.remove(&watch)
        {
            self.notes -= 1 + gone.names.len();
        }
    }

    fn note(&mut self, watch: Watch, interest: Interest<'_>) {
        let directory = self.directories.entry(watch).or_insert_with(|| {
            self.notes += 1;
            Directory::default()
        });
        match interest {
            Interest::Everything => directory.everything = true,
            Interest::Name(name) => {
                if !directory.names.contains(name) {
                    directory.names.insert(name.to_owned());
                    self.notes += 1;
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

    /// Records that events were missed, which invalidates every earlier pledge.
    fn doubt(&mut self) {
        self.clock += 1;
        self.began = self.clock;
    }

    /// Removes all watches.
    fn forget(&mut self) {
        self.directories.clear();
        self.notes = 0;
        self.doubt();
    }
}

impl Directory {
    /// Returns whether an event is relevant. An event without a name is about the directory itself.
    fn is_about(&self, name: Option<&CStr>) -> bool {
        let is_noted = |name: &CStr| self.names.contains(OsStr::from_bytes(name.to_bytes()));
        self.everything || name.is_none_or(is_noted)
    }
}

impl Interest<'_> {
    const fn flags(self) -> WatchFlags {
        match self {
            Self::Name(_) => OF_NAMES,
            Self::Everything => OF_CONTENT,
        }
    }
}

impl Look<'_> {
    /// Returns a look at a part of the locations of this look. The part yields its own pledge; see [`Self::include`].
    #[must_use]
    pub(crate) fn part(&self) -> Self {
        Self {
            witness: self.witness,
            descriptor: self.descriptor.clone(),
            made: Instant::now(),
            // The known directories were recorded at this time, not now.
            since: self.since,
            known: self.known.clone(),
            directories: HashSet::new(),
        }
    }

    /// Everything in the directory at this path, which is absolute.
    pub(crate) fn directory(&mut self, path: &Path) {
        self.everything_at(Path::new("/"), path);
    }

    /// The file that the link at this path, which is absolute, leads to.
    pub(crate) fn link(&mut self, path: &Path) {
        let end = self.follow(Path::new("/"), path);
        if let Some(directory) = end.as_deref().and_then(Path::parent) {
            self.watch(directory, Interest::Everything);
        }
    }

    /// Marks the look as unreliable because a scanned location can change without an event. [`Self::done`] then returns
    /// `None`.
    pub(crate) fn doubt(&mut self) {
        self.descriptor = None;
    }

    /// Returns whether values read under the pledge are still current. If so, the pledge's locations are added to this
    /// look.
    #[must_use]
    pub(crate) fn relies_on(&mut self, pledge: &Pledge) -> bool {
        let holds = self.witness.vouches(pledge);
        if holds {
            self.include(pledge);
        }
        holds
    }

    /// Adds what was read under a pledge that holds.
    pub(crate) fn include(&mut self, pledge: &Pledge) {
        self.made = self.made.min(pledge.made);
        self.directories.extend(&pledge.directories);
    }

    /// Returns the pledge for all scanned locations. `None` if the look is unreliable or a location changed during the
    /// scan.
    #[must_use]
    pub(crate) fn done(self) -> Option<Pledge> {
        self.descriptor.as_ref()?;
        let directories: Vec<Watch> = self.directories.into_iter().collect();
        let mut watched = self.witness.lock();
        watched.drain();
        let is_unchanged = watched.record.is_unchanged(self.since, &directories);
        is_unchanged.then(|| Pledge {
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
        way::follow(from, path, &mut |directory: &Path, name: &OsStr| {
            self.watch(directory, Interest::Name(name));
        })
    }

    /// Watches a directory. Later changes are recorded; a read after this call sees all earlier changes.
    fn watch(&mut self, directory: &Path, interest: Interest<'_>) {
        match self.watched(directory, interest.flags()) {
            Some(watch) if self.witness.note(watch, interest, self.since) => {
                self.directories.insert(watch);
            }
            Some(_) | None => self.doubt(),
        }
    }

    /// Has the kernel watch a directory, given by its canonical path, at least for that.
    fn watched(&mut self, directory: &Path, flags: WatchFlags) -> Option<Watch> {
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

impl Lookout for Look<'_> {
    fn way(&mut self, path: &Path) {
        match path::absolute(path) {
            Ok(path) => {
                self.follow(Path::new("/"), &path);
            }
            Err(_) => self.doubt(),
        }
    }

    fn name(&mut self, directory: &Path, name: &str) {
        self.watch(directory, Interest::Name(OsStr::new(name)));
    }

    fn place(&mut self, base: &Path, relative: &str) {
        self.everything_at(base, Path::new(relative));
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
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A directory with a project in which calls start.
    struct Tree {
        _guard: tempfile::TempDir,
        base: PathBuf,
    }

    impl Tree {
        fn new() -> Self {
            let guard = tempfile::tempdir().unwrap();
            let base = fs::canonicalize(guard.path()).unwrap();
            fs::create_dir_all(base.join("up/project/.codex/agents")).unwrap();
            fs::create_dir_all(base.join("other")).unwrap();
            fs::write(base.join("up/project/.codex/agents/a.md"), "a").unwrap();
            symlink("up/project", base.join("link")).unwrap();
            Self { _guard: guard, base }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.base.join(path)
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.at(path), text).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.at(from), self.at(to)).unwrap();
        }

        /// Returns a look by way of the link.
        fn look<'a>(&self, witness: &'a Witness) -> Look<'a> {
            let mut look = witness.look();
            let project = self.at("up/project");
            look.way(&self.at("link"));
            look.name(&project, ".git");
            look.place(&project, ".codex/agents");
            look.place(&project, "docs/templates");
            look
        }
    }

    #[test]
    fn a_pledge_holds_until_something_changes_that_matters() {
        type Change = fn(&Tree);
        let changes: &[(&str, bool, Change)] = &[
            ("nothing", false, |_| {}),
            ("a file of the project", false, |tree| {
                tree.write("up/project/main.rs", "x");
            }),
            ("a file beside", false, |tree| tree.write("other/.git", "x")),
            ("a neighbour of an ancestor", false, |tree| {
                tree.rename("other", "another");
            }),
            ("reading", false, |tree| {
                fs::read(tree.at("up/project/.codex/agents/a.md")).unwrap();
            }),
            ("written in place", true, |tree| {
                tree.write("up/project/.codex/agents/a.md", "b");
            }),
            ("a new file", true, |tree| {
                tree.write("up/project/.codex/agents/b.md", "b");
            }),
            ("renamed over", true, |tree| {
                tree.write("other/b.md", "b");
                tree.rename("other/b.md", "up/project/.codex/agents/a.md");
            }),
            ("removed", true, |tree| {
                fs::remove_file(tree.at("up/project/.codex/agents/a.md")).unwrap();
            }),
            ("the place is gone", true, |tree| {
                fs::remove_dir_all(tree.at("up/project/.codex")).unwrap();
            }),
            ("a place comes into being", true, |tree| {
                fs::create_dir(tree.at("up/project/docs")).unwrap();
            }),
            ("a repository begins", true, |tree| {
                tree.write("up/project/.git", "gitdir: x");
            }),
            ("the project is renamed", true, |tree| {
                tree.rename("up/project", "up/gone");
            }),
            ("an ancestor is renamed", true, |tree| tree.rename("up", "down")),
            ("the link leads elsewhere", true, |tree| {
                symlink("other", tree.at("new")).unwrap();
                tree.rename("new", "link");
            }),
        ];
        for (what, matters, change) in changes {
            let tree = Tree::new();
            let witness = Witness::default();
            let pledge = tree.look(&witness).done().expect(what);
            assert!(witness.holds(&pledge), "{what}");
            change(&tree);
            assert_eq!(witness.holds(&pledge), !matters, "{what}");
            assert_eq!(witness.holds(&pledge), !matters, "{what}, asked again");
        }
    }

    #[test]
    fn what_changes_during_a_look_is_not_pledged() {
        let tree = Tree::new();
        let witness = Witness::default();
        let look = tree.look(&witness);
        tree.write("up/project/.codex/agents/a.md", "b");
        assert!(look.done().is_none());
        assert!(tree.look(&witness).done().is_some());
    }

    #[test]
    fn the_target_of_a_link_is_seen_wherever_it_lies() {
        let tree = Tree::new();
        let path = tree.at("up/project/.codex/agents/linked.md");
        tree.write("other/target.md", "one");
        symlink(tree.at("other/target.md"), &path).unwrap();
        let witness = Witness::default();
        let pledge = || {
            let mut look = tree.look(&witness);
            look.link(&path);
            look.done().unwrap()
        };
        let before = pledge();
        tree.write("other/target.md", "two");
        assert!(!witness.holds(&before));
        let before = pledge();
        tree.rename("other", "another");
        assert!(!witness.holds(&before));
    }

    #[test]
    fn a_part_is_pledged_for_itself_and_for_the_whole() {
        let tree = Tree::new();
        let witness = Witness::default();
        let mut whole = witness.look();
        let mut part = whole.part();
        part.directory(&tree.at("other"));
        let part = part.done().unwrap();
        whole.include(&part);
        let whole = whole.done().unwrap();
        assert!(witness.holds(&part) && witness.holds(&whole));
        tree.write("other/x", "x");
        assert!(!witness.holds(&part) && !witness.holds(&whole));
        assert!(!witness.look().relies_on(&part));
    }

    #[test]
    fn a_pledge_runs_out() {
        let tree = Tree::new();
        let witness = Witness::default();
        let mut pledge = tree.look(&witness).done().unwrap();
        pledge.made = pledge.made.checked_sub(2 * TRUST).unwrap();
        assert!(witness.holds(&pledge) && !witness.vouches(&pledge));
    }

    #[test]
    fn what_may_change_unseen_is_not_pledged() {
        let tree = Tree::new();
        let witness = Witness::default();
        let mut look = tree.look(&witness);
        look.doubt();
        assert!(look.done().is_none());
        let mut look = witness.look();
        look.directory(Path::new("/proc/self"));
        assert!(look.done().is_none(), "no file system that tells");
    }

    #[test]
    fn when_events_were_lost_nothing_holds() {
        let tree = Tree::new();
        let witness = Witness::default();
        let pledge = tree.look(&witness).done().unwrap();
        let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let queue: usize = queue.trim().parse().unwrap();
        // None of these matters, but each takes two places in the queue.
        tree.write("up/project/a", "");
        for _ in 0..=queue / 4 {
            tree.rename("up/project/a", "up/project/b");
            tree.rename("up/project/b", "up/project/a");
        }
        assert!(!witness.holds(&pledge));
        assert!(witness.holds(&tree.look(&witness).done().unwrap()));
    }

    #[test]
    fn a_witness_with_too_much_to_watch_starts_anew() {
        let tree = Tree::new();
        let witness = Witness::default();
        let before = tree.look(&witness).done().unwrap();
        let mut look = witness.look();
        for number in 0..=MAX_NOTES {
            look.name(&tree.base, &number.to_string());
        }
        assert!(look.done().is_none());
        assert!(!witness.holds(&before));
        assert!(witness.lock().record.notes < MAX_NOTES);
        assert!(witness.holds(&tree.look(&witness).done().unwrap()));
    }
}
