//! Command-line arguments.

use crate::{measures::Measure, plan::Plan};

/// The parsed arguments.
pub(crate) struct Arguments {
    pub(crate) plan: Plan,
    pub(crate) measures: Vec<Measure>,
    /// Whether the results are written into the documentation.
    pub(crate) write: bool,
}

impl Arguments {
    /// Reads the arguments. `cargo bench` adds `--bench` to the given arguments.
    ///
    /// # Errors
    ///
    /// Returns a description of the invalid argument.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut is_full, mut write, mut only) = (false, false, Vec::new());
        let mut arguments = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = arguments.next() {
            match argument {
                "--bench" => is_full = true,
                "--write" => write = true,
                "--only" => {
                    while let Some(name) = arguments.next_if(|next| !next.starts_with("--")) {
                        only.push(Measure::named(name)?);
                    }
                }
                other => return Err(format!("unknown argument \"{other}\"; use --only NAME... or --write")),
            }
        }
        if write && !(is_full && only.is_empty()) {
            return Err(String::from(
                "the documentation needs all results: use --write with cargo bench and without --only",
            ));
        }
        Ok(Self {
            plan: if is_full { Plan::FULL } else { Plan::BRIEF },
            measures: if only.is_empty() { Measure::ALL.to_vec() } else { only },
            write,
        })
    }
}
