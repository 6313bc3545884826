//! `troupe batch`: groups of agents, one for each row of a table.

mod progress;
mod rows;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap_complete::ArgValueCompleter;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::{Code, Request};
use troupe_proto::supervisor::v1::{
    Budget, CancelGroupRequest, CreateGroupRequest, CreateSessionRequest, GetGroupRequest, Group, GroupFailurePolicy,
    GroupItemState, GroupItemStatus, GroupJoin, GroupState, ListGroupItemsRequest, RetryGroupRequest, Session,
    SpawnAgentRequest, UpdateGroupRequest,
};

use self::progress::Progress;
pub(crate) use self::progress::counts;
use troupe_client::{Supervisor, is_transient};

use crate::{
    choices, complete,
    context::Context,
    error::{Error, Result},
    ids, json, listing,
    message::TextArgs,
    names,
    options::{ProjectArgs, ResultArgs, SpawnBudget, amount, bounded, budget_in_words},
    session_view::{group_id, is_open},
    time,
    ui::{self, Cell, Line, Table, style},
    workspace::create_session,
};

const AFTER_HELP: &str = "\
Examples:
  troupe batch run --csv files.csv --role reviewer -m 'Review {path}' --limit 8
  troupe batch run --csv files.csv --role reviewer -m 'Review {path}' --schema finding.json --results results.csv
  troupe batch run --csv files.csv --role reviewer -m 'Review {path}' --dry-run
  troupe batch show files
  troupe batch items files --state failed
  troupe batch update files --limit 2
  troupe batch cancel files

Each row of the file is an item, and {COLUMN} in the task is the value of that column. If the command is interrupted, the
batch continues; the same command follows it again.";

/// The key of the label of a session that `batch run` opens. Its value is the name of the batch.
const LABEL: &str = "batch";
/// Maximum duration of one call that waits for the batch. The progress is shown after each call.
const LONGEST_CALL: Duration = Duration::from_secs(1);

/// An action on batches.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) enum Action {
    /// Run one agent for each row of a file, or follow a batch that runs
    #[command(after_help = "Example: troupe batch run --csv files.csv --role reviewer -m 'Review {path}' --limit 8")]
    Run(Box<RunArgs>),
    /// Show a batch with its progress
    #[command(after_help = "Example: troupe batch show files")]
    Show(Named),
    /// List the items of a batch with their results
    #[command(after_help = "Example: troupe batch items files --state failed")]
    Items {
        #[command(flatten)]
        named: Named,
        /// Items with this state only; may be repeated
        #[arg(long, value_name = "STATE", value_parser = choices::group_item_state())]
        state: Vec<GroupItemState>,
    },
    /// Change the limits of a batch, or pause it
    #[command(after_help = "Example: troupe batch update files --limit 2")]
    Update(UpdateArgs),
    /// Run the failed and cancelled items of a batch again
    #[command(after_help = "Example: troupe batch retry files")]
    Retry(Named),
    /// Cancel the items that have not ended, and close their threads
    #[command(after_help = "Example: troupe batch cancel files --reason 'wrong branch'")]
    Cancel {
        #[command(flatten)]
        named: Named,
        /// Reason for the log
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
    },
}

/// The arguments of `batch run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Table of the items: a CSV file with a heading line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,
    /// Column with the key of each item [default: key, or the number of the row]
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// Role of the agents
    #[arg(long, value_name = "ROLE", default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::roles))]
    role: String,
    /// The task, with {COLUMN} for the values of a row.
    #[command(flatten)]
    text: TextArgs,
    /// Name of the batch [default: the name of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Session [default: a new session for the current directory]
    #[arg(long, value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    session: Option<String>,
    /// Persona of the role
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    agent_name: String,
    /// Model; wins over persona and role
    #[arg(long, value_name = "MODEL", default_value = "", hide_default_value = true)]
    model: String,
    /// Items that run at a time, at most 1000
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    limit: u32,
    /// Times that a failed item is tried again, at most 10
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    retries: u32,
    /// Time limit of an attempt at an item
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    item_timeout: Option<Duration>,
    /// Items that may fail without making the batch fail
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    tolerate: u32,
    /// Treatment of the other items after too many failures
    #[arg(long, value_name = "HOW", value_parser = choices::group_failure_policy(), default_value = "continue")]
    on_failure: GroupFailurePolicy,
    /// Successful items after which the others are cancelled [default: all items must succeed]
    #[arg(long, value_name = "NUMBER")]
    quorum: Option<u32>,
    /// Ask an operator to approve a batch with more items
    #[arg(long, value_name = "NUMBER")]
    approval_above: Option<u32>,
    /// Token budget of all items together
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    total_tokens: Option<u64>,
    /// Cost budget of all items together, in the session's currency
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    total_cost: Option<u64>,
    /// Validate the batch and show its maximum spending, without running it
    #[arg(long)]
    dry_run: bool,
    /// File for the results, as CSV
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// The project.
    #[command(flatten)]
    project: ProjectArgs,
    /// The budget of each item.
    #[command(flatten)]
    budget: SpawnBudget,
    /// The requested result of each item.
    #[command(flatten)]
    result: ResultArgs,
}

