//! `troupe lint`: reports errors and warnings in template files without a running service.

mod files;
mod sarif;

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{self, Path, PathBuf},
};

use registry_svc::domain::{
    diagnostic::{Diagnostic, Severity},
    lint::{self, KnownNames, LintKind, LintedText, lint_text},
    name::TemplateName,
};
use serde_json::{Value, json};

use self::files::Files;
use crate::{
    context::{Context, existing_directory},
    error::{Error, Result},
    json::writer,
    output::Format,
    places, sanitize,
    ui::{count, style},
};

/// Maximum number of times that `--fix` checks and corrects the files.
const MAX_FIX_ROUNDS: usize = 5;

const AFTER_HELP: &str = "\
Without PATH, the command checks the templates of the project: those of the current directory and its parents, up to
the directory with `.git`.

Examples:
  troupe lint
  troupe lint --user --strict
  troupe lint .codex/.agents/auditor.md
  troupe lint --fix
  troupe lint --output sarif > troupe.sarif

Exit codes: 0 no error, 1 an error (or a warning, with --strict), 2 usage.";

/// The arguments of `lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Template files, or directories with templates
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Include the user's templates
    #[arg(long, conflicts_with = "paths")]
    user: bool,
    /// Directory that contains the user scope's `.codex/` [default: the user's home]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Directory of the project [default: the current directory]
    #[arg(long, value_name = "DIR", conflicts_with = "paths")]
    cwd: Option<PathBuf>,
    /// Dialect of the files [default: by the location of each file]
    #[arg(long, value_name = "DIALECT", value_enum, requires = "paths")]
    dialect: Option<Dialect>,
    /// Fail on warnings
    #[arg(long)]
    strict: bool,
    /// Correct misspelt keys, tools and roles, keys of another dialect, and unquoted wildcards in the files
    #[arg(long)]
    fix: bool,
    /// Tool of your own program that lists may name (repeatable)
    #[arg(long, value_name = "NAME")]
    known_tool: Vec<String>,
}

/// The values of `--dialect`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Dialect {
    /// `.codex/.agents/*.md`
    Role,
    /// `.codex/agents/*.md`: profiles and subagents, told apart by their keys
    #[value(alias = "subagent")]
    Profile,
    /// `docs/templates/*.md`
    Graph,
    /// Agent files of other programs
    Foreign,
}

impl From<Dialect> for LintKind {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Role => Self::Role,
            Dialect::Profile => Self::CodexAgent,
            Dialect::Graph => Self::Graph,
            Dialect::Foreign => Self::Foreign,
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct Report {
    checked: usize,
    findings: Vec<Diagnostic>,
    /// The number of corrected files.
    fixed: usize,
    /// The directories that were searched.
    searched: Vec<PathBuf>,
}

/// Checks the files. Fails if there is an error.
pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let known = known_names(args);
    let mut report = check(gather(args)?, &known);
    if args.fix {
        let mut corrected = BTreeSet::new();
        // A correction may reveal further findings, for example in a list whose key was misspelt.
        for _ in 0..MAX_FIX_ROUNDS {
            let changed = fix(&report.findings)?;
            if changed.is_empty() {
                break;
            }
            corrected.extend(changed);
            report = check(gather(args)?, &known);
        }
        report.fixed = corrected.len();
    }
    let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
    match context.global.output.format {
        Format::Sarif => context.ui.line(writer::to_line(&sarif::log(&report.findings))?)?,
        _ => context.ui.answer(|| to_json(&report), || text(&report))?,
    }
    if errors > 0 || (args.strict && warnings > 0) {
        return Err(Error::reported(summary(&report)));
    }
    Ok(())
}

fn gather(args: &Args) -> Result<Files> {
    if !args.paths.is_empty() {
        return Files::named(&args.paths, args.dialect.map(LintKind::from));
    }
    let start = existing_directory(args.cwd.as_deref())?;
    // Without a home directory, the project is still checked.
    let home = match places::home(args.home.clone()) {
        Ok(home) => Some(home),
        Err(error) if args.user => return Err(error),
        Err(_) => None,
    };
    Ok(Files::of_places(&start, home.as_deref(), args.user))
}

