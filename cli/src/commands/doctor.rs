//! `troupe doctor`: diagnoses problems and suggests remedies.

use std::{
    borrow::Cow,
    env,
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::json;
use svc_kit::paths;
use tokio::{process::Command, time::timeout};
use tonic::{Code, Request, metadata::MetadataMap};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use troupe_client::{
    Address, Service,
    contexts::Contexts,
    token::{Origin, Token},
};
use troupe_proto::{registry::v1::ListAgentsRequest, supervisor::v1::ListSessionsRequest};
use troupe_runner::program_check::{MissingProgram, ProgramReport, Warning};

use crate::{
    context::{self, Context},
    dry_turn,
    error::{Error, Result},
    programs, sanitize,
    ui::{count, style},
    workspace::Workspace,
};

const AFTER_HELP: &str = "\
Examples:
  troupe doctor
  troupe doctor --programs ./runner.yaml
  troupe doctor --dry-turn claude
  troupe doctor --supervisor http://10.0.0.7:50052 --output json";

/// Time limit of the check of git. A check that calls a service has twice this time.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Free space in the data directory, in bytes, below which a warning is reported.
const LITTLE_SPACE: u64 = 512 * 1024 * 1024;
/// Maximum difference of two clocks, in seconds. The header has a resolution of one second.
const MAX_SKEW_SECONDS: i64 = 5;

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Programs to check: codex, claude, opencode, gemini, or a runner.yaml [default: the installed ones]
    #[arg(long, value_name = "PROGRAMS", env = "TROUPE_PROGRAMS")]
    programs: Option<programs::Choice>,
    /// Run one turn on this program and print the answer; the call to its model may cost money
    #[arg(long, value_name = "PROGRAM")]
    dry_turn: Option<String>,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Warning,
    Bad,
}

/// The result of one check: its subject, the observation and the remedy.
#[derive(Debug)]
struct Finding {
    name: Cow<'static, str>,
    verdict: Verdict,
    seen: String,
    remedy: Option<String>,
    /// The report about an agent program, if the check examined one.
    program: Option<ProgramReport>,
}

impl Finding {
    fn good(name: impl Into<Cow<'static, str>>, seen: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            verdict: Verdict::Good,
            seen: seen.into(),
            remedy: None,
            program: None,
        }
    }

    fn warning(name: impl Into<Cow<'static, str>>, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            remedy: Some(remedy.into()),
            ..Self::good(name, seen)
        }
    }

    fn bad(name: impl Into<Cow<'static, str>>, error: &Error) -> Self {
        Self {
            verdict: Verdict::Bad,
            remedy: error.remedy().map(str::to_owned),
            ..Self::good(name, error.message())
        }
    }
}

/// Runs all checks. Fails if a check found an error.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut findings = vec![
        context_file(),
        data_dir(context),
        token(context),
        git().await,
        sandbox(),
    ];
    findings.extend(programs_of(args.programs.as_ref()).await);
    if let Some(name) = &args.dry_turn {
        findings.push(dry_turn_on(name, args.programs).await);
    }
    let mut peers = Vec::new();
    findings.push(reach("registry", &context.global.registry, registry(context), &mut peers).await);
    findings.push(
        reach(
            "supervisor",
            &context.global.supervisor,
            supervisor(context),
            &mut peers,
        )
        .await,
    );
    if !peers.is_empty() {
        findings.push(versions(&peers));
        findings.push(clocks(&peers));
    }
    findings.push(project(context).await);
    let bad = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Bad)
        .count();
    context.ui.answer(
        || {
            json!({
                "healthy": bad == 0,
                "checks": findings.iter().map(|finding| json!({
                    "name": finding.name,
                    "verdict": match finding.verdict {
                        Verdict::Good => "good",
                        Verdict::Warning => "warning",
                        Verdict::Bad => "bad",
                    },
                    "seen": finding.seen,
                    "remedy": finding.remedy,
                    "program": finding.program.as_ref().map(programs::report_json),
                })).collect::<Vec<_>>(),
            })
        },
        || findings.iter().map(text).collect::<Vec<_>>().join("\n"),
    )?;
    match bad {
        0 => Ok(()),
        1 => Err(Error::failure("one check failed")),
        several => Err(Error::failure(format!("{several} checks failed"))),
    }
}

fn text(finding: &Finding) -> String {
    let (look, mark) = match finding.verdict {
        Verdict::Good => (style::GOOD, "✓"),
        Verdict::Warning => (style::WARN, "!"),
        Verdict::Bad => (style::BAD, "✗"),
    };
    let mut text = format!("{} {:<15} {}", style::paint(look, mark), finding.name, finding.seen);
    if let Some(remedy) = &finding.remedy {
        text.push_str(&format!("\n  {:<15} {} {remedy}", "", style::paint(style::NAME, "->")));
    }
    text
}

