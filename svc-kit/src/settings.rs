//! The settings of a program and the origin of each value. Flags take precedence over the environment, the environment
//! over a YAML file, and the file over the defaults.
//!
//! A key in the file is a flag's name with underscores, and its value is the flag's value. The key becomes an argument
//! of the program unless a flag or a variable sets the same setting. Therefore all checks of flags apply to the file.

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

/// Maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Minimum similarity between an unknown name and a known one for a suggestion.
const MIN_SIMILARITY: f64 = 0.7;
/// Name of the flag for the settings file.
const CONFIG: &str = "config";
/// Flags that control the handling of settings and are not settings themselves.
const NOT_SETTINGS: &[&str] = &[CONFIG, "print_config", "ready_file", "detach", "help", "version"];
/// The text that is shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// The flags of the settings file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SettingsOptions {
    /// YAML file with settings, named as the flags with underscores. Flags and the environment take precedence
    #[arg(long, env = "TROUPE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show all settings with their origin and exit
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub print_config: Option<Format>,
}

/// The output format of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line per setting, for people.
    Text,
    /// One JSON object, for scripts.
    Json,
}

/// The origin of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A command line argument.
    Flag,
    /// An environment variable.
    Environment,
    /// The settings file.
    File,
    /// The default of the flag.
    Default,
}

impl Origin {
    /// Returns the name that is shown.
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

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The name, as in the settings file.
    #[serde(skip)]
    pub name: String,
    /// The value as text; `-` if it has no value.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
}

/// The settings of a running program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The parsed arguments, with those from the file.
    pub matches: ArgMatches,
    /// All settings with their values and origins.
    pub shown: Vec<Setting>,
}

/// The reason why the settings of a program are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The arguments are invalid or ask for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file cannot be read.
    #[error("cannot read the settings in {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not a YAML mapping.
    #[error("{path}: invalid settings: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        problem: String,
    },
    /// The file has an unknown name.
    #[error("{path}: unknown setting {name:?}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The unknown name.
        name: String,
        /// A suggestion.
        remedy: String,
    },
    /// The file has an invalid value.
    #[error("{path}: {problem}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The setting and the defect.
        problem: String,
    },
}

impl SettingsError {
    /// Returns what to do about the error, if known.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Unknown { remedy, .. } => Some(remedy),
            Self::Usage(_) | Self::Unreadable { .. } | Self::Malformed { .. } | Self::Value { .. } => None,
        }
    }
}

impl Settings {
    /// Returns the settings of a program that was called with these arguments. The first argument is the program's
    /// name. Global flags of subcommands are not settings, except the names in `shared`.
    ///
    /// # Errors
    ///
    /// The arguments or the file are invalid. clap also reports a request for help as [`SettingsError::Usage`].
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
            if is_of_file {
                file.rejected(&error)
            } else {
                error.into()
            }
        })?;
        let (values, _) = leaf(&matches, &command);
        let shown = known.iter().map(|arg| shown(arg, values, &from_file)).collect();
        Ok(Self { matches, shown })
    }

    /// Sets the value of a setting whose default is computed at runtime.
    pub fn computed(&mut self, name: &str, value: impl ToString) {
        let unknown = self
            .shown
            .iter_mut()
            .find(|setting| setting.name == name && setting.value == NO_VALUE);
        if let Some(setting) = unknown {
            setting.value = value.to_string();
        }
    }

    /// Returns all settings in the given format.
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
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{name:<width$}  {:<11}  {value}", origin.as_str());
                }
                text.truncate(text.trim_end().len());
                text
            }
        }
    }

    /// Returns all settings as JSON: a value and an origin for each name.
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

/// Returns the flags of a program that are settings, in the order of its help.
#[must_use]
pub fn known<'a>(program: &'a Command, shared: &[&str]) -> Vec<&'a Arg> {
    program.get_arguments().filter(|arg| is_setting(arg, shared)).collect()
}

/// The text that is shown for a setting without a value.
const NO_VALUE: &str = "-";

/// Returns the value and the origin of a setting.
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

/// Returns a URL without its user and password, or the text unchanged if it is not a URL.
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
    let is_included = !arg.is_global_set() || shared.contains(&name);
    is_included && arg.get_long().is_some() && !NOT_SETTINGS.contains(&name)
}

/// Returns the innermost subcommand and its arguments.
fn leaf<'a>(matches: &'a ArgMatches, command: &'a Command) -> (&'a ArgMatches, &'a Command) {
    match matches.subcommand() {
        Some((name, inner)) => match command.find_subcommand(name) {
            Some(command) => leaf(inner, command),
            None => (matches, command),
        },
        None => (matches, command),
    }
}

/// Returns the settings file in the arguments, if the program accepts one.
fn known_path<'a>(given: &'a ArgMatches, program: &Command) -> Option<&'a PathBuf> {
    program.get_arguments().find(|arg| arg.get_id() == CONFIG)?;
    given.get_one::<PathBuf>(CONFIG)
}

/// A settings file.
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
            let problem = format!("the file has more than {MAX_FILE_BYTES} bytes");
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

    /// Returns a value as arguments of the program.
    fn arguments(&self, arg: &Arg, yaml: &Yaml) -> Result<Vec<OsString>, SettingsError> {
        let name = arg.get_id().as_str();
        let long = arg.get_long().unwrap_or(name);
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            return match yaml {
                Yaml::Bool(true) => Ok(vec![format!("--{long}").into()]),
                Yaml::Bool(false) => Ok(Vec::new()),
                _ => Err(self.invalid_value(format!("the setting {name} must be true or false"))),
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
                    return Err(self.invalid_value(format!("the setting {name} must have a single value")));
                }
            };
            let mut argument = OsString::from(format!("--{long}="));
            argument.push(OsStr::new(&text));
            Ok(argument)
        };
        items.iter().map(argument).collect()
    }

    fn invalid_value(&self, problem: String) -> SettingsError {
        SettingsError::Value {
            path: self.path.clone(),
            problem,
        }
    }

    /// Returns the error for arguments from the file that clap rejected.
    fn rejected(&self, error: &clap::Error) -> SettingsError {
        let text = error.to_string();
        let problem = text.split("\n\n").next().unwrap_or_default();
        self.invalid_value(problem.trim_start_matches("error: ").trim().to_owned())
    }
}

/// Returns a suggestion for an unknown name.
fn nearest(unknown: &str, names: &[&str]) -> String {
    let score = |name: &&&str| strsim::jaro_winkler(unknown, name);
    let nearest = names.iter().max_by(|one, other| score(one).total_cmp(&score(other)));
    match nearest.filter(|name| score(name) >= MIN_SIMILARITY) {
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
    fn flag_precedes_file_and_file_precedes_default() {
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
    fn settings_file_is_checked_like_flags() {
        for (file, problem) in [
            ("max_depth: deep", "'--max-depth <MAX_DEPTH>'"),
            ("max_depth: [1, 2]", "the setting max_depth must have a single value"),
            ("max_depth:", "the setting max_depth must have a single value"),
            ("no_seed: 1", "the setting no_seed must be true or false"),
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
    fn misspelled_name_is_rejected_with_suggestion() {
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