/// Returns the names that lists may contain. The roles are those of the checked files, of the projects around them and
/// of the user, and the embedded roles.
fn known_names(args: &Args) -> KnownNames {
    let home = places::home(args.home.clone()).ok();
    let here = args.cwd.clone().or_else(|| env::current_dir().ok());
    let starts = if args.paths.is_empty() {
        here.as_slice()
    } else {
        &args.paths
    };
    let around = starts.iter().flat_map(|start| {
        let start = path::absolute(start).unwrap_or_else(|_| start.clone());
        Files::of_places(&start, home.as_deref(), true).files
    });
    let named = Files::named(&args.paths, args.dialect.map(LintKind::from))
        .unwrap_or_default()
        .files;
    let names = around.chain(named).filter_map(|(path, kind)| {
        let bytes = files::read(&path).ok()?;
        match lint_file(&path, kind, &bytes, &KnownNames::default()).name? {
            TemplateName::AgentType(name) => Some(name),
            TemplateName::RoleTemplate(_) => None,
        }
    });
    KnownNames {
        roles: Some(names.chain(registry_svc::embedded_roles()).collect()),
        tools: args.known_tool.clone(),
    }
}

/// Checks a text as the file with this path. The diagnostics have the absolute path.
fn lint_file(path: &Path, kind: Option<LintKind>, bytes: &[u8], known: &KnownNames) -> LintedText {
    let kind = kind.unwrap_or_else(|| files::guess(bytes));
    // The parent directories identify the format of a foreign file.
    let name = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    lint_text(&name.display().to_string(), kind, bytes, known)
}

fn check(files: Files, known: &KnownNames) -> Report {
    let mut report = Report {
        checked: files.files.len(),
        findings: files.findings,
        fixed: 0,
        searched: files.searched,
    };
    for (path, kind) in files.files {
        match files::read(&path) {
            Ok(bytes) => {
                report
                    .findings
                    .extend(lint_file(&path, kind, &bytes, known).diagnostics);
            }
            Err(finding) => report.findings.push(files::diagnostic(&path, finding)),
        }
    }
    report
        .findings
        .sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    let here = env::current_dir().ok();
    for diagnostic in &mut report.findings {
        diagnostic.path = shown(&diagnostic.path, here.as_deref());
    }
    report
}

