//! Settings of a program: its flags, below them the environment, below that a YAML file, below that the defaults; and
//! which of them decided what.
//!
//! A key of the file is a flag's name with underscores, and its value what the flag would be given: it becomes an argument
//! of the program, unless a flag or a variable says something else. So whatever is checked of flags is checked of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use serde::Serialize;
use serde_yaml::Value as Yaml;

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// How close a misspelled name must be to a real one to be suggested.
const CLOSE: f64 = 0.7;
/// The flags that say what is done with settings and are none themselves.
const CONFIG: &str = "config";
const NONE_THEMSELVES: &[&str] = &[CONFIG, "print_config", "ready_file", "help", "version"];
/// What is shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// Where settings are, and whether they are only to be shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SettingsOptions {
    /// A YAML file with settings: names of flags with underscores. Flags and the environment win over it
    #[arg(long, env = "TROUPE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show every setting and where it comes from, and start nothing
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub print_config: Option<Format>,
}

/// How settings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line each, for people.
    Text,
    /// One JSON object, for scripts.
    Json,
}

/// What decided a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// An argument.
    Flag,
    /// A variable.
    Environment,
    /// The file.
    File,
    /// Nobody.
    Default,
}

impl Origin {
    /// As it is shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// One setting as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, as the file has it.
    #[serde(skip)]
    pub name: String,
    /// Its value; `-`: none.
    pub value: String,
    /// What decided it.
    pub origin: Origin,
}

/// The settings of a program that was started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As clap has them.
    pub matches: ArgMatches,
    /// Each of them, for whoever asks.
    pub shown: Vec<Setting>,
}

/// Why a program's settings are none.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The arguments are wrong, or ask for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file cannot be read.
    #[error("cannot read the settings in {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is no YAML mapping.
    #[error("{path}: invalid settings: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It has a name that is no setting.
    #[error("{path}: unknown setting {name:?}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// What to write instead.
        remedy: String,
    },
    /// A value of it is refused.
    #[error("{path}: {problem}")]
    Value {
        /// The file.
        path: PathBuf,
        /// What is wrong with which.
        problem: String,
    },
}

impl SettingsError {
    /// What to do, where that can be said.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Unknown { remedy, .. } => Some(remedy),
            Self::Usage(_) | Self::Unreadable { .. } | Self::Malformed { .. } | Self::Value { .. } => None,
        }
    }
}

impl Settings {
    /// Those of a program with these arguments, the program's own name first. Flags that all subcommands have are no settings,
    /// but for those that `shared` names.
    ///
    /// # Errors
    ///
    /// If arguments or file are wrong; [`SettingsError::Usage`] is also how clap says that help was asked for.
    pub fn gather(
        command: &Command,
        shared: &[&str],
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, SettingsError> {
        let mut command = command.clone();
        command.build();
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        let first = command.clone().ignore_errors(true).try_get_matches_from(&arguments)?;
        let (given, program) = leaf(&first, &command);
        let known = known(program, shared);
        let path = known_path(given, program);
        let file = path
            .map(|path| File::read(path, &known))
            .transpose()?
            .unwrap_or_default();

        let mut from_file = BTreeSet::new();
        let plain = arguments.clone();
        for (name, yaml) in &file.values {
            let is_overruled = matches!(
                given.value_source(name),
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            );
            if let Some(arg) = known.iter().find(|arg| arg.get_id() == name).filter(|_| !is_overruled) {
                arguments.extend(file.arguments(arg, yaml)?);
                from_file.insert(name.as_str());
            }
        }
        let matches = command.clone().try_get_matches_from(&arguments).map_err(|error| {
            let is_of_file = !from_file.is_empty() && command.clone().try_get_matches_from(&plain).is_ok();
            if is_of_file { file.refused(&error) } else { error.into() }
        })?;
        let (values, _) = leaf(&matches, &command);
        let shown = known.iter().map(|arg| shown(arg, values, &from_file)).collect();
        Ok(Self { matches, shown })
    }

    /// Tells the value of a setting whose default is found out only now.
    pub fn computed(&mut self, name: &str, value: impl ToString) {
        let unknown = self
            .shown
            .iter_mut()
            .find(|setting| setting.name == name && setting.value == NO_VALUE);
        if let Some(setting) = unknown {
            setting.value = value.to_string();
        }
    }

    /// All of them, in one format.
    #[must_use]
    pub fn to_text(&self, format: Format) -> String {
        match format {
            Format::Json => self.to_json().to_string(),
            Format::Text => {
                let width = self
                    .shown
                    .iter()
                    .map(|setting| setting.name.len())
                    .max()
                    .unwrap_or_default();
                let mut text = String::new();
                for Setting { name, value, origin } in &self.shown {
                    // Writing to a string does not fail.
                    let _ = writeln!(text, "{name:<width$}  {:<11}  {value}", origin.as_str());
                }
                text.truncate(text.trim_end().len());
                text
            }
        }
    }

    /// All of them as JSON: of each its value and its origin, by its name.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let settings: BTreeMap<&str, &Setting> = self
            .shown
            .iter()
            .map(|setting| (setting.name.as_str(), setting))
            .collect();
        serde_json::json!({ "settings": settings })
    }
}

