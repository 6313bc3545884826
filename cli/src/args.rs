//! The complete command line, and its parser.

use clap::{Parser, builder::Styles, builder::styling::AnsiColor};

use crate::{commands::Command, global::Global};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Text shown below the list of commands.
const AFTER_HELP: &str = "\
Two minutes:
  troupe demo                                  the whole thing in one command; leaves nothing behind
  troupe up                                    the pair, until Ctrl-C
  troupe spawn explorer -m 'Where is main?' --wait
  troupe ps --tree

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by a limit or a policy.";

/// Gives AI agents their roles and watches over them.
#[derive(Debug, Parser)]
#[command(name = "troupe", version, styles = STYLES, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::global::UploadWorkspace;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_workspace_is_uploaded_by_need_unless_told_otherwise() {
        let when = |arguments: &[&str]| {
            let line = ["troupe", "agents"].iter().chain(arguments);
            Cli::try_parse_from(line).map(|cli| cli.global.upload_workspace)
        };
        assert!(matches!(when(&[]), Ok(UploadWorkspace::Auto)));
        // The next value is the role, not the upload mode.
        assert!(matches!(
            when(&["--upload-workspace", "worker"]),
            Ok(UploadWorkspace::Always)
        ));
        assert!(matches!(
            when(&["--upload-workspace=never"]),
            Ok(UploadWorkspace::Never)
        ));
        assert!(when(&["--upload-workspace=sometimes"]).is_err());
    }

    #[test]
    fn every_help_has_an_example() {
        for command in Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                after.contains("troupe ") || after.contains("troupe\n"),
                "`troupe {} --help` shows no example",
                command.get_name()
            );
        }
    }
}