/// A batch.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Batch: its name or its id
    #[arg(value_name = "BATCH")]
    batch: String,
    /// Session of the batch [default: any open session]
    #[arg(long, value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    session: Option<String>,
}

/// The arguments of `batch update`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// The batch.
    #[command(flatten)]
    named: Named,
    /// Items that run at a time, at most 1000
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
    /// Items that may fail without making the batch fail
    #[arg(long, value_name = "NUMBER")]
    tolerate: Option<u32>,
    /// Start no further item
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Start further items again
    #[arg(long)]
    resume: bool,
}

/// Runs the action.
pub(crate) async fn run(action: Action, context: &Context) -> Result<()> {
    match action {
        Action::Run(args) => run_batch(*args, context).await,
        Action::Show(named) => show(named, context).await,
        Action::Items { named, state } => list_items(&named, &state, context).await,
        Action::Update(args) => update(args, context).await,
        Action::Retry(named) => retry(named, context).await,
        Action::Cancel { named, reason } => cancel(&named, reason, context).await,
    }
}

async fn run_batch(args: RunArgs, context: &Context) -> Result<()> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(&args.csv)?,
    };
    // Installed before the first output, so that every Ctrl-C after the output has begun is reported.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut supervisor = context.supervisor().await?;
    let session = match &args.session {
        Some(text) => Some(ids::session(&mut supervisor, text).await?),
        None => find_session(&mut supervisor, &name).await?,
    };
    if let Some(session) = &session
        && let Some(group) = get(&mut supervisor, session, &name).await?
    {
        context
            .ui
            .note(format!("the batch \"{name}\" exists already; following it"));
        return follow(
            &mut supervisor,
            group,
            args.results.as_deref(),
            &mut interrupts,
            context,
        )
        .await;
    }
    let request = request(&args, &name)?;
    let dry_run = args.dry_run;
    let (session, is_own) = match session {
        Some(session) => (session, false),
        None => (open_session(&mut supervisor, &args, &name, context).await?, true),
    };
    let request = CreateGroupRequest {
        session_id: session.clone(),
        ..request
    };
    let answer = supervisor.create_group(Request::new(request)).await;
    if is_own && (dry_run || answer.is_err()) {
        super::spawn::remove_session(&mut supervisor, &session).await;
    }
    let created = answer?.into_inner();
    for warning in &created.warnings {
        context.ui.warn(warning);
    }
    if dry_run {
        let items = created.group.as_ref().map_or(0, |group| group.pending);
        let most = match budget_in_words(created.highest_usage.as_ref()).as_str() {
            "" => "without a budget".to_owned(),
            words => format!("at most {words}"),
        };
        return context.ui.answer(
            || json::message(&created),
            || format!("{items} items can run, {most}; nothing was started"),
        );
    }
    if is_own {
        context
            .ui
            .note(format!("session {}", style::paint(style::NAME, &session)));
    }
    let group = created.group.ok_or_else(Error::empty_answer)?;
    follow(
        &mut supervisor,
        group,
        args.results.as_deref(),
        &mut interrupts,
        context,
    )
    .await
}

/// Returns the name of a batch from its file.
fn name_of(file: &Path) -> Result<String> {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    stem.filter(|stem| *stem != "-")
        .map(str::to_owned)
        .ok_or_else(|| Error::usage("the batch needs a name").hint("pass --name NAME"))
}

/// Returns the open session that an earlier command opened for the batch.
async fn find_session(supervisor: &mut Supervisor, name: &str) -> Result<Option<String>> {
    let sessions = listing::sessions(supervisor, false).await?;
    let is_it = |session: &Session| session.labels.get(LABEL).is_some_and(|label| label == name);
    Ok(sessions.into_iter().find(is_it).map(|session| session.session_id))
}

async fn open_session(supervisor: &mut Supervisor, args: &RunArgs, name: &str, context: &Context) -> Result<String> {
    let request = CreateSessionRequest {
        cwd: args.project.cwd()?,
        labels: [(LABEL.to_owned(), name.to_owned())].into(),
        ..CreateSessionRequest::default()
    };
    let answer = create_session(supervisor, request, context).await?;
    Ok(answer.session.ok_or_else(Error::empty_answer)?.session_id)
}

