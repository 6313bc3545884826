//! Resolution of a spawn request to the spawned thread's configuration.

use std::{borrow::Cow, collections::BTreeMap};

use tool_policy::locked_tools;

use crate::domain::{
    catalog::{Catalog, Entry},
    dialect::Dialect,
    digest::Digest,
    effort::Effort,
    error::RegistryError,
    models::{self, ModelCatalogue},
    name::{AgentType, PersonaName, TemplateName},
    prompt::{self, Mode, SharedTexts},
    resolved::{Chosen, InstructionsMode, Origin, Resolved},
    sandbox::Sandbox,
    selection::Selected,
    template::{EdgeManagement, Persona, Scope, Template},
};

/// The values passed on by the parent. Blank texts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The parent's model.
    pub model: Option<String>,
    /// The parent's effort, unchecked.
    pub effort: Option<String>,
    /// The parent's provider.
    pub provider: Option<String>,
    /// The parent's sandbox.
    pub sandbox: Option<Sandbox>,
    /// The parent's instructions.
    pub instructions: String,
}

/// A spawn request. Blank texts are `None`, except for the effort: a blank effort is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnRequest {
    /// The template. `None`: everything is inherited.
    pub wanted: Option<TemplateName>,
    /// The persona.
    pub agent_name: Option<PersonaName>,
    /// The explicit model.
    pub model: Option<String>,
    /// The explicit effort, unchecked. An error about the effort names the resolved model.
    pub effort: Option<String>,
    /// The explicit provider.
    pub provider: Option<String>,
    /// The values passed on by the parent.
    pub inherited: Inherited,
    /// The session's mode.
    pub mode: Mode,
    /// The expected digest of the template.
    pub expected_digest: Option<Digest>,
}

/// The inputs of a resolution other than the request.
#[derive(Clone, Copy, Debug)]
pub struct ResolveContext<'a> {
    /// The templates that apply.
    pub catalog: &'a Catalog,
    /// The model catalogue.
    pub models: &'a ModelCatalogue,
    /// The texts that every prompt shares.
    pub texts: &'a SharedTexts,
    /// The footer that applies. Blank: none.
    pub footer: &'a str,
}

/// A template and the selected text.
#[derive(Clone, Copy)]
struct Role<'a> {
    entry: &'a Entry,
    template: &'a Template,
    selected: Selected<'a>,
}

/// Resolves a spawn.
///
/// # Errors
///
/// The values are checked in this order: the template, its digest, the persona, model, provider, effort.
pub fn resolve(request: &SpawnRequest, context: ResolveContext<'_>) -> Result<Resolved, RegistryError> {
    let role = find(request, context.catalog)?;
    let persona = role.and_then(|role| role.selected.persona());
    let template = role.map(|role| role.template);

    let Binding {
        model,
        provider,
        endpoint,
        warnings: of_binding,
    } = Binding::of(request, persona, template, context.models)?;
    let effort = effort(request, persona, template, model.as_ref(), context.models)?;
    let texts = Texts::of(role, &request.inherited);
    let mut warnings = role.map_or_else(Vec::new, |role| warnings(role.entry));
    warnings.extend(of_binding);
    warnings.extend(role.into_iter().flat_map(|role| locked(role.entry, role.template)));

    Ok(Resolved {
        agent_type: role.map_or_else(
            || AgentType::DEFAULT.to_owned(),
            |role| role.entry.file.name.to_string(),
        ),
        agent_name: persona.map(|persona| persona.name.to_string()),
        description: template.and_then(|template| template.description.clone()),
        blocks: prompt::blocks(context.texts, context.footer, &texts.block, request.mode),
        mode_blocks: prompt::mode_blocks(context.texts),
        instructions: texts.instructions.to_owned(),
        instructions_mode: texts.mode,
        model,
        effort,
        provider,
        endpoint,
        parameters: template.map_or_else(BTreeMap::new, |template| template.parameters.clone()),
        sandbox: sandbox(template, request.inherited.sandbox),
        tools: role
            .map(|role| role.template.tools.layer(role.entry.file.name.as_str()))
            .filter(tool_policy::Layer::restricts),
        grant_list: template.map_or_else(Vec::new, |template| template.grant_list.clone()),
        spawn_list: template.map_or_else(Vec::new, |template| template.spawn_list.clone()),
        edge_management: template.map_or(EdgeManagement::None, Template::edge_management),
        capabilities: template.map_or_else(Vec::new, |template| template.capabilities.clone()),
        warnings,
        source: role.map(|role| role.entry.clone()),
    })
}