/// The flags of a program that are settings, in the order of its help.
#[must_use]
pub fn known<'a>(program: &'a Command, shared: &[&str]) -> Vec<&'a Arg> {
    program.get_arguments().filter(|arg| is_setting(arg, shared)).collect()
}

/// How no value is shown.
const NO_VALUE: &str = "-";

/// What is shown of a setting.
fn shown(arg: &Arg, values: &ArgMatches, from_file: &BTreeSet<&str>) -> Setting {
    let name = arg.get_id().as_str();
    let origin = match values.value_source(name) {
        Some(ValueSource::CommandLine) if from_file.contains(name) => Origin::File,
        Some(ValueSource::CommandLine) => Origin::Flag,
        Some(ValueSource::EnvVariable) => Origin::Environment,
        Some(_) | None if from_file.contains(name) => Origin::File,
        Some(_) | None => Origin::Default,
    };
    let value = if matches!(arg.get_action(), ArgAction::SetTrue) {
        values.get_flag(name).to_string()
    } else if arg.is_hide_env_values_set() && values.contains_id(name) {
        HIDDEN.to_owned()
    } else {
        let raw = values.get_raw(name).into_iter().flatten();
        let texts: Vec<String> = raw.map(|raw| without_credentials(&raw.to_string_lossy())).collect();
        texts.join(", ")
    };
    Setting {
        name: name.to_owned(),
        value: if value.is_empty() { NO_VALUE.to_owned() } else { value },
        origin,
    }
}

/// A URL without the user and the password that it may name; anything else as it is.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(end) => format!("{scheme}://{HIDDEN}{}", &rest[end..]),
        None => text.to_owned(),
    }
}

fn is_setting(arg: &Arg, shared: &[&str]) -> bool {
    let name = arg.get_id().as_str();
    let is_ours = !arg.is_global_set() || shared.contains(&name);
    is_ours && arg.get_long().is_some() && !NONE_THEMSELVES.contains(&name)
}

/// The innermost subcommand that was called, and what it was given.
fn leaf<'a>(matches: &'a ArgMatches, command: &'a Command) -> (&'a ArgMatches, &'a Command) {
    match matches.subcommand() {
        Some((name, inner)) => match command.find_subcommand(name) {
            Some(command) => leaf(inner, command),
            None => (matches, command),
        },
        None => (matches, command),
    }
}

/// The file that a program was told of, if it takes one.
fn known_path<'a>(given: &'a ArgMatches, program: &Command) -> Option<&'a PathBuf> {
    program.get_arguments().find(|arg| arg.get_id() == CONFIG)?;
    given.get_one::<PathBuf>(CONFIG)
}

/// A file of settings.
#[derive(Debug, Default)]
struct File {
    path: PathBuf,
    values: BTreeMap<String, Yaml>,
}

impl File {
    fn read(path: &Path, known: &[&Arg]) -> Result<Self, SettingsError> {
        let unreadable = |cause| SettingsError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let mut text = String::new();
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let problem = format!("it has over {MAX_FILE_BYTES} bytes");
            return Err(unreadable(io::Error::other(problem)));
        }
        let values: Option<BTreeMap<String, Yaml>> =
            serde_yaml::from_str(&text).map_err(|error| SettingsError::Malformed {
                path: path.to_owned(),
                problem: error.to_string(),
            })?;
        let file = Self {
            path: path.to_owned(),
            values: values.unwrap_or_default(),
        };
        let names: Vec<&str> = known.iter().map(|arg| arg.get_id().as_str()).collect();
        match file.values.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(file),
            Some(name) => Err(SettingsError::Unknown {
                path: file.path.clone(),
                name: name.clone(),
                remedy: nearest(name, &names),
            }),
        }
    }

    /// A value as arguments of the program.
    fn arguments(&self, arg: &Arg, yaml: &Yaml) -> Result<Vec<OsString>, SettingsError> {
        let name = arg.get_id().as_str();
        let long = arg.get_long().unwrap_or(name);
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            return match yaml {
                Yaml::Bool(true) => Ok(vec![format!("--{long}").into()]),
                Yaml::Bool(false) => Ok(Vec::new()),
                _ => Err(self.wrong(format!("the setting {name} is true or false"))),
            };
        }
        let items = match yaml {
            Yaml::Sequence(items) if matches!(arg.get_action(), ArgAction::Append) => items.as_slice(),
            _ => std::slice::from_ref(yaml),
        };
        let argument = |item: &Yaml| {
            let text = match item {
                Yaml::String(text) => text.clone(),
                Yaml::Number(number) => number.to_string(),
                Yaml::Bool(flag) => flag.to_string(),
                Yaml::Null | Yaml::Sequence(_) | Yaml::Mapping(_) | Yaml::Tagged(_) => {
                    return Err(self.wrong(format!("the setting {name} has no plain value")));
                }
            };
            let mut argument = OsString::from(format!("--{long}="));
            argument.push(OsStr::new(&text));
            Ok(argument)
        };
        items.iter().map(argument).collect()
    }

    fn wrong(&self, problem: String) -> SettingsError {
        SettingsError::Value {
            path: self.path.clone(),
            problem,
        }
    }

    /// What clap says of arguments that are the file's.
    fn refused(&self, error: &clap::Error) -> SettingsError {
        let text = error.to_string();
        let problem = text.split("\n\n").next().unwrap_or_default();
        self.wrong(problem.trim_start_matches("error: ").trim().to_owned())
    }
}

