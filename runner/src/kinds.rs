//! The kinds of a runner's programs, and the selection of one for a thread.

use std::sync::Arc;

use tracing::warn;
use troupe_proto::{common::v1::ResolvedSpawn, supervisor::v1::RunnerKind};

use crate::{
    a2a::A2aKind,
    acp::AcpKind,
    agent::{AgentKind, StartFailure},
    claude::ClaudeKind,
    codex::CodexKind,
    config::RunnerConfig,
    confinement::{self, Means},
    process::ProcessKind,
    programs::{Program, ProgramKind, Programs},
};

/// The kinds of programs that a runner can execute.
pub(crate) struct Kinds {
    programs: Programs,
    /// The kind of each program, in the order of the programs.
    kinds: Vec<Arc<dyn AgentKind>>,
}

/// The program and model of a thread.
pub(crate) struct Role {
    pub(crate) kind: Arc<dyn AgentKind>,
    /// The model in the program's format. `None`: the program's own default.
    pub(crate) model: Option<String>,
    /// The credentials in the program's environment.
    pub(crate) secrets: Vec<String>,
}

impl Kinds {
    pub(crate) fn new(config: &RunnerConfig) -> Self {
        let kind = |program: Program| -> Arc<dyn AgentKind> {
            match program.kind {
                ProgramKind::Process(program) => Arc::new(ProcessKind { program }),
                ProgramKind::Codex(program) => Arc::new(CodexKind::new(program, config.hook.clone())),
                ProgramKind::Claude(program) => Arc::new(ClaudeKind { program }),
                ProgramKind::Acp(program) => Arc::new(AcpKind {
                    program,
                    shim: config.hook.first().cloned(),
                }),
                ProgramKind::A2a(program) => Arc::new(A2aKind { program }),
            }
        };
        let programs = config.programs.clone();
        Self {
            kinds: programs.all().iter().cloned().map(kind).collect(),
            programs,
        }
    }

    /// Determines the restrictions that programs can enforce on this machine. With `has_secrets`, also determines
    /// whether secrets can be hidden.
    pub(crate) async fn prepare(&self, has_secrets: bool) {
        let is_confined = |program: &Program| match &program.kind {
            ProgramKind::Process(program) => program.confine,
            ProgramKind::Claude(_) | ProgramKind::Codex(_) | ProgramKind::Acp(_) => true,
            ProgramKind::A2a(_) => false,
        };
        let is_needed = has_secrets || self.programs.landlock || self.programs.all().iter().any(is_confined);
        if !is_needed {
            return;
        }
        if confinement::find(self.programs.landlock).await == Means::Nothing && has_secrets {
            warn!(
                "programs and commands of agents can read paths that should be hidden: the directories of other threads, and \
                 without a launcher the token of the runner"
            );
        }
    }

    /// Returns the kinds' description for the supervisor. A kind with several programs has only the restrictions that
    /// all of them enforce.
    pub(crate) fn describe(&self) -> Vec<RunnerKind> {
        let mut described: Vec<RunnerKind> = Vec::new();
        for kind in self.kinds.iter().map(|kind| kind.describe()) {
            match described.iter_mut().find(|known| known.kind == kind.kind) {
                Some(known) => {
                    known.enforces_tools &= kind.enforces_tools;
                    known.enforces_read_only &= kind.enforces_read_only;
                    known.enforces_workspace &= kind.enforces_workspace;
                }
                None => described.push(kind),
            }
        }
        described
    }

    /// Returns the program for a thread, and the model in the program's format.
    ///
    /// # Errors
    ///
    /// No program supports the provider and model.
    pub(crate) fn choose(&self, resolved: &ResolvedSpawn) -> Result<Role, StartFailure> {
        let place = self.programs.choose(&resolved.provider, &resolved.model);
        let found = place.and_then(|place| Some((self.programs.all().get(place)?, self.kinds.get(place)?)));
        let Some((program, kind)) = found else {
            return Err(StartFailure::no_program(format!(
                "no program of this runner is for model {:?} of provider {:?}; see `providers` and `models` in its \
                     runner.yaml",
                resolved.model, resolved.provider
            )));
        };
        Ok(Role {
            kind: Arc::clone(kind),
            model: program.model_for(&resolved.model),
            secrets: program.kind.secrets(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::supervisor::v1::StartRefusal;

    use super::*;

    fn kinds(yaml: &str) -> Kinds {
        let programs = Programs::parse(yaml, "runner.yaml").unwrap();
        Kinds::new(&RunnerConfig::new("r", "http://localhost", programs, "/tmp"))
    }

    #[test]
    fn thread_gets_program_of_provider_or_is_refused() {
        let kinds = kinds(
            "programs:\n- {kind: codex, providers: [openai]}\n- {kind: claude, providers: [anthropic], model_aliases: \
             {'*': default}}",
        );
        let described: Vec<_> = kinds.describe().into_iter().map(|kind| kind.kind).collect();
        assert_eq!(described, ["codex", "claude"]);
        let of = |provider: &str| {
            kinds.choose(&ResolvedSpawn {
                provider: provider.to_owned(),
                model: "m".to_owned(),
                ..ResolvedSpawn::default()
            })
        };
        assert_eq!(of("anthropic").ok().map(|role| role.model), Some(None));
        assert_eq!(
            of("openai").ok().map(|role| role.kind.describe().kind),
            Some("codex".to_owned())
        );
        let refused = of("google").err().unwrap();
        assert_eq!(refused.refusal, StartRefusal::NoProgram);
        assert!(refused.message.contains("\"google\""), "{refused}");
    }

    #[test]
    fn acp_kind_is_named_by_profile() {
        let kinds = kinds(
            "programs:\n- {kind: acp, profile: opencode, providers: [p]}\n- {kind: acp, profile: gemini, providers: \
             [google]}",
        );
        let described: Vec<_> = kinds.describe().into_iter().map(|kind| kind.kind).collect();
        assert_eq!(described, ["opencode", "gemini"]);
    }

    #[test]
    fn kind_reports_only_guarantees_common_to_its_programs() {
        let kinds = kinds(
            "programs:\n- {kind: process, command: a, holds_read_only: true, providers: [p]}\n- {kind: process, \
             command: b}",
        );
        let [described] = &kinds.describe()[..] else { panic!() };
        assert!(described.enforces_tools && !described.enforces_read_only);
    }
}