fn context_file() -> Finding {
    const NAME: &str = "contexts";
    match Contexts::load() {
        Ok(contexts) => match &contexts.current {
            Some(name) => Finding::good(NAME, format!("{name} is selected")),
            None => Finding::good(NAME, "none is selected"),
        },
        Err(error) => Finding::bad(NAME, &Error::from(error).hint("correct the file, or remove it")),
    }
}

/// Checks bubblewrap, the program that isolates the tools of read-only threads.
fn sandbox() -> Finding {
    const NAME: &str = "bubblewrap";
    if !cfg!(target_os = "linux") {
        return Finding::good(NAME, "not used on this system");
    }
    let path = env::var_os("PATH").unwrap_or_default();
    match paths::program_in(&path, Path::new("bwrap")) {
        Some(program) => Finding::good(NAME, program.display().to_string()),
        None => Finding::warning(
            NAME,
            "bwrap is not in PATH",
            "install bubblewrap; without it, runners reject threads that only a sandbox can restrict",
        ),
    }
}

/// Checks that the registry can read the current directory, and reports findings in its templates.
async fn project(context: &Context) -> Finding {
    const NAME: &str = "project";
    let listed = timeout(TIME_LIMIT * 2, async {
        let cwd = context::directory(None)?
            .into_os_string()
            .into_string()
            .unwrap_or_default();
        let mut request = ListAgentsRequest {
            cwd: cwd.clone(),
            allow_partial: true,
            ..ListAgentsRequest::default()
        };
        let mut workspace = Workspace::around(&cwd, context)?;
        let mut registry = context.registry().await?;
        let answer = workspace
            .ask(context, async |digest| {
                request.workspace_digest = digest;
                registry.list_agents(request.clone()).await
            })
            .await?;
        Ok::<_, Error>((cwd, answer.diagnostics.len()))
    });
    match listed.await {
        Ok(Ok((cwd, 0))) => Finding::good(NAME, cwd),
        Ok(Ok((cwd, findings))) => Finding::warning(
            NAME,
            format!("{cwd} has {findings} findings in templates"),
            "`troupe agents diagnostics` lists them",
        ),
        Ok(Err(error)) if error.code() == 7 => Finding::warning(NAME, "not checked", "the registry does not answer"),
        Ok(Err(error)) => Finding::warning(
            NAME,
            error.message(),
            error.remedy().unwrap_or("run the command in a project").to_owned(),
        ),
        Err(_) => Finding::warning(NAME, "not checked", "the registry does not answer"),
    }
}

fn data_dir(context: &Context) -> Finding {
    const NAME: &str = "data directory";
    let path = match context.data_dir() {
        Ok(path) => path,
        Err(error) => return Finding::bad(NAME, &error),
    };
    if !path.is_dir() {
        let seen = format!("{} does not exist yet", path.display());
        return Finding::warning(NAME, seen, "`troupe up` creates it");
    }
    match free_space(&path) {
        Ok(free) if free < LITTLE_SPACE => {
            let seen = format!("{}, {} MiB free", path.display(), free / (1024 * 1024));
            Finding::warning(NAME, seen, "free disk space: with a full disk, every spawn fails")
        }
        Ok(free) => Finding::good(
            NAME,
            format!("{}, {} GiB free", path.display(), free / (1024 * 1024 * 1024)),
        ),
        Err(error) => Finding::bad(NAME, &error.hint("choose another directory with --data-dir")),
    }
}

fn free_space(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)
        .map_err(|error| Error::failure(format!("cannot examine {}: {error}", path.display())))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn token(context: &Context) -> Finding {
    const NAME: &str = "token";
    let found = context
        .global
        .settings()
        .address(Service::Supervisor)
        .and_then(|address| context.global.settings().token(address.host()))
        .map_err(Error::from);
    match found.as_ref().map(Token::origin) {
        Ok(Origin::Given) => Finding::good(NAME, "from --token or TROUPE_TOKEN"),
        Ok(Origin::File(path) | Origin::Found(path)) => Finding::good(NAME, format!("from {}", path.display())),
        Ok(Origin::Nowhere) => Finding::warning(
            NAME,
            "none",
            "fine with `up --no-runner` or `--trust-loopback`; otherwise pass --token or --data-dir",
        ),
        Err(error) => Finding::bad(NAME, error),
    }
}