fn request(args: &RunArgs, name: &str) -> Result<CreateGroupRequest> {
    let items = rows::read(&args.csv, args.key.as_deref())?;
    let budget = Budget {
        tokens: args.total_tokens.unwrap_or_default(),
        cost_micros: args.total_cost.unwrap_or_default(),
        ..Budget::default()
    };
    let (join, quorum) = match args.quorum {
        Some(quorum) => (GroupJoin::Quorum, quorum),
        None => (GroupJoin::All, 0),
    };
    Ok(CreateGroupRequest {
        request_id: troupe_client::request_id(),
        name: name.to_owned(),
        template: Some(SpawnAgentRequest {
            message: Some(args.text.read()?),
            agent_type: args.role.clone(),
            agent_name: args.agent_name.clone(),
            model: args.model.clone(),
            budget: args.budget.given(),
            result_schema: args.result.schema()?,
            result_repairs: args.result.repairs,
            ..SpawnAgentRequest::default()
        }),
        items,
        max_concurrency: args.limit,
        join: join.into(),
        quorum,
        on_failure: args.on_failure.into(),
        tolerated_failures: args.tolerate,
        item_deadline: args.item_timeout.map(time::to_proto),
        retries: args.retries,
        budget: bounded(budget),
        approval_above: args.approval_above,
        dry_run: args.dry_run,
        ..CreateGroupRequest::default()
    })
}

/// Shows the progress of a batch until it has ended, and then its results.
async fn follow(
    supervisor: &mut Supervisor,
    mut group: Group,
    results: Option<&Path>,
    interrupts: &mut Signal,
    context: &Context,
) -> Result<()> {
    let id = group_id(&group).to_owned();
    let mut progress = Progress::new(&group, context);
    if group.state() == GroupState::AwaitingApproval {
        context.ui.note(format!(
            "the batch waits for an approval: `troupe approvals grant {}`",
            group.approval_id
        ));
    }
    while is_open(&group) {
        progress.show(&group)?;
        let request = GetGroupRequest {
            session_id: group.session_id.clone(),
            group_id: id.clone(),
            wait: Some(time::to_proto(LONGEST_CALL)),
            ..GetGroupRequest::default()
        };
        let answer = tokio::select! {
            answer = supervisor.get_group(Request::new(request)) => answer,
            _ = interrupts.recv() => {
                progress.end();
                let name = name(&group);
                return Err(Error::interrupted(format!("the batch {name} continues"))
                    .hint(format!("the same command follows it again; `troupe batch cancel {name}` cancels it")));
            }
        };
        match answer {
            Ok(answer) => group = answer.into_inner().group.ok_or_else(Error::empty_answer)?,
            Err(status) if is_transient(&status) => tokio::time::sleep(LONGEST_CALL).await,
            Err(status) => return Err(status.into()),
        }
    }
    progress.show(&group)?;
    progress.end();
    let items = items(supervisor, &group, &[]).await?;
    if let Some(path) = results {
        rows::write(path, &items)?;
        context.ui.note(format!("results in {}", path.display()));
    }
    context.ui.answer(
        || json!({ "group": json::message(&group), "items": json::list(&items) }),
        || line(&group),
    )?;
    match group.state() {
        GroupState::Succeeded => Ok(()),
        state => {
            let name = name(&group);
            Err(Error::agent_failed(format!(
                "the batch {name} is {}: {}",
                names::group_state(state),
                group.reason
            ))
            .hint(format!(
                "`troupe batch items {name} --state failed` shows the errors, `troupe batch retry {name}` runs them again"
            )))
        }
    }
}

/// Returns the name of a batch, or the id of a batch without a name.
fn name(group: &Group) -> String {
    let spec = group.spec.clone().unwrap_or_default();
    if spec.name.is_empty() { spec.group_id } else { spec.name }
}