/// Finds the template and the text that the request selects. Returns `None` for `default`.
fn find<'a>(request: &SpawnRequest, catalog: &'a Catalog) -> Result<Option<Role<'a>>, RegistryError> {
    let entry = match &request.wanted {
        None if request.agent_name.is_some() => return Err(RegistryError::PersonaWithoutRole),
        None => None,
        Some(TemplateName::AgentType(name)) => Some(catalog.agent_type(name)?),
        Some(TemplateName::RoleTemplate(name)) => Some(catalog.role_template(name)?),
    };
    check_digest(request.expected_digest.as_ref(), entry)?;
    let Some(entry) = entry else { return Ok(None) };
    let template = entry.template()?;
    let selected = Selected::of(template, &entry.file.name, request.agent_name.as_ref())?;
    Ok(Some(Role {
        entry,
        template,
        selected,
    }))
}

fn check_digest(expected: Option<&Digest>, entry: Option<&Entry>) -> Result<(), RegistryError> {
    let actual = entry.and_then(|entry| entry.file.digest.as_ref());
    match expected {
        Some(expected) if actual != Some(expected) => Err(RegistryError::DigestMismatch {
            name: entry.map_or_else(|| AgentType::DEFAULT.to_owned(), |entry| entry.file.name.to_string()),
            expected: expected.clone(),
            actual: actual.cloned(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Chooses a value in order of precedence: explicit, persona, role, inherited.
fn precedence<T>(explicit: Option<T>, persona: Option<T>, role: Option<T>, inherited: Option<T>) -> Option<Chosen<T>> {
    [
        (explicit, Origin::Explicit),
        (persona, Origin::Persona),
        (role, Origin::Role),
        (inherited, Origin::Inherited),
    ]
    .into_iter()
    .find_map(|(value, origin)| value.map(|value| Chosen { value, origin }))
}

type Text = Option<Chosen<String>>;

/// The model and its provider.
struct Binding {
    model: Text,
    provider: Text,
    endpoint: Option<String>,
    warnings: Option<String>,
}

impl Binding {
    /// Binds a model to its provider. A model from a template or a request determines its provider; an inherited model
    /// keeps the parent's provider.
    fn of(
        request: &SpawnRequest,
        persona: Option<&Persona>,
        template: Option<&Template>,
        models: &ModelCatalogue,
    ) -> Result<Self, RegistryError> {
        let mut model = precedence(
            request.model.clone(),
            persona.and_then(|persona| persona.model.clone()),
            template.and_then(|template| template.model.clone()),
            request.inherited.model.clone(),
        );
        // The origin of the model. Read now, because alias resolution replaces the origin.
        let chosen_by = model.as_ref().map(|model| model.origin);
        if let Some(chosen) = &mut model {
            if let Some(target) = models.alias(&chosen.value) {
                *chosen = Chosen {
                    value: target.to_owned(),
                    origin: Origin::Alias,
                };
            }
            models.check_model(&chosen.value)?;
        }
        let of_model = model
            .as_ref()
            .filter(|_| chosen_by.is_some_and(|origin| origin != Origin::Inherited))
            .and_then(|model| {
                models.provider(&model.value).map(|provider| Chosen {
                    value: provider.to_owned(),
                    origin: model.origin,
                })
            });
        let explicit = precedence(request.provider.clone(), None, None, None);
        let inherited = precedence(None, None, None, request.inherited.provider.clone());
        let (of_role, warnings) = of_role(template, models);
        let provider = match chosen_by {
            // The role's provider applies only to the role's model.
            Some(Origin::Explicit) => explicit.or(of_model).or(of_role),
            Some(Origin::Persona | Origin::Role | Origin::Inherited | Origin::Alias | Origin::Default) | None => {
                explicit.or(of_role).or(of_model)
            }
        };
        let provider = provider.or(inherited);
        if let Some(chosen) = &provider {
            models.check_provider(&chosen.value)?;
        }
        let endpoint = template.and_then(|template| endpoint(template, provider.as_ref()));
        Ok(Self {
            model,
            provider,
            endpoint,
            warnings,
        })
    }
}

/// Returns the provider that the template names, or a warning. If no providers are configured, a provider that is not
/// well known is ignored, because its location is unknown.
fn of_role(template: Option<&Template>, models: &ModelCatalogue) -> (Text, Option<String>) {
    let Some(provider) = template.and_then(|template| template.provider.as_ref()) else {
        return (None, None);
    };
    if models.has_providers() || models::is_well_known(provider) {
        return (precedence(None, None, Some(provider.clone()), None), None);
    }
    let warning = format!(
        "provider {provider:?} of the template is unknown, so the inherited provider is used; add the provider to the model \
         catalogue"
    );
    (None, Some(warning))
}

/// Returns the template's endpoint if the chosen provider is the template's own. Requests for another provider, and the
/// API keys of that provider, must not be sent to this endpoint.
fn endpoint(template: &Template, provider: Option<&Chosen<String>>) -> Option<String> {
    let is_meant = match (&template.provider, provider) {
        (Some(meant), Some(chosen)) => chosen.value == *meant,
        (Some(_), None) => false,
        (None, Some(chosen)) => chosen.origin != Origin::Explicit,
        (None, None) => true,
    };
    template.endpoint.clone().filter(|_| is_meant)
}

fn effort(
    request: &SpawnRequest,
    persona: Option<&Persona>,
    template: Option<&Template>,
    model: Option<&Chosen<String>>,
    models: &ModelCatalogue,
) -> Result<Option<Chosen<Effort>>, RegistryError> {
    let chosen = precedence(
        request.effort.as_deref(),
        persona.and_then(|persona| persona.effort).map(Effort::as_str),
        template.and_then(|template| template.effort).map(Effort::as_str),
        request.inherited.effort.as_deref(),
    );
    let Some(Chosen { value, origin }) = chosen else {
        return Ok(None);
    };
    let value = models.check_effort(value, model.map(|model| model.value.as_str()))?;
    Ok(Some(Chosen { value, origin }))
}

fn sandbox(template: Option<&Template>, inherited: Option<Sandbox>) -> Chosen<Sandbox> {
    let (parent, origin) = match inherited {
        Some(sandbox) => (sandbox, Origin::Inherited),
        None => (Sandbox::DEFAULT, Origin::Default),
    };
    let read_only = template.is_some_and(|template| template.read_only);
    Chosen {
        value: parent.under_template(read_only),
        origin: if read_only { Origin::Role } else { origin },
    }
}

/// A role's text, as instructions and as the role block of the prompt.
struct Texts<'a> {
    instructions: &'a str,
    mode: InstructionsMode,
    /// The text of the role block.
    block: Cow<'a, str>,
}

impl<'a> Texts<'a> {
    fn of(role: Option<Role<'a>>, inherited: &'a Inherited) -> Self {
        let Some(role) = role else {
            return Self {
                instructions: &inherited.instructions,
                mode: InstructionsMode::Blocks,
                block: Cow::Borrowed(&inherited.instructions),
            };
        };
        let text = role.selected.prompt();
        let mode = InstructionsMode::of(role.entry.file.dialect);
        let instructions = match mode {
            InstructionsMode::Replace | InstructionsMode::Append => text,
            InstructionsMode::Blocks => "",
        };
        Self {
            instructions,
            mode,
            block: match mode {
                InstructionsMode::Append => appended(&inherited.instructions, text),
                InstructionsMode::Replace | InstructionsMode::Blocks => Cow::Borrowed(text),
            },
        }
    }
}

/// Appends a text to the inherited text, separated by a blank line.
fn appended<'a>(inherited: &str, text: &'a str) -> Cow<'a, str> {
    let inherited = inherited.trim();
    if inherited.is_empty() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{inherited}\n\n{}", text.trim()))
    }
}

fn warnings(entry: &Entry) -> Vec<String> {
    entry
        .file
        .parsed
        .findings
        .iter()
        .map(|finding| match finding.line {
            Some(line) => format!("{}:{line}: {}", entry.file.path, finding.message),
            None => format!("{}: {}", entry.file.path, finding.message),
        })
        .collect()
}

/// Returns warnings about tools that threads of a graph template do not have. Embedded templates declare what they
/// need, so they cause no warning.
fn locked(entry: &Entry, template: &Template) -> Vec<String> {
    if entry.file.dialect != Dialect::Graph || entry.file.scope == Scope::System {
        return Vec::new();
    }
    locked_tools(&template.capabilities)
        .map(|group| {
            format!(
                "{}: the template declares no capability {}, so its threads do not have {}; add it to capabilities in the \
                 [template] preamble if they need them",
                entry.file.path,
                group.capabilities.join(" or "),
                group.tools.join(", "),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        catalog::tests::{agent_files_under, catalog},
        rules::Rules,
    };

    const ROLE: &str = "---
description: Reviews.
model: role-model
reasoning_effort: medium
read_only: true
agent_names:
  - {name: strict, description: d, model: persona-model}
allow_list: [wait]
deny_list: [apply_patch]
grant_list: [exec_command]
spawn_list: [worker]
---
Be fair.
<!-- agent_name: strict -->
Be strict.
";

    fn request(agent_type: &str) -> SpawnRequest {
        SpawnRequest {
            wanted: match agent_type {
                "default" => None,
                name => Some(TemplateName::AgentType(AgentType::parse(name).unwrap())),
            },
            agent_name: None,
            model: None,
            effort: None,
            provider: None,
            inherited: Inherited {
                model: Some("parent-model".to_owned()),
                effort: Some("low".to_owned()),
                provider: Some("parent-provider".to_owned()),
                sandbox: Some(Sandbox::FullAccess),
                instructions: "Parent's words.".to_owned(),
            },
            mode: Mode::Planning,
            expected_digest: None,
        }
    }

    fn run_with(request: &SpawnRequest, models: &str) -> Result<Resolved, RegistryError> {
        let catalog = catalog(&[
            ("reviewer", ROLE),
            ("plain", "---\ndescription: d\n---\nPlain."),
            ("broken", "---\nread_only:\n---\nx"),
            ("silent", "---\nmodel: m\n---\nNo description."),
        ]);
        run_in(&catalog, request, models)
    }

    fn run_in(catalog: &Catalog, request: &SpawnRequest, models: &str) -> Result<Resolved, RegistryError> {
        let texts = SharedTexts {
            system: "System.".into(),
            planning: "Plan.".into(),
            implementation: "Build.".into(),
        };
        resolve(
            request,
            ResolveContext {
                catalog,
                models: &ModelCatalogue::parse(models).unwrap(),
                texts: &texts,
                footer: "Footer.",
            },
        )
    }

    fn run(request: &SpawnRequest) -> Result<Resolved, RegistryError> {
        run_with(request, "")
    }

    fn chosen<T: Clone>(chosen: Option<&Chosen<T>>) -> (T, Origin) {
        let chosen = chosen.unwrap();
        (chosen.value.clone(), chosen.origin)
    }

    #[test]
    fn resolved_spawn_has_lists_of_role() {
        let resolved = run(&request("reviewer")).unwrap();
        assert_eq!(resolved.grant_list, ["exec_command"]);
        assert_eq!(resolved.spawn_list, ["worker"]);
    }

    #[test]
    fn explicit_beats_persona_beats_role_beats_inherited() {
        let mut request = request("reviewer");
        request.agent_name = Some(PersonaName::normalise("strict"));
        let resolved = run(&request).unwrap();
        assert_eq!(
            chosen(resolved.model.as_ref()),
            ("persona-model".to_owned(), Origin::Persona)
        );
        // The persona sets no effort; model and effort are resolved independently.
        assert_eq!(chosen(resolved.effort.as_ref()), (Effort::Medium, Origin::Role));
        assert_eq!(
            chosen(resolved.provider.as_ref()),
            ("parent-provider".to_owned(), Origin::Inherited)
        );

        request.model = Some("mine".to_owned());
        let effort = run(&request).unwrap().effort;
        assert_eq!(chosen(effort.as_ref()), (Effort::Medium, Origin::Role));
        request.effort = Some(" HIGH ".to_owned());
        request.provider = Some("other".to_owned());
        let resolved = run(&request).unwrap();
        assert_eq!(chosen(resolved.model.as_ref()), ("mine".to_owned(), Origin::Explicit));
        assert_eq!(chosen(resolved.effort.as_ref()), (Effort::High, Origin::Explicit));
        assert_eq!(
            chosen(resolved.provider.as_ref()),
            ("other".to_owned(), Origin::Explicit)
        );

        let resolved = run(&self::request("plain")).unwrap();
        assert_eq!(
            chosen(resolved.model.as_ref()),
            ("parent-model".to_owned(), Origin::Inherited)
        );
        assert_eq!(chosen(resolved.effort.as_ref()), (Effort::Low, Origin::Inherited));
    }

    #[test]
    fn default_inherits_everything() {
        let resolved = run(&request("default")).unwrap();
        assert_eq!(resolved.agent_type, "default");
        assert_eq!(resolved.instructions, "Parent's words.");
        assert_eq!(resolved.blocks[1].text, "Parent's words.");
        assert_eq!(resolved.source, None);
        assert_eq!(resolved.tools, None);
        assert_eq!(
            resolved.sandbox,
            Chosen {
                value: Sandbox::FullAccess,
                origin: Origin::Inherited
            }
        );
    }

    #[test]
    fn unset_values_keep_runner_defaults() {
        let mut request = request("plain");
        request.inherited = Inherited::default();
        let resolved = run(&request).unwrap();
        assert_eq!((resolved.model, resolved.effort, resolved.provider), (None, None, None));
        assert_eq!(resolved.sandbox.origin, Origin::Default);
    }

    #[test]
    fn expected_digest_never_matches_default() {
        let mut request = request("default");
        request.expected_digest = Some(Digest::of(b"x"));
        let error = run(&request).unwrap_err().to_string();
        assert!(
            error.starts_with("template \"default\" has digest (none), not the expected "),
            "{error}"
        );
    }

    #[test]
    fn empty_effort_is_not_supported() {
        let mut request = request("plain");
        request.effort = Some(String::new());
        assert!(matches!(run(&request), Err(RegistryError::UnsupportedEffort { .. })));
    }

    #[test]
    fn listing_requirements_do_not_block_spawn() {
        let resolved = run(&request("silent")).unwrap();
        assert_eq!(resolved.warnings.len(), 1);
        assert!(resolved.warnings[0].ends_with("missing required frontmatter description"));
    }

    #[test]
    fn catalogue_resolves_aliases_and_checks_result() {
        let models = "
models: [{name: m1, provider: p1, efforts: [low]}, {name: parent-model, provider: parent-provider}]
aliases: {role-model: m1}
";
        let mut reviewer = request("reviewer");
        assert_eq!(
            run_with(&reviewer, models).unwrap_err().to_string(),
            "reasoning_effort \"medium\" is not supported for model \"m1\". Supported efforts: none, low"
        );
        reviewer.effort = Some("low".to_owned());
        let resolved = run_with(&reviewer, models).unwrap();
        assert_eq!(chosen(resolved.model.as_ref()), ("m1".to_owned(), Origin::Alias));
        assert_eq!(chosen(resolved.provider.as_ref()), ("p1".to_owned(), Origin::Alias));

        reviewer.model = Some("m9".to_owned());
        assert_eq!(
            run_with(&reviewer, models).unwrap_err().to_string(),
            "unknown model \"m9\" for spawn_agent. Available models: m1, parent-model"
        );
        reviewer.model = None;
        reviewer.provider = Some("p9".to_owned());
        assert_eq!(
            run_with(&reviewer, models).unwrap_err().to_string(),
            "unknown provider \"p9\". Available providers: p1, parent-provider"
        );
    }

    /// Resolves a subagent with this frontmatter.
    fn run_subagent(yaml: &str, models: &str, change: impl Fn(&mut SpawnRequest)) -> Result<Resolved, RegistryError> {
        let text = format!("---\nname: abc\n{yaml}---\n\nMore words.\n");
        let rules = Rules::new(&["https://e".to_owned()]);
        let catalog = agent_files_under(&rules, &[("/p/.codex/agents/abc.md", &text)]);
        let mut request = request("abc");
        change(&mut request);
        run_in(&catalog, &request, models)
    }

    #[test]
    fn subagent_instructions_follow_parent_instructions() {
        let resolved = run_subagent("", "", |_| {}).unwrap();
        assert_eq!(resolved.instructions_mode, InstructionsMode::Append);
        assert_eq!(resolved.instructions, "\nMore words.\n");
        assert_eq!(resolved.blocks[1].text, "Parent's words.\n\nMore words.");
        let alone = run_subagent("", "", |request| request.inherited.instructions.clear()).unwrap();
        assert_eq!(alone.blocks[1].text, "More words.");
    }

    #[test]
    fn well_known_provider_needs_no_configuration() {
        for provider in ["openai", "anthropic", "google", "openrouter", "ollama", "azure"] {
            let yaml = format!(
                "model_config:\n  provider: {provider}\n  model: gpt-4o\n  parameters:\n    temperature: 0.1\n"
            );
            let resolved = run_subagent(&yaml, "", |_| {}).unwrap();
            assert_eq!(chosen(resolved.provider.as_ref()), (provider.to_owned(), Origin::Role));
            assert_eq!(resolved.warnings, Vec::<String>::new());
        }
        let resolved = run_subagent("model_config: {provider: unlisted}\n", "", |_| {}).unwrap();
        assert_eq!(
            chosen(resolved.provider.as_ref()),
            ("parent-provider".to_owned(), Origin::Inherited)
        );
        assert_eq!(resolved.warnings.len(), 1);
        // If providers are configured, no others are accepted.
        let error = run_subagent(
            "model_config: {provider: openai}\n",
            "models: [{name: parent-model, provider: p1}]",
            |_| {},
        );
        assert!(matches!(error, Err(RegistryError::UnknownProvider { .. })));
    }

    #[test]
    fn subagent_provider_applies_if_providers_are_configured() {
        let yaml = "model_config: {provider: p1, model: m1, endpoint: 'https://e/', parameters: {t: 0.5}}\n";
        let models = "models: [{name: m1, provider: p2}, {name: m2, provider: p1}, {name: m3, provider: p3}]";
        let resolved = run_subagent(yaml, models, |_| {}).unwrap();
        assert_eq!(
            chosen(resolved.provider.as_ref()),
            ("p1".to_owned(), Origin::Role),
            "the template's provider takes precedence over the catalogue's"
        );
        assert_eq!(resolved.endpoint.as_deref(), Some("https://e/"));
        assert_eq!(resolved.parameters["t"], "0.5");
        assert_eq!(resolved.warnings, Vec::<String>::new());

        let explicit = |request: &mut SpawnRequest| request.provider = Some("p3".to_owned());
        let resolved = run_subagent(yaml, models, explicit).unwrap();
        assert_eq!(chosen(resolved.provider.as_ref()), ("p3".to_owned(), Origin::Explicit));
        assert_eq!(resolved.endpoint, None, "the endpoint belongs to another provider");

        let other_model = |request: &mut SpawnRequest| request.model = Some("m3".to_owned());
        let resolved = run_subagent(yaml, models, other_model).unwrap();
        assert_eq!(chosen(resolved.provider.as_ref()), ("p3".to_owned(), Origin::Explicit));

        let unknown = run_subagent(&yaml.replace("p1", "p9"), models, |_| {}).unwrap_err();
        assert!(
            unknown.to_string().starts_with("unknown provider \"p9\". "),
            "{unknown}"
        );

        let resolved = run_subagent(yaml, "", |_| {}).unwrap();
        assert_eq!(
            chosen(resolved.provider.as_ref()),
            ("parent-provider".to_owned(), Origin::Inherited)
        );
        assert_eq!(resolved.endpoint, None);
        assert!(resolved.warnings[0].starts_with("provider \"p1\" of the template is unknown, "));
    }

    #[test]
    fn digest_identifies_resolution() {
        let plain = run(&request("plain")).unwrap();
        assert_eq!(plain.digest(), run(&request("plain")).unwrap().digest());
        let mut other = plain.clone();
        other.sandbox.value = Sandbox::WorkspaceWrite;
        assert_ne!(plain.digest(), other.digest());
        let mut warned = plain.clone();
        warned.warnings.push("w".to_owned());
        assert_eq!(plain.digest(), warned.digest());
    }
}