async fn git() -> Finding {
    const NAME: &str = "git";
    let version = Command::new("git").arg("--version").kill_on_drop(true).output();
    match timeout(TIME_LIMIT, version).await {
        Ok(Ok(output)) if output.status.success() => {
            Finding::good(NAME, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(_) | Err(_) => Finding::warning(
            NAME,
            "not found",
            "install git; without it agents get no worktrees of their own, and projects still need a .git",
        ),
    }
}

/// Checks the agent programs.
async fn programs_of(choice: Option<&programs::Choice>) -> Vec<Finding> {
    const NAME: &str = "programs";
    let programs = match choice {
        Some(choice) => choice.programs(),
        None => programs::installed(),
    };
    let checked = match programs {
        Ok(programs) if programs.all().is_empty() => {
            return vec![Finding::warning(
                NAME,
                "no agent program is in PATH",
                "install codex, claude, opencode or gemini; without one only the sample agent runs",
            )];
        }
        Ok(programs) => programs::check(&programs).await,
        Err(error) => Err(error),
    };
    match checked {
        Ok(reports) => reports.into_iter().map(program).collect(),
        Err(error) => vec![Finding::bad(NAME, &error)],
    }
}

fn program(checked: std::result::Result<ProgramReport, MissingProgram>) -> Finding {
    match checked {
        Ok(report) => {
            let seen = sanitize::line(&report.to_string());
            let of_all = |part: fn(&Warning) -> &str| {
                let parts: Vec<&str> = report.warnings.iter().map(part).collect();
                sanitize::line(&parts.join("; "))
            };
            let finding = if report.warnings.is_empty() {
                Finding::good("program", seen)
            } else {
                let problems = of_all(|warning| &warning.problem);
                Finding::warning(
                    "program",
                    format!("{seen}; {problems}"),
                    of_all(|warning| &warning.remedy),
                )
            };
            Finding {
                program: Some(report),
                ..finding
            }
        }
        Err(missing) => Finding::bad("program", &Error::failure(missing.to_string()).hint(missing.remedy())),
    }
}

/// Runs one turn on one program and reports its answer.
async fn dry_turn_on(name: &str, choice: Option<programs::Choice>) -> Finding {
    const NAME: &str = "dry turn";
    let choice = match choice {
        Some(choice) => Ok(choice),
        None => name.parse().map_err(Error::usage),
    };
    let turn = match choice {
        Ok(choice) => dry_turn::run(choice, name).await,
        Err(error) => Err(error),
    };
    match turn {
        Ok(answer) => Finding::good(NAME, format!("{name}: {answer}")),
        Err(error) => Finding::bad(NAME, &error.context(name)),
    }
}

/// The version and the clock of a service, from the headers of its response.
#[derive(Debug)]
struct Peer {
    name: &'static str,
    /// `None` if the service is of another program, or a proxy removed the header.
    version: Option<String>,
    /// The time by which the service's clock is ahead of this machine's clock, in seconds.
    ahead: Option<i64>,
}

impl Peer {
    fn new(name: &'static str, headers: &MetadataMap, now: SystemTime) -> Self {
        let text = |key: &str| headers.get(key)?.to_str().ok();
        let version = text("server").and_then(|server| server.strip_prefix("troupe/"));
        let ahead = text("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Self {
            name,
            version: version.map(sanitize::line),
            ahead: ahead.map(|date| match date.duration_since(now) {
                Ok(ahead) => seconds(ahead),
                Err(behind) => -seconds(behind.duration()),
            }),
        }
    }
}

/// Compares the versions of the services with this program's.
fn versions(peers: &[Peer]) -> Finding {
    const NAME: &str = "versions";
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let others = peers.iter().filter(|peer| peer.version.as_deref() != Some(OWN));
    let others: Vec<String> = others
        .map(|peer| match &peer.version {
            Some(version) => format!("the {} has version {version}", peer.name),
            None => format!("the {} does not report a version", peer.name),
        })
        .collect();
    if others.is_empty() {
        return Finding::good(NAME, format!("{OWN} everywhere"));
    }
    Finding::warning(
        NAME,
        format!("troupe has version {OWN}, {}", others.join(", ")),
        "install the same version everywhere",
    )
}

/// Compares the clocks of the services with this machine's.
fn clocks(peers: &[Peer]) -> Finding {
    const NAME: &str = "clock";
    let wrong = peers.iter().find_map(|peer| {
        let ahead = peer.ahead?;
        (ahead.abs() > MAX_SKEW_SECONDS).then_some((peer.name, ahead))
    });
    match wrong {
        Some((name, ahead)) => Finding::warning(
            NAME,
            format!(
                "the {name}'s clock is {} s {} this machine's",
                ahead.abs(),
                if ahead > 0 { "ahead of" } else { "behind" }
            ),
            "synchronize the clocks of both machines; tokens expire by the service's clock",
        ),
        None if peers.iter().all(|peer| peer.ahead.is_none()) => {
            Finding::warning(NAME, "not checked", "the services send no date; a proxy may remove it")
        }
        None => Finding::good(NAME, format!("within {MAX_SKEW_SECONDS} s of the services' clocks")),
    }
}

/// The observation about a service that answered, and the headers of its response.
type Answered = (String, MetadataMap);

/// Runs the check of a service with a time limit, and adds the service to the peers if it answers.
async fn reach(
    name: &'static str,
    url: &str,
    check: impl Future<Output = Result<Answered>>,
    peers: &mut Vec<Peer>,
) -> Finding {
    match timeout(TIME_LIMIT * 2, check).await {
        Ok(Ok((seen, headers))) => {
            peers.push(Peer::new(name, &headers, SystemTime::now()));
            Finding::good(name, seen)
        }
        Ok(Err(error)) => Finding::bad(name, &error),
        Err(_) => Finding::bad(
            name,
            &Error::failure(format!("{url} does not answer")).hint("another program may use the port"),
        ),
    }
}

async fn registry(context: &Context) -> Result<Answered> {
    let address = context.global.settings().address(Service::Registry)?;
    health(&address, "troupe.registry.v1.AgentRegistryService").await?;
    let token = context.global.settings().token(address.host())?;
    let mut registry = address.channel(&token).await?.registry();
    let request = ListAgentsRequest {
        allow_partial: true,
        ..ListAgentsRequest::default()
    };
    let (headers, listed, _) = registry.list_agents(Request::new(request)).await?.into_parts();
    let seen = format!("{} serves {} roles", address.uri(), listed.agents.len());
    Ok((seen, headers))
}

async fn supervisor(context: &Context) -> Result<Answered> {
    let address = context.global.settings().address(Service::Supervisor)?;
    health(&address, "troupe.supervisor.v1.AgentSupervisorService").await?;
    let token = context.global.settings().token(address.host())?;
    let mut supervisor = address.channel(&token).await?.supervisor();
    let (headers, listed, _) = supervisor
        .list_sessions(Request::new(ListSessionsRequest::default()))
        .await?
        .into_parts();
    let more = if listed.next_page_token.is_empty() {
        ""
    } else {
        " and more"
    };
    let open = count(listed.sessions.len(), "open session");
    let seen = format!("{} serves {open}{more}", address.uri());
    Ok((seen, headers))
}

async fn health(address: &Address, service: &str) -> Result<()> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let checked = HealthClient::new(address.connect().await?)
        .check(Request::new(request))
        .await;
    match checked {
        Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Ok(()),
        Ok(answer) => Err(Error::failure(format!(
            "{} is {}",
            address.uri(),
            answer.get_ref().status().as_str_name()
        ))
        .hint("it is starting or draining; try again in a moment")),
        Err(status) if status.code() == Code::NotFound => Err(Error::failure(format!(
            "{} is healthy, but does not serve {service}",
            address.uri()
        ))
        .hint("are --supervisor and --registry swapped?")),
        Err(status) => Err(Error::from(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::plain;

    #[test]
    fn bad_finding_has_a_remedy() {
        let finding = Finding::bad("registry", &Error::failure("refused").hint("start it"));
        assert_eq!(
            plain(&text(&finding)),
            "✗ registry        refused\n                  -> start it"
        );
        assert_eq!(
            plain(&text(&Finding::good("git", "git version 2"))),
            "✓ git             git version 2"
        );
    }

    #[test]
    fn headers_of_services_show_versions_and_clocks() {
        let now = httpdate::parse_http_date("Thu, 26 Nov 2026 12:00:00 GMT").unwrap();
        let peer = |name, server: &str, date: &str| {
            let mut headers = MetadataMap::new();
            headers.insert("server", server.parse().unwrap());
            headers.insert("date", date.parse().unwrap());
            Peer::new(name, &headers, now)
        };
        let own = concat!("troupe/", env!("CARGO_PKG_VERSION"));
        let good = peer("registry", own, "Thu, 26 Nov 2026 12:00:04 GMT");
        assert_eq!(versions(std::slice::from_ref(&good)).verdict, Verdict::Good);
        assert_eq!(clocks(std::slice::from_ref(&good)).verdict, Verdict::Good);
        let other = peer("supervisor", "troupe/9.9.9", "Thu, 26 Nov 2026 11:59:20 GMT");
        let peers = [good, other];
        assert!(versions(&peers).seen.ends_with(", the supervisor has version 9.9.9"));
        assert_eq!(
            clocks(&peers).seen,
            "the supervisor's clock is 40 s behind this machine's"
        );
        let silent = [Peer::new("registry", &MetadataMap::new(), now)];
        assert_eq!(versions(&silent).verdict, Verdict::Warning);
        assert_eq!(clocks(&silent).seen, "not checked");
    }

    #[test]
    fn free_space_needs_existing_directory() {
        assert!(free_space(Path::new("/")).is_ok_and(|free| free > 0));
        assert!(free_space(Path::new("/no/such/directory")).is_err());
    }
}
