//! The settings of `up`: defaults, then a YAML file, then the environment, then flags; and which of them decided what.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{ArgMatches, parser::ValueSource};
use registry_svc::{ForeignFormat, TemplateOptions};
use serde_json::{Value, json};
use serde_yaml::Value as Yaml;
use supervisor_svc::{
    StallOptions,
    domain::settings::{Limits, StallRule},
};
use svc_kit::paths;
use troupe_runner::WorktreeCleanup;

use super::Args;
use crate::{
    context::Context,
    error::{Error, Result},
    pair::{PairOptions, RunnerOptions},
    programs::Choice,
    ui::{self, Cell, Table, style},
};

/// The names that the file may use.
const NAMES: &[&str] = &[
    "registry_listen",
    "supervisor_listen",
    "admin_listen",
    "data_dir",
    "home",
    "workspace_roots",
    "import",
    "models",
    "no_project_templates",
    "allowed_endpoints",
    "auto_route",
    "max_depth",
    "max_threads",
    "max_open_threads",
    "stall_after",
    "stall_repeats",
    "session_content_bytes",
    "webhook_allow_private",
    "no_seed",
    "no_runner",
    "programs",
    "worktrees",
    "trust_loopback",
    "insecure",
];

/// How close a misspelled name must be to a real one to be suggested.
const CLOSE: f64 = 0.7;

/// The settings, and where each comes from.
#[derive(Debug)]
pub(super) struct Settings {
    /// What the pair is started with.
    pub(super) options: PairOptions,
    shown: Vec<Shown>,
}

#[derive(Debug)]
struct Shown {
    name: &'static str,
    value: String,
    origin: &'static str,
}

impl Settings {
    /// Gathers them.
    ///
    /// # Errors
    ///
    /// A usage error if the file cannot be read, has an unknown name or a value of the wrong kind.
    pub(super) fn gather(args: Args, context: &Context, matches: &ArgMatches) -> Result<Self> {
        let mut layers = Layers::new(args.config.as_deref(), matches)?;
        let given = |flag: bool| flag.then_some(true);
        let data_dir = layers.pick("data_dir", context.global.data_dir.clone().map(Directory), || {
            paths::default_data_dir().map(Directory)
        })?;
        let home = layers.pick("home", args.home.map(Directory), || {
            paths::default_home().map(Directory)
        })?;
        let options = PairOptions {
            registry_listen: layers.plain("registry_listen", args.registry_listen, "127.0.0.1:50051".to_owned())?,
            supervisor_listen: layers.plain(
                "supervisor_listen",
                args.supervisor_listen,
                "127.0.0.1:50052".to_owned(),
            )?,
            admin_listen: layers.optional("admin_listen", args.admin_listen)?,
            data_dir: data_dir.0,
            home: home.0,
            workspace_roots: layers
                .list(
                    "workspace_roots",
                    args.workspace_roots.into_iter().map(Directory).collect(),
                )?
                .into_iter()
                .map(|root| root.0)
                .collect(),
            import: layers
                .list("import", args.import)?
                .iter()
                .map(|name: &String| foreign_format(name))
                .collect::<Result<_>>()?,
            models: layers
                .optional("models", args.models.map(Directory))?
                .map(|path| path.0),
            templates: TemplateOptions {
                no_project_templates: layers.plain(
                    "no_project_templates",
                    given(args.templates.no_project_templates),
                    false,
                )?,
                allowed_endpoints: layers.list("allowed_endpoints", args.templates.allowed_endpoints)?,
                auto_route: layers.plain("auto_route", given(args.templates.auto_route), false)?,
            },
            limits: Limits {
                max_depth: layers.plain("max_depth", args.max_depth, 2)?,
                max_threads: layers.plain("max_threads", args.max_threads, 12)?,
                max_open_threads: layers.plain("max_open_threads", args.max_open_threads, 1000)?,
                ..Limits::default()
            },
            stall: stall(&mut layers, args.stall)?,
            session_content_bytes: layers.plain(
                "session_content_bytes",
                args.session_content_bytes,
                supervisor_svc::Config::SESSION_CONTENT_BYTES,
            )?,
            webhook_allow_private: layers.plain("webhook_allow_private", given(args.webhook_allow_private), false)?,
            seed: !layers.plain("no_seed", given(args.no_seed), false)?,
            runner: runner(
                &mut layers,
                given(args.no_runner),
                args.programs,
                args.worktrees.worktrees,
            )?,
            trust_loopback: layers.plain("trust_loopback", given(args.trust_loopback), false)?,
            insecure: layers.plain("insecure", given(args.insecure), false)?,
        };
        Ok(Self {
            options,
            shown: layers.shown,
        })
    }

