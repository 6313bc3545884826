//! `troupe store`: checks, reads, compacts, copies and restores a data directory without a service, and rotates its
//! keys.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use prost_types::Timestamp;
use serde_json::{Value, json};
use supervisor_core::{
    ids::{Sequence, SessionId},
    time::UnixMillis,
};
use supervisor_log::{
    maintenance::{self, Backup, BackupState, Fault, MaintenanceError, Progress, Report},
    store::{PostgresOptions, PostgresStore, ReadError},
};
use supervisor_svc::StoreOptions;
use svc_kit::thread_token::RetiredKeys;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    error::{Error, Result},
    json::{self, writer},
    sanitize, time,
    ui::{Cell, Live, Table, count, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe store verify
  troupe store dump 01939c5a-0000-7000-8000-00000000aa01
  troupe store backup ~/backups/monday
  troupe store backups /mnt/backups
  troupe store restore ~/backups/monday --data-dir ~/restored
  troupe store compact
  troupe store rotate-keys
  troupe store copy --store postgres://troupe@db.example.com/troupe

Stop the service before `restore`, `compact`, `rotate-keys` and `copy`. --data-dir selects the data.";

const VERIFY_HELP: &str = "\
Examples:
  troupe store verify
  troupe store verify --data-dir /var/lib/troupe --output json

The command checks the database pages; the checksum, number and content of every record, and the resulting state of
each session; every content with its digest; snapshots and stored requests.

Exit codes: 0 no defect, 1 a defect, 2 usage.";

const DUMP_HELP: &str = "\
Examples:
  troupe store dump 01939c5a-0000-7000-8000-00000000aa01
  troupe store dump 01939c5a-0000-7000-8000-00000000aa01 --after 120 | jq -c .turn_ended

The events have the format of `troupe watch --output json`, one per line. They contain the beginnings of inputs and
messages, but no webhook secrets. From the compacted part of a log, only security events, prompts, artifacts and mail are
printed.";

const COMPACT_HELP: &str = "\
Example:
  troupe store compact

Stop the service first. The command temporarily needs as much free space as the size of the database.";

const ROTATE_KEYS_HELP: &str = "\
Examples:
  troupe store rotate-keys
  troupe store rotate-keys --keep 1
  troupe store rotate-keys --store postgres://troupe@db.example.com/troupe

Stop the service first; with PostgreSQL, stop all of its supervisors. New tokens are signed with the new key; tokens of
earlier keys that are kept stay valid. With --keep 0, all present tokens of threads become invalid.";

const BACKUP_HELP: &str = "\
Examples:
  troupe store backup ~/backups/monday
  troupe store backup /mnt/backups/troupe --data-dir /var/lib/troupe

The directory must be empty or absent. It receives a consistent copy of the log and the keys of threads' tokens, with
permissions for you only. Protect it like the data directory.";

const BACKUPS_HELP: &str = "\
Example:
  troupe store backups /mnt/backups

The directory is the --backup-dir of a supervisor. States:
  complete    verified when it was made; can be restored
  unfinished  being made, or interrupted; the next backup removes it
  faulty      sessions of the log were damaged; `troupe store verify --data-dir` lists them";

const RESTORE_HELP: &str = "\
Examples:
  troupe store restore ~/backups/monday --data-dir ~/restored
  troupe store restore /mnt/backups --data-dir /var/lib/troupe --replace

Stop the service first. For a directory of scheduled backups, the newest complete one is restored. The backup is copied
and verified before any file is replaced. Threads continue from the time of the backup; watchers start from a snapshot.";

const COPY_HELP: &str = "\
Examples:
  troupe store copy --store postgres://troupe@db.example.com/troupe --store-password-file db-password
  TROUPE_STORE=postgres://troupe@db.example.com/troupe troupe store copy --data-dir /var/lib/troupe

Stop the service first. The log is verified, and then copied in one transaction into the database, which must have no
sessions. Afterwards, start the service with the same --data-dir and --store. The log in the data directory does not
change; do not start a service on it again.";

const MIGRATE_HELP: &str = "\
Example:
  troupe store migrate --store postgres://owner@db.example.com/troupe

The command creates the tables that this release needs. The service does the same when it starts; use the command if the
role of the service may not create tables.";

/// Minimum time between two updates of the progress display.
const FRAME: Duration = Duration::from_millis(100);

/// An action on stored data.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// Verify the stored data and list defects
    #[command(after_help = VERIFY_HELP)]
    Verify,
    /// Print the events of a session as JSON lines
    #[command(after_help = DUMP_HELP)]
    Dump {
        /// Complete id of the session
        #[arg(value_name = "SESSION_ID", value_parser = parse_session)]
        session: SessionId,
        /// Print events after this number only
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
    },
    /// Release the space of deleted data; the service must be stopped
    #[command(after_help = COMPACT_HELP)]
    Compact,
    /// Sign threads' tokens with a new key; the service must be stopped
    #[command(after_help = ROTATE_KEYS_HELP)]
    RotateKeys {
        /// Number of earlier keys that stay valid, newest first [default: all, up to 7]
        #[arg(long, value_name = "N", value_parser = parse_kept)]
        keep: Option<RetiredKeys>,
        #[command(flatten)]
        store: StoreOptions,
    },
    /// Copy the log and the keys of tokens into an empty directory
    #[command(after_help = BACKUP_HELP)]
    Backup {
        /// Destination directory
        #[arg(value_name = "DEST_DIR")]
        destination: PathBuf,
    },
    /// List the scheduled backups in a directory
    #[command(after_help = BACKUPS_HELP)]
    Backups {
        /// Directory of backups
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Restore a backup into the data directory; the service must be stopped
    #[command(after_help = RESTORE_HELP)]
    Restore {
        /// Directory of a backup, or of scheduled backups
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
        /// Replace an existing log and keys, which are moved into a subdirectory
        #[arg(long)]
        replace: bool,
    },
    /// Copy the log into a PostgreSQL database; the service must be stopped
    #[command(after_help = COPY_HELP)]
    Copy(StoreOptions),
    /// Create the tables of a PostgreSQL database
    #[command(after_help = MIGRATE_HELP)]
    Migrate(StoreOptions),
}

fn parse_session(text: &str) -> std::result::Result<SessionId, String> {
    text.parse()
        .map_err(|_| "expected the whole id of a session: 36 characters with hyphens".to_owned())
}

fn parse_kept(text: &str) -> std::result::Result<RetiredKeys, String> {
    let kept = text.parse().ok().and_then(RetiredKeys::new);
    kept.ok_or_else(|| format!("expected a number from 0 to {}", RetiredKeys::ALL.get()))
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    match action {
        Action::Verify => verify(context),
        Action::Dump { session, after } => dump(session, Sequence::new(after), context),
        Action::Compact => compact(context),
        Action::RotateKeys { keep, store } => rotate_keys(keep.unwrap_or(RetiredKeys::ALL), &store, context).await,
        Action::Backup { destination } => backup(&destination, context),
        Action::Backups { directory } => backups(&directory, context),
        Action::Restore { backup, replace } => restore(&backup, replace, context),
        Action::Copy(store) => copy(&database(&store)?, context).await,
        Action::Migrate(store) => migrate(&database(&store)?, context).await,
    }
}

fn failure(error: MaintenanceError) -> Error {
    let shown = Error::failure(sanitize::line(&error.to_string()));
    if let MaintenanceError::Read(ReadError::Compacted { oldest, .. }) = error {
        shown.hint(format!("pass --after {oldest}"))
    } else {
        shown
    }
}

/// Verifies the data directory. Fails if there is an error.
fn verify(context: &Context) -> Result<()> {
    let mut meter = Meter::new(context);
    let report = maintenance::verify(&context.data_dir()?, &mut |progress| meter.show(progress)).map_err(failure)?;
    meter.clear();
    context.ui.answer(|| to_json(&report), || text(&report))?;
    if report.is_sound() {
        Ok(())
    } else {
        Err(Error::reported(summary(&report)))
    }
}

fn dump(session: SessionId, after: Sequence, context: &Context) -> Result<()> {
    let events = maintenance::events(&context.data_dir()?, session, after).map_err(failure)?;
    for event in events {
        context
            .ui
            .line(writer::to_line(&json::message(&event.map_err(failure)?))?)?;
    }
    Ok(())
}

fn compact(context: &Context) -> Result<()> {
    let done = maintenance::compact(&context.data_dir()?).map_err(failure)?;
    context.ui.answer(
        || json!({ "bytes_before": done.before, "bytes_after": done.after }),
        || format!("{} before, {} after", size(done.before), size(done.after)),
    )
}

async fn rotate_keys(keep: RetiredKeys, store: &StoreOptions, context: &Context) -> Result<()> {
    let keys = match postgres(store)? {
        Some(database) => PostgresStore::rotate_keys(&database, keep)
            .await
            .map_err(|error| Error::failure(sanitize::line(&error.to_string())))?,
        None => maintenance::rotate_keys(&context.data_dir()?, keep).map_err(failure)?,
    };
    context.ui.answer(
        || json!({ "keys": keys }),
        || match keys {
            1 => "created a new key; all earlier tokens are invalid".to_owned(),
            several => format!("created a new key; earlier keys that stay valid: {}", several - 1),
        },
    )
}

fn backup(destination: &Path, context: &Context) -> Result<()> {
    let made = maintenance::backup(&context.data_dir()?, destination, &CancellationToken::new()).map_err(failure)?;
    context.ui.answer(
        || {
            json!({
                "destination": destination,
                "bytes": made.bytes,
                "has_keys": made.has_keys,
            })
        },
        || how_to_restore(&shown(destination), made),
    )
}

fn how_to_restore(destination: &str, made: Backup) -> String {
    let keys = if made.has_keys {
        "with the keys of threads' tokens"
    } else {
        "without keys of threads' tokens; the data directory contains no such keys"
    };
    format!(
        "{} {} in {destination}, {keys}\n\
         To restore it into an empty or absent directory: troupe store restore {destination} --data-dir DIR",
        style::paint(style::GOOD, "✓"),
        size(made.bytes)
    )
}

fn backups(directory: &Path, context: &Context) -> Result<()> {
    let found = maintenance::backups(directory).map_err(failure)?;
    let now = SystemTime::now();
    let started = |time: UnixMillis| Timestamp::from(UNIX_EPOCH + Duration::from_millis(time.get()));
    context.ui.answer(
        || {
            let backups = found.iter().map(|stored| {
                json!({
                    "path": stored.path,
                    "time": started(stored.time).to_string(),
                    "state": stored.state.as_str(),
                    "bytes": stored.bytes,
                })
            });
            json!({ "backups": backups.collect::<Vec<_>>() })
        },
        || {
            let mut table = Table::new(["BACKUP", "AGE", "SIZE", "STATE"]);
            for stored in &found {
                let mark = match stored.state {
                    BackupState::Complete => style::GOOD,
                    BackupState::Unfinished => style::DIM,
                    BackupState::Faulty => style::BAD,
                };
                table.row([
                    Cell::new(style::NAME, shown(&stored.path)),
                    Cell::plain(time::age(Some(&started(stored.time)), now)),
                    Cell::plain(size(stored.bytes)),
                    Cell::new(mark, stored.state.as_str()),
                ]);
            }
            table
        },
    )
}

fn restore(backup: &Path, replace: bool, context: &Context) -> Result<()> {
    let data_dir = context.data_dir()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = UnixMillis::default().plus(now);
    let done = maintenance::restore(backup, &data_dir, replace, now).map_err(failure)?;
    context.ui.answer(
        || {
            json!({
                "backup": done.backup,
                "data_dir": data_dir,
                "bytes": done.bytes,
                "sessions": done.sessions,
                "replaced": done.replaced,
            })
        },
        || {
            let replaced = done.replaced.as_deref();
            let replaced = replaced.map(|path| format!("\nThe previous log is in {}", shown(path)));
            format!(
                "{} {}, {} restored from {}{}",
                style::paint(style::GOOD, "✓"),
                count(done.sessions, "session"),
                size(done.bytes),
                shown(&done.backup),
                replaced.unwrap_or_default()
            )
        },
    )
}

/// Returns the PostgreSQL database that the flags name, if they name one.
fn postgres(store: &StoreOptions) -> Result<Option<PostgresOptions>> {
    store
        .postgres(false)
        .map_err(|error| Error::usage(format!("{error:#}")))
}

/// Returns the PostgreSQL database, which is required.
fn database(store: &StoreOptions) -> Result<PostgresOptions> {
    postgres(store)?.ok_or_else(|| Error::usage("pass --store with the URL of a PostgreSQL database"))
}

async fn copy(database: &PostgresOptions, context: &Context) -> Result<()> {
    let mut meter = Meter::new(context);
    let done = maintenance::copy(&context.data_dir()?, database, &mut |progress| meter.show(progress)).await;
    meter.clear();
    let done = done.map_err(failure)?;
    context.ui.answer(
        || json!({ "database": database.to_string(), "sessions": done.sessions, "rows": done.rows }),
        || {
            format!(
                "{} {}, {} copied into {}",
                style::paint(style::GOOD, "✓"),
                count(done.sessions, "session"),
                count(done.rows, "row"),
                sanitize::line(&database.to_string())
            )
        },
    )
}

async fn migrate(database: &PostgresOptions, context: &Context) -> Result<()> {
    let created = PostgresStore::migrate(database).await;
    created.map_err(|error| Error::failure(sanitize::line(&error.to_string())))?;
    context.ui.answer(
        || json!({ "database": database.to_string() }),
        || {
            let database = sanitize::line(&database.to_string());
            format!(
                "{} {database} has the tables of this release",
                style::paint(style::GOOD, "✓")
            )
        },
    )
}

fn shown(path: &Path) -> String {
    sanitize::line(&path.to_string_lossy())
}

/// The progress display of a check on a terminal.
struct Meter {
    live: Option<Live>,
    drawn: Option<Instant>,
}

impl Meter {
    fn new(context: &Context) -> Self {
        Self {
            live: context.ui.live(),
            drawn: None,
        }
    }

    fn show(&mut self, progress: Progress) {
        let Some(live) = &mut self.live else { return };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < FRAME) {
            return;
        }
        let frame = match progress {
            Progress::Pages => "checking the file".to_owned(),
            Progress::Sessions { checked, of } => format!("checking sessions: {checked} of {of}"),
            Progress::Rows { copied } => format!("copying rows: {copied}"),
        };
        self.drawn = Some(Instant::now());
        // The progress display is optional. If the terminal cannot be written to, writing the result reports the error.
        let _ = live.draw(&style::paint(style::DIM, frame).to_string());
    }

    fn clear(&mut self) {
        if let Some(live) = &mut self.live {
            let _ = live.draw("");
        }
    }
}

