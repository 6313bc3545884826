//! The complete command line, and its parser.

use clap::{Parser, builder::Styles, builder::styling::AnsiColor};

use crate::{commands::Command, global::Global};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The text below the usage line: the commands in groups. A test compares it with the commands.
const HELP: &str = "\
Start:
  up         Start both services and a runner      down       Stop them
  status     Show the running services             demo       Demonstrate the system
  doctor     Diagnose the installation             context    Manage named servers
Work with agents:
  top        Show everything on one screen         console    Serve the web console
  spawn      Spawn an agent                        send       Send input to a thread
  ps         List sessions and threads             show       Show a session or a thread
  wait       Wait until threads are settled        watch      Follow events
  interrupt  Interrupt running turns               close      Close a thread
  resume     Reopen a closed thread                budget     Set the budget of a thread
  note       Set the note of a thread              approvals  Grant or deny approvals
  notify     Follow notifications                  batch      Run one agent for each row
Inspect:
  logs       Show the transcript of a thread       prompts    Show prompts
  artifacts  Fetch artifacts                       mail       List the mail of a thread
  tools      List the tools of a thread            quota      Show limits and budgets in use
  runners    List runners                          export     Write a whole session to a file
Sessions, threads and edges:
  session    Manage sessions                       thread     Manage threads
  edges      Manage edges between threads          handoff    Send a message along an edge
Roles:
  agents     List, show and create roles           lint       Check template files
  resolve    Show the result of a spawn            route      Select a role for a task
  bundle     Upload templates
Operate:
  run        Run a runner                          store      Verify and back up stored data
  mcp        Serve tools over MCP                  completion Print a shell's completion script
  man        Write the manual pages                cluster    Manage supervisors that share a log

Examples:
  troupe up
  troupe spawn explorer 'Where is main?' --wait
  troupe ps --tree

Exit codes: 0 success, 1 failure, 2 usage, 3 rejected by a limit or policy, 4 not found,
            5 timeout, 6 agent failed, 7 unreachable, 130 interrupted
`troupe COMMAND --help` shows the options of a command and examples.";

/// Run and supervise trees of AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "troupe",
    version,
    styles = STYLES,
    help_template = "{about}\n\n{usage-heading} {usage}{after-help}",
    after_help = HELP,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// The shared flags.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::global::UploadWorkspace;

    #[test]
    fn definitions_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn workspace_upload_defaults_to_auto() {
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
    fn thread_token_is_not_displayed() {
        let line = ["troupe", "mcp", "--thread-token", "s3cret"];
        let shown = Cli::try_parse_from(line).map(|cli| format!("{cli:?}"));
        assert!(shown.is_ok_and(|shown| !shown.contains("s3cret")));
    }

    #[test]
    fn help_lists_every_command_on_one_screen() {
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().count() <= 44, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        let words: Vec<&str> = HELP
            .lines()
            .filter(|line| line.starts_with("  "))
            .flat_map(str::split_whitespace)
            .collect();
        for command in Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            assert!(words.contains(&command.get_name()), "{}", command.get_name());
        }
    }

    /// Checks that the examples of a command and of its subcommands are valid command lines.
    fn check_examples(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            let line = line.trim().trim_start_matches("Example: ");
            // Two spaces separate an example from its explanation.
            let line = line.split("   ").next().unwrap_or_default();
            let Some(start) = line
                .find("troupe ")
                .filter(|start| *start == 0 || line.contains(" | troupe "))
            else {
                continue;
            };
            if line.contains("COMMAND") {
                continue;
            }
            let words = shlex::split(line.get(start..).unwrap_or_default()).unwrap_or_default();
            let ends = |word: &&String| word.starts_with(['|', '>', '<', '&']);
            let parsed = Cli::try_parse_from(words.iter().take_while(|word| !ends(word)));
            let kind = parsed.err().map(|error| (error.kind(), error.to_string()));
            assert!(kind.is_none(), "{line}: {kind:?}");
        }
        command.get_subcommands().for_each(check_examples);
    }

    #[test]
    fn examples_are_valid_command_lines() {
        check_examples(&Cli::command());
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