    /// Every setting for scripts.
    pub(super) fn to_json(&self) -> Value {
        let of = |shown: &Shown| {
            (
                shown.name.to_owned(),
                json!({ "value": shown.value, "origin": shown.origin }),
            )
        };
        json!({ "settings": self.shown.iter().map(of).collect::<serde_json::Map<_, _>>() })
    }

    /// Every setting for people.
    pub(super) fn to_text(&self) -> String {
        let mut table = Table::new(["SETTING", "FROM", "VALUE"]);
        for shown in &self.shown {
            table.row([
                Cell::new(style::NAME, shown.name),
                Cell::new(style::DIM, shown.origin),
                Cell::plain(&shown.value),
            ]);
        }
        table.render(ui::columns())
    }
}

/// A path that is shown and read like any other value.
#[derive(Clone, Debug)]
struct Directory(PathBuf);

impl FromStr for Directory {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(Self(PathBuf::from(text)))
    }
}

impl std::fmt::Display for Directory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(out)
    }
}

/// The layers below the command line, and what was picked so far.
struct Layers<'a> {
    matches: &'a ArgMatches,
    file: BTreeMap<String, Yaml>,
    shown: Vec<Shown>,
}

impl<'a> Layers<'a> {
    fn new(config: Option<&Path>, matches: &'a ArgMatches) -> Result<Self> {
        let file = config.map(read_file).transpose()?.unwrap_or_default();
        Ok(Self {
            matches,
            file,
            shown: Vec::new(),
        })
    }

    /// A setting with a default that is always there.
    fn plain<T: FromStr + ToString>(&mut self, name: &'static str, given: Option<T>, default: T) -> Result<T> {
        self.pick(name, given, || Ok::<T, Error>(default))
    }

    /// A setting that may be absent.
    fn optional<T: FromStr + ToString>(&mut self, name: &'static str, given: Option<T>) -> Result<Option<T>> {
        if given.is_none() && !self.file.contains_key(name) {
            self.show(name, "-".to_owned(), "default");
            return Ok(None);
        }
        self.pick(name, given, || Err(Error::usage(format!("{name} has no value"))))
            .map(Some)
    }

    fn pick<T, E>(
        &mut self,
        name: &'static str,
        given: Option<T>,
        default: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<T>
    where
        T: FromStr + ToString,
        E: ToString,
    {
        let (value, origin) = match (given, self.file.get(name)) {
            (Some(value), _) => (value, self.origin_of(name)),
            (None, Some(yaml)) => (from_yaml(name, yaml)?, "file"),
            (None, None) => (default().map_err(|error| Error::usage(error.to_string()))?, "default"),
        };
        self.show(name, value.to_string(), origin);
        Ok(value)
    }

    /// A setting that is a list, in the file too, and empty by default. The roots have no default here, since only the pair
    /// knows whether it listens on loopback.
    fn list<T: FromStr + ToString>(&mut self, name: &'static str, given: Vec<T>) -> Result<Vec<T>> {
        let (values, origin) = match (given.is_empty(), self.file.get(name)) {
            (false, _) => (given, self.origin_of(name)),
            (true, Some(Yaml::Sequence(list))) => {
                let values: Result<Vec<T>> = list.iter().map(|yaml| from_yaml(name, yaml)).collect();
                (values?, "file")
            }
            (true, Some(yaml)) => (vec![from_yaml(name, yaml)?], "file"),
            (true, None) => (Vec::new(), "default"),
        };
        let shown: Vec<String> = values.iter().map(ToString::to_string).collect();
        let shown = if shown.is_empty() {
            "-".to_owned()
        } else {
            shown.join(":")
        };
        self.show(name, shown, origin);
        Ok(values)
    }

    fn origin_of(&self, name: &str) -> &'static str {
        match self.matches.value_source(name) {
            Some(ValueSource::EnvVariable) => "environment",
            _ => "flag",
        }
    }