fn text(report: &Report) -> String {
    let damage = report.damage.iter().map(|damage| sanitize::line(damage));
    let mut lines: Vec<String> = damage.chain(report.faults.iter().map(fault)).collect();
    let mark = if report.is_sound() {
        style::paint(style::GOOD, "✓")
    } else {
        style::paint(style::BAD, "✗")
    };
    lines.push(format!("{mark} {}", summary(report)));
    lines.join("\n")
}

fn fault(fault: &Fault) -> String {
    let first = sanitize::line(&fault.first.to_string());
    let session = style::paint(style::NAME, fault.session);
    match fault.problems {
        0 | 1 => format!("{session}  {first}"),
        several => format!("{session}  {first} (and {} more)", several - 1),
    }
}

fn summary(report: &Report) -> String {
    let mut text = format!(
        "{}, {}, {}, {}",
        count(report.sessions, "session"),
        count(report.events, "event"),
        count(report.contents, "content"),
        size(report.bytes)
    );
    if report.entries > 0 {
        text.push_str(&format!("; {} entries of transcripts", report.entries));
    }
    if report.not_kept > 0 {
        text.push_str(&format!(
            "; {} blocks of prompts not stored because of `prompt_log`",
            report.not_kept
        ));
    }
    if report.left_out > 0 {
        text.push_str(&format!(
            "; {} not stored because of `session_content_bytes`",
            count(report.left_out, "content")
        ));
    }
    if !report.is_sound() {
        let broken = u64::try_from(report.faults.len()).unwrap_or(u64::MAX);
        text.push_str(&format!(": {} with problems", count(broken, "session")));
        if !report.damage.is_empty() {
            text.push_str(", and the file is damaged: restore a backup");
        }
    }
    text
}

