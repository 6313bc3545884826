//! `troupe completion`: prints the completion script of a shell. `troupe man`: writes the manual pages.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use clap::ValueEnum;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::error::{Error, Result};

/// The environment variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "TROUPE_COMPLETE";

/// The arguments of `completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(troupe completion bash)
  troupe completion zsh > ~/.zfunc/_troupe
  troupe completion fish > ~/.config/fish/completions/troupe.fish

Ids, aliases and roles are completed from the services of the environment or of the current context.")]
pub(crate) struct Args {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// A shell with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Prints the completion script.
pub(crate) fn run(args: &Args) -> Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "troupe", "troupe", "troupe", &mut script)?;
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: troupe man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for the pages; it is created if necessary
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one manual page per command.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> Result<()> {
    let failed =
        |error: io::Error| Error::failure(format!("cannot write to \"{}\": {error}", args.directory.display()));
    fs::create_dir_all(&args.directory).map_err(failed)?;
    clap_mangen::generate_to(command, &args.directory).map_err(failed)
}