/// Returns a batch by its name or id, if the session has it.
async fn get(supervisor: &mut Supervisor, session: &str, batch: &str) -> Result<Option<Group>> {
    let is_id = batch.len() == 36 && batch.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    let (group_id, name) = match is_id {
        true => (batch.to_owned(), String::new()),
        false => (String::new(), batch.to_owned()),
    };
    let request = GetGroupRequest {
        session_id: session.to_owned(),
        group_id,
        name,
        wait: None,
    };
    match supervisor.get_group(Request::new(request)).await {
        Ok(answer) => Ok(answer.into_inner().group),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Returns the batch that a command names.
async fn find(supervisor: &mut Supervisor, named: &Named) -> Result<Group> {
    for session in ids::open_sessions(supervisor, named.session.as_deref()).await? {
        if let Some(group) = get(supervisor, &session, &named.batch).await? {
            return Ok(group);
        }
    }
    Err(
        Error::not_found(format!("no open session has the batch \"{}\"", named.batch))
            .hint("`troupe session list` shows the sessions; pass --session for a closed one"),
    )
}

async fn items(supervisor: &mut Supervisor, group: &Group, states: &[GroupItemState]) -> Result<Vec<GroupItemStatus>> {
    let mut items = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListGroupItemsRequest {
            session_id: group.session_id.clone(),
            group_id: group_id(group).to_owned(),
            states: states.iter().copied().map(i32::from).collect(),
            page_token,
            ..ListGroupItemsRequest::default()
        };
        let page = supervisor.list_group_items(Request::new(request)).await?.into_inner();
        items.extend(page.items);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(items);
        }
    }
}

async fn show(named: Named, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let group = find(&mut supervisor, &named).await?;
    print(Some(group), context)
}

async fn list_items(named: &Named, states: &[GroupItemState], context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let group = find(&mut supervisor, named).await?;
    let items = items(&mut supervisor, &group, states).await?;
    context.ui.table(
        || json!({ "items": json::list(&items) }),
        || {
            let mut table = Table::new(["KEY", "STATE", "TRIES", "THREAD", "TOKENS", "COST", "RESULT"])
                .optional(&["COST", "TOKENS", "TRIES"]);
            for item in &items {
                let usage = item.usage.unwrap_or_default();
                let state = item.state();
                table.row([
                    Cell::plain(&item.key),
                    Cell::new(style_of(state), names::group_item_state(state)),
                    Cell::plain(item.attempts.to_string()),
                    Cell::plain(ids::short(&item.thread_id)),
                    Cell::plain(ui::tokens(&usage)),
                    Cell::plain(ui::cost(&usage)),
                    Cell::plain(rows::outcome(item)),
                ]);
            }
            table
        },
        "no items have this state",
    )
}

const fn style_of(state: GroupItemState) -> anstyle::Style {
    match state {
        GroupItemState::Succeeded => style::GOOD,
        GroupItemState::Failed => style::BAD,
        GroupItemState::Cancelled => style::WARN,
        GroupItemState::Running => style::NAME,
        GroupItemState::Pending | GroupItemState::Unspecified => style::DIM,
    }
}

async fn update(args: UpdateArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let group = find(&mut supervisor, &args.named).await?;
    let request = UpdateGroupRequest {
        request_id: troupe_client::request_id(),
        session_id: group.session_id.clone(),
        group_id: group_id(&group).to_owned(),
        max_concurrency: args.limit,
        tolerated_failures: args.tolerate,
        paused: (args.pause || args.resume).then_some(args.pause),
    };
    let answer = supervisor.update_group(Request::new(request)).await?.into_inner();
    print(answer.group, context)
}

async fn retry(named: Named, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let group = find(&mut supervisor, &named).await?;
    let request = RetryGroupRequest {
        request_id: troupe_client::request_id(),
        session_id: group.session_id.clone(),
        group_id: group_id(&group).to_owned(),
    };
    let answer = supervisor.retry_group(Request::new(request)).await?.into_inner();
    print(answer.group, context)
}

async fn cancel(named: &Named, reason: String, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let group = find(&mut supervisor, named).await?;
    let request = CancelGroupRequest {
        request_id: troupe_client::request_id(),
        session_id: group.session_id.clone(),
        group_id: group_id(&group).to_owned(),
        reason,
    };
    let answer = supervisor.cancel_group(Request::new(request)).await?.into_inner();
    print(answer.group, context)
}

/// Writes a batch that the supervisor returned.
fn print(group: Option<Group>, context: &Context) -> Result<()> {
    let group = group.ok_or_else(Error::empty_answer)?;
    context
        .ui
        .answer(|| json!({ "group": json::message(&group) }), || line(&group))
}

/// Formats a batch as its name, its state and its counts.
fn line(group: &Group) -> Line {
    let state = group.state();
    let look = match state {
        GroupState::Succeeded => style::GOOD,
        GroupState::Failed => style::BAD,
        GroupState::Cancelled | GroupState::AwaitingApproval => style::WARN,
        GroupState::Running | GroupState::Ending | GroupState::Unspecified => style::NAME,
    };
    let paused = group.limits.is_some_and(|limits| limits.paused);
    Line::default()
        .mark(style::PLAIN, name(group))
        .word(look, names::group_state(state))
        .word(style::WARN, if paused { "PAUSED" } else { "" })
        .word(style::PLAIN, counts(group))
        .word(style::DIM, &group.reason)
}