fn to_json(report: &Report) -> Value {
    json!({
        "sound": report.is_sound(),
        "sessions": report.sessions,
        "events": report.events,
        "contents": report.contents,
        "transcript_entries": report.entries,
        "bytes": report.bytes,
        "blocks_not_kept": report.not_kept,
        "contents_left_out": report.left_out,
        "damage": report.damage,
        "faults": report.faults.iter().map(|fault| json!({
            "session_id": fault.session.to_string(),
            "first": fault.first.to_string(),
            "problems": fault.problems,
        })).collect::<Vec<_>>(),
    })
}

fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    match bytes {
        0..KIB => count(bytes, "byte"),
        KIB..MIB => format!("{} KiB", bytes / KIB),
        MIB.. => format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB),
    }
}

#[cfg(test)]
mod tests {
    use supervisor_log::maintenance::Problem;

    use super::*;
    use crate::ui::plain;

    fn report() -> Report {
        Report {
            sessions: 2,
            events: 1,
            contents: 3,
            bytes: 3 * 512 * 1024,
            ..Report::default()
        }
    }

    #[test]
    fn log_without_defects_is_one_line() {
        assert_eq!(plain(&text(&report())), "✓ 2 sessions, 1 event, 3 contents, 1.5 MiB");
    }

    #[test]
    fn every_session_with_a_problem_has_a_line() {
        let session = SessionId::from_uuid(uuid::Uuid::from_u128(7));
        let broken = |problems| Fault {
            session,
            first: Problem::Changed(Sequence::new(9)),
            problems,
        };
        let report = Report {
            faults: vec![broken(1), broken(3)],
            not_kept: 4,
            left_out: 1,
            ..report()
        };
        assert_eq!(
            plain(&text(&report)),
            format!(
                "{session}  record 9 does not match its checksum\n\
                 {session}  record 9 does not match its checksum (and 2 more)\n\
                 ✗ 2 sessions, 1 event, 3 contents, 1.5 MiB; 4 blocks of prompts not stored because of `prompt_log`; \
                 1 content not stored because of `session_content_bytes`: 2 sessions with problems"
            )
        );
        assert_eq!(to_json(&report)["faults"][1]["problems"], 3);
    }

    #[test]
    fn size_is_in_its_largest_unit() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1024 * 1024 - 1, "1023 KiB"),
            (1024 * 1024, "1.0 MiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