    fn show(&mut self, name: &'static str, value: String, origin: &'static str) {
        self.shown.push(Shown { name, value, origin });
    }
}

fn stall(layers: &mut Layers<'_>, given: StallOptions) -> Result<StallRule> {
    let default = StallRule::default();
    let stall_after = layers.plain("stall_after", given.stall_after, default.silence.as_secs())?;
    let stall_repeats = layers.plain("stall_repeats", given.stall_repeats, default.repeats)?;
    let options = StallOptions {
        stall_after: Some(stall_after),
        stall_repeats: Some(stall_repeats),
    };
    options.rule().map_err(Error::usage)
}

/// How the runner executes threads, if one is started.
fn runner(
    layers: &mut Layers<'_>,
    no_runner: Option<bool>,
    programs: Option<Choice>,
    worktrees: Option<WorktreeCleanup>,
) -> Result<Option<RunnerOptions>> {
    let is_wanted = !layers.plain("no_runner", no_runner, false)?;
    let options = RunnerOptions {
        programs: layers.plain("programs", programs, Choice::default())?,
        worktrees: layers.optional("worktrees", worktrees)?,
    };
    Ok(is_wanted.then_some(options))
}

fn foreign_format(name: &str) -> Result<ForeignFormat> {
    ForeignFormat::parse(name).ok_or_else(|| {
        let known: Vec<_> = ForeignFormat::ALL.iter().map(|format| format.as_str()).collect();
        Error::usage(format!("unknown format {name:?} to import")).hint(format!("known are {}", known.join(", ")))
    })
}

fn read_file(path: &Path) -> Result<BTreeMap<String, Yaml>> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("cannot read the settings in {}: {error}", path.display())))?;
    parse_file(&text).map_err(|error| error.context(path.display()))
}

fn parse_file(text: &str) -> Result<BTreeMap<String, Yaml>> {
    let file: Option<BTreeMap<String, Yaml>> =
        serde_yaml::from_str(text).map_err(|error| Error::usage(format!("invalid settings: {error}")))?;
    let file = file.unwrap_or_default();
    match file.keys().find(|name| !NAMES.contains(&name.as_str())) {
        None => Ok(file),
        Some(unknown) => Err(unknown_name(unknown)),
    }
}

fn unknown_name(unknown: &str) -> Error {
    let score = |name: &&&str| strsim::jaro_winkler(unknown, name);
    let nearest = NAMES.iter().max_by(|one, other| score(one).total_cmp(&score(other)));
    let error = Error::usage(format!("unknown setting {unknown:?}"));
    match nearest.filter(|name| score(name) >= CLOSE) {
        Some(name) => error.hint(format!("did you mean {name:?}?")),
        None => error.hint(format!("the settings are {}", NAMES.join(", "))),
    }
}