/// Applies the mechanical fixes, and returns the changed files.
fn fix(findings: &[Diagnostic]) -> Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for of_file in findings.chunk_by(|one, other| one.path == other.path) {
        let Some(path) = of_file.first().map(|diagnostic| Path::new(&diagnostic.path)) else {
            continue;
        };
        let is_fixable = |diagnostic: &Diagnostic| diagnostic.finding.replacement.is_some();
        if !of_file.iter().any(is_fixable) {
            continue;
        }
        let failed = |error: io::Error| Error::failure(format!("cannot correct {}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(failed)?;
        if let Some(fixed) = lint::fixed(&text, of_file) {
            files::replace(path, &fixed).map_err(failed)?;
            changed.push(path.to_owned());
        }
    }
    Ok(changed)
}

/// Returns a path below `here` relative to `here`, and any other path unchanged.
fn shown(path: &str, here: Option<&Path>) -> String {
    here.and_then(|here| Path::new(path).strip_prefix(here).ok())
        .filter(|path| !path.as_os_str().is_empty())
        .map_or_else(|| path.to_owned(), |path| path.display().to_string())
}

impl Report {
    fn count(&self, severity: Severity) -> usize {
        let of = |diagnostic: &&Diagnostic| diagnostic.finding.severity == severity;
        self.findings.iter().filter(of).count()
    }
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    lines.push(summary(report));
    if report.checked == 0 {
        lines.push("no template was found in:".to_owned());
        let searched = report.searched.iter().map(|directory| directory.display().to_string());
        lines.extend(searched.map(|directory| format!("  {}", sanitize::line(&directory))));
    }
    lines.join("\n")
}

fn line(diagnostic: &Diagnostic) -> String {
    let finding = &diagnostic.finding;
    let (look, word) = match finding.severity {
        Severity::Error => (style::BAD, "error"),
        Severity::Warning => (style::WARN, "warning"),
    };
    // Every finding has a line number, so that editors can jump to it.
    let mut text = format!(
        "{}:{}:{}: {} {} {}",
        sanitize::line(&diagnostic.path),
        finding.line.unwrap_or(1),
        finding.column.unwrap_or(1),
        style::paint(look, format_args!("{word}:")),
        sanitize::line(&finding.message),
        style::paint(style::DIM, format_args!("[{}]", finding.kind.id()))
    );
    if let Some(suggestion) = &finding.suggestion {
        text.push_str(&format!(
            "\n  {} {}",
            style::paint(style::NAME, "hint:"),
            sanitize::line(suggestion)
        ));
    }
    text
}

fn summary(report: &Report) -> String {
    let fixed = match report.fixed {
        0 => String::new(),
        fixed => format!("{} corrected; ", count(fixed, "file")),
    };
    let fixable = |diagnostic: &&Diagnostic| diagnostic.finding.replacement.is_some();
    let fixable = match report.findings.iter().filter(fixable).count() {
        0 => String::new(),
        fixable => format!("; --fix corrects {fixable}"),
    };
    format!(
        "{fixed}{} checked: {}, {}{fixable}",
        count(report.checked, "file"),
        count(report.count(Severity::Error), "error"),
        count(report.count(Severity::Warning), "warning")
    )
}

fn to_json(report: &Report) -> Value {
    json!({
        "files": report.checked,
        "errors": report.count(Severity::Error),
        "warnings": report.count(Severity::Warning),
        "fixed_files": report.fixed,
        "diagnostics": report.findings.iter().map(|diagnostic| json!({
            "path": diagnostic.path,
            "line": diagnostic.finding.line.unwrap_or(0),
            "column": diagnostic.finding.column.unwrap_or(0),
            "rule": diagnostic.finding.kind.id(),
            "dialect": diagnostic.dialect.map(|dialect| dialect.to_string().to_ascii_uppercase()),
            "severity": match diagnostic.finding.severity {
                Severity::Error => "ERROR",
                Severity::Warning => "WARNING",
            },
            "message": diagnostic.finding.message,
            "suggestion": diagnostic.finding.suggestion.as_deref().unwrap_or_default(),
            "fixable": diagnostic.finding.replacement.is_some(),
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use registry_svc::domain::{diagnostic::Finding, finding_kind::FindingKind};

    use super::*;
    use crate::ui::plain;

    #[test]
    fn finding_is_one_line_with_hint_below() {
        let finding = Finding::error(FindingKind::UnknownKey, Some(3), "bad\u{1b}[2J key").suggest("remove it");
        let diagnostic = files::diagnostic(Path::new("a.md"), finding);
        assert_eq!(
            plain(&line(&diagnostic)),
            "a.md:3:1: error: bad[2J key [unknown-key]\n  hint: remove it"
        );
        let warning = files::diagnostic(Path::new("a.md"), Finding::warning(FindingKind::EmptyList, None, "odd"));
        assert_eq!(plain(&line(&warning)), "a.md:1:1: warning: odd [empty-list]");
    }

    #[test]
    fn paths_are_relative_to_current_directory() {
        assert_eq!(shown("/p/a.md", Some(Path::new("/p"))), "a.md");
        assert_eq!(shown("/q/a.md", Some(Path::new("/p"))), "/q/a.md");
        assert_eq!(shown("a.md", Some(Path::new("/p"))), "a.md");
    }
}