/// What may have been meant by a name.
fn nearest(unknown: &str, names: &[&str]) -> String {
    let score = |name: &&&str| strsim::jaro_winkler(unknown, name);
    let nearest = names.iter().max_by(|one, other| score(one).total_cmp(&score(other)));
    match nearest.filter(|name| score(name) >= CLOSE) {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("the settings are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[arg(long, env = "SVC_KIT_TEST_UNSET", default_value = "127.0.0.1:1")]
        listen: String,
        #[arg(long)]
        max_depth: Option<u32>,
        #[arg(long = "root", value_delimiter = ':')]
        roots: Vec<PathBuf>,
        #[arg(long)]
        no_seed: bool,
        #[arg(long, requires = "key")]
        cert: Option<PathBuf>,
        #[arg(long, requires = "cert")]
        key: Option<PathBuf>,
        #[arg(long, hide_env_values = true)]
        token: Option<String>,
        #[command(flatten)]
        settings: SettingsOptions,
    }

    fn gather(file: &str, arguments: &[&str]) -> Result<Settings, SettingsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.yaml");
        fs::write(&path, file).unwrap();
        let line = ["program", "--config", path.to_str().unwrap()];
        let line = line.iter().chain(arguments).map(OsString::from);
        Settings::gather(&Program::command(), &[], line)
    }

    fn of(settings: &Settings, name: &str) -> (String, &'static str) {
        let found = settings.shown.iter().find(|setting| setting.name == name).unwrap();
        (found.value.clone(), found.origin.as_str())
    }

    fn says(value: &str, origin: &'static str) -> (String, &'static str) {
        (value.to_owned(), origin)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = "listen: 127.0.0.1:2\nmax_depth: 3\nroots: [/a, /b]\nno_seed: true\n";
        let settings = gather(file, &["--max-depth", "5"]).unwrap();
        assert_eq!(of(&settings, "listen"), says("127.0.0.1:2", "file"));
        assert_eq!(of(&settings, "max_depth"), says("5", "flag"));
        assert_eq!(of(&settings, "roots"), says("/a, /b", "file"));
        assert_eq!(of(&settings, "no_seed"), says("true", "file"));
        assert_eq!(of(&settings, "cert"), says("-", "default"));
        assert_eq!(settings.matches.get_one::<u32>("max_depth"), Some(&5));
        let roots: Vec<&PathBuf> = settings.matches.get_many("roots").unwrap().collect();
        assert_eq!(roots, [Path::new("/a"), Path::new("/b")]);

        let text = settings.to_text(Format::Text);
        assert!(text.contains("max_depth  flag         5"), "{text}");
        assert_eq!(settings.to_json()["settings"]["max_depth"]["origin"], "flag");
        assert_eq!(of(&gather("", &[]).unwrap(), "listen"), says("127.0.0.1:1", "default"));
    }

    #[test]
    fn what_is_checked_of_flags_is_checked_of_the_file() {
        for (file, problem) in [
            ("max_depth: deep", "'--max-depth <MAX_DEPTH>'"),
            ("max_depth: [1, 2]", "the setting max_depth has no plain value"),
            ("max_depth:", "the setting max_depth has no plain value"),
            ("no_seed: 1", "the setting no_seed is true or false"),
            ("cert: /c", "--key <KEY>"),
            ("max_depth: [1", "invalid settings"),
            ("- 1", "invalid settings"),
        ] {
            let error = gather(file, &[]).unwrap_err().to_string();
            assert!(
                error.contains("settings.yaml: ") && error.contains(problem),
                "{file}: {error}"
            );
        }
        assert!(gather("cert: /c", &["--key", "/k"]).is_ok());
        let own = gather("max_depth: 1", &["--max-depth", "deep"]).unwrap_err();
        assert!(matches!(own, SettingsError::Usage(_)), "{own}");
    }

    #[test]
    fn misspelled_names_are_refused_with_a_suggestion() {
        let error = gather("max_dept: 3", &[]).unwrap_err();
        assert_eq!(error.remedy(), Some("did you mean \"max_depth\"?"));
        let error = gather("colour: blue", &[]).unwrap_err();
        assert!(error.remedy().unwrap().starts_with("the settings are listen, "));
        assert!(gather("config: other.yaml", &[]).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let settings = gather("token: planted", &["--listen", "https://ann:planted@host:1/@"]).unwrap();
        let text = settings.to_text(Format::Text) + &settings.to_text(Format::Json);
        assert!(
            !text.contains("planted") && text.contains("https://(hidden)@host:1/@"),
            "{text}"
        );
    }
}