fn from_yaml<T: FromStr>(name: &str, yaml: &Yaml) -> Result<T> {
    let text = match yaml {
        Yaml::String(text) => text.clone(),
        Yaml::Number(number) => number.to_string(),
        Yaml::Bool(flag) => flag.to_string(),
        _ => return Err(Error::usage(format!("the setting {name} has no plain value"))),
    };
    text.parse()
        .map_err(|_| Error::usage(format!("the setting {name} has the wrong kind of value: {text:?}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};
    use registry_svc::ProjectTemplates;

    use super::*;
    use crate::args::{Cli, Command};

    fn gather(arguments: &[&str]) -> Result<Settings> {
        let line = ["troupe", "up", "--data-dir", "/d", "--home", "/h"]
            .iter()
            .chain(arguments);
        let matches = Cli::command().try_get_matches_from(line).unwrap();
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let Command::Up(args) = cli.command else {
            panic!("not up");
        };
        let own = matches.subcommand_matches("up").unwrap();
        Settings::gather(*args, &Context::new(cli.global), own)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("troupe.yaml");
        fs::write(
            &path,
            "max_depth: 3\nmax_threads: 4\nno_seed: true\nworkspace_roots: [/a, /b]\n",
        )
        .unwrap();
        let settings = gather(&["--config", path.to_str().unwrap(), "--max-depth", "5"]).unwrap();
        let options = &settings.options;
        assert_eq!(options.limits.max_depth, 5);
        assert_eq!(options.limits.max_threads, 4);
        assert_eq!(options.limits.max_open_threads, 1000);
        assert!(!options.seed && options.runner.is_some());
        assert_eq!(options.workspace_roots, [PathBuf::from("/a"), PathBuf::from("/b")]);
        let origin = |name: &str| {
            settings
                .shown
                .iter()
                .find(|shown| shown.name == name)
                .map(|shown| shown.origin)
        };
        assert_eq!(origin("max_depth"), Some("flag"));
        assert_eq!(origin("max_threads"), Some("file"));
        assert_eq!(origin("max_open_threads"), Some("default"));
        assert_eq!(origin("data_dir"), Some("flag"));
        assert_eq!(
            settings.to_json()["settings"]["max_depth"],
            json!({"value": "5", "origin": "flag"})
        );
    }

    #[test]
    fn what_templates_may_say_is_passed_on() {
        let templates = gather(&[]).unwrap().options.templates;
        assert_eq!(templates.project_templates(), ProjectTemplates::Trusted);
        assert!(templates.allowed_endpoints.is_empty() && !templates.auto_route);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("troupe.yaml");
        fs::write(
            &path,
            "allowed_endpoints:\n  - https://a.example\n  - https://b.example\nauto_route: true\n",
        )
        .unwrap();
        let line = ["--no-project-templates", "--config", path.to_str().unwrap()];
        let templates = gather(&line).unwrap().options.templates;
        assert_eq!(templates.project_templates(), ProjectTemplates::Off);
        assert_eq!(templates.allowed_endpoints, ["https://a.example", "https://b.example"]);
        assert!(templates.auto_route);
    }

    #[test]
    fn a_stall_is_what_the_settings_say() {
        assert_eq!(gather(&[]).unwrap().options.stall, StallRule::default());
        let stall = gather(&["--stall-after", "60", "--stall-repeats", "0"])
            .unwrap()
            .options
            .stall;
        assert_eq!((stall.silence.as_secs(), stall.repeats), (60, 0));
        let error = gather(&["--stall-repeats", "1"]).unwrap_err();
        assert_eq!(error.code(), 2);
    }

    #[test]
    fn every_name_is_shown() {
        let settings = gather(&[]).unwrap();
        let shown: Vec<_> = settings.shown.iter().map(|shown| shown.name).collect();
        for name in NAMES {
            assert!(shown.contains(name), "{name}");
        }
    }

    #[test]
    fn misspelled_names_are_refused_with_a_suggestion() {
        let error = parse_file("max_dept: 3").unwrap_err();
        assert_eq!(error.code(), 2);
        assert_eq!(error.remedy(), Some("did you mean \"max_depth\"?"));
        assert!(
            parse_file("colour: blue")
                .unwrap_err()
                .remedy()
                .unwrap()
                .starts_with("the settings are")
        );
        assert!(parse_file("max_depth: [1").is_err());
        assert!(parse_file("").unwrap().is_empty());
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named() {
        let error = from_yaml::<u32>("max_depth", &Yaml::from("deep")).unwrap_err();
        assert_eq!(
            error.message(),
            "the setting max_depth has the wrong kind of value: \"deep\""
        );
    }
}
