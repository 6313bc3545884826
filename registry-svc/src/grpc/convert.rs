//! Conversion of domain values to API messages.

use tool_policy::MatchMode;
use troupe_proto::{common::v1 as common, registry::v1 as registry};

use crate::domain::{
    catalog::Entry,
    diagnostic::{Diagnostic, Severity},
    dialect::Dialect,
    digest::Digest,
    effort::Effort,
    list::Listed,
    prompt::{Block, BlockKind, Mode},
    resolved::{Chosen, InstructionsMode, Origin, Resolved},
    sandbox::Sandbox,
    template::{EdgeManagement, Persona, Scope, TemplateFile},
};

/// Returns an agent for a listing.
pub(super) fn agent(listed: &Listed<'_>, expanded: bool) -> registry::Agent {
    let template = listed.template;
    let brief = registry::Agent {
        agent_type: listed.entry.file.name.to_string(),
        description: template.description.clone().unwrap_or_default(),
        allow_list: template.tools.allow.clone(),
        deny_list: template.tools.deny.clone(),
        agent_names: template.personas.iter().map(|each| persona(each, expanded)).collect(),
        ..registry::Agent::default()
    };
    if !expanded {
        return brief;
    }
    registry::Agent {
        model: template.model.clone(),
        reasoning_effort: template.effort.map(|effort| effort.to_string()),
        default_prompt: Some(template.default_prompt.clone().unwrap_or_default()),
        read_only: Some(template.read_only),
        keywords: template.keywords.clone(),
        capabilities: template.capabilities.clone(),
        constraints: template.constraints.clone(),
        version: template.version.clone(),
        r#match: match_mode(template.tools.mode).into(),
        source: Some(source(&listed.entry.file, listed.entry.shadowed.clone())),
        spawn_list: template.spawn_list.clone(),
        grant_list: template.grant_list.clone(),
        ..brief
    }
}

fn persona(persona: &Persona, expanded: bool) -> registry::Persona {
    let brief = registry::Persona {
        name: persona.name.to_string(),
        description: persona.description.clone().unwrap_or_default(),
        ..registry::Persona::default()
    };
    if !expanded {
        return brief;
    }
    registry::Persona {
        model: persona.model.clone(),
        reasoning_effort: persona.effort.map(|effort| effort.to_string()),
        prompt: Some(persona.prompt.clone()),
        ..brief
    }
}

/// Returns a diagnostic.
pub(super) fn diagnostic(diagnostic: &Diagnostic) -> registry::Diagnostic {
    let finding = &diagnostic.finding;
    let severity = match finding.severity {
        Severity::Error => registry::Severity::Error,
        Severity::Warning => registry::Severity::Warning,
    };
    registry::Diagnostic {
        path: diagnostic.path.clone(),
        line: finding.line.map_or(0, |line| u32::try_from(line).unwrap_or(u32::MAX)),
        dialect: diagnostic.dialect.map_or(common::Dialect::Unspecified, dialect).into(),
        severity: severity.into(),
        message: finding.message.clone(),
        suggestion: finding.suggestion.clone().unwrap_or_default(),
    }
}

/// Returns the resolved configuration of a spawn.
pub(super) fn resolved(resolved: Resolved) -> common::ResolvedSpawn {
    let origins = resolved.origins();
    let origins = origins
        .into_iter()
        .map(|(field, by)| (field.to_owned(), i32::from(origin(by))));
    common::ResolvedSpawn {
        origins: origins.collect(),
        resolved_digest: resolved.digest().to_string(),
        agent_type: resolved.agent_type,
        agent_name: resolved.agent_name.unwrap_or_default(),
        instructions: resolved.instructions,
        instructions_mode: instructions_mode(resolved.instructions_mode).into(),
        blocks: resolved.blocks.into_iter().map(block).collect(),
        mode_blocks: resolved.mode_blocks.into_iter().map(mode_block).collect(),
        model: value(resolved.model),
        reasoning_effort: resolved
            .effort
            .map_or("", |effort| Effort::as_str(effort.value))
            .to_owned(),
        provider: value(resolved.provider),
        endpoint: resolved.endpoint.unwrap_or_default(),
        parameters: resolved.parameters,
        sandbox: sandbox(resolved.sandbox.value).into(),
        tool_policy: Some(common::ToolPolicy {
            layers: resolved.tools.into_iter().map(layer).collect(),
        }),
        grant_list: resolved.grant_list,
        spawn_list: resolved.spawn_list,
        edge_management: edge_management(resolved.edge_management).into(),
        source: resolved.source.map(|Entry { file, shadowed }| source(&file, shadowed)),
        warnings: resolved.warnings,
        agent_description: resolved.description.unwrap_or_default(),
        capabilities: resolved.capabilities,
    }
}

fn value(chosen: Option<Chosen<String>>) -> String {
    chosen.map(|chosen| chosen.value).unwrap_or_default()
}

fn layer(layer: tool_policy::Layer) -> common::ToolPolicyLayer {
    common::ToolPolicyLayer {
        origin: layer.origin,
        r#match: match_mode(layer.mode).into(),
        allow_list: layer.allow,
        deny_list: layer.deny,
    }
}

fn block(block: Block) -> common::PromptBlock {
    common::PromptBlock {
        kind: block_kind(block.kind).into(),
        text: block.text,
        sha256: block.sha256.to_string(),
    }
}

fn mode_block((of_mode, text): (Mode, Block)) -> common::ModeBlock {
    common::ModeBlock {
        mode: mode(of_mode).into(),
        block: Some(block(text)),
    }
}

fn source(file: &TemplateFile, shadowed: Vec<String>) -> common::TemplateSource {
    common::TemplateSource {
        scope: scope(file.scope).into(),
        dialect: dialect(file.dialect).into(),
        path: file.path.clone(),
        digest: file.digest.as_ref().map(Digest::to_string).unwrap_or_default(),
        shadowed,
    }
}

const fn edge_management(edges: EdgeManagement) -> common::EdgeManagement {
    match edges {
        EdgeManagement::None => common::EdgeManagement::None,
        EdgeManagement::Own => common::EdgeManagement::Self_,
        EdgeManagement::All => common::EdgeManagement::All,
    }
}

/// Defines functions that convert an enum to the API's enum, whose variants have the same names.
macro_rules! convert_enums {
    ($($function:ident: $domain:ident => $api:ident { $($variant:ident),+ })+) => {
        $(pub(super) const fn $function(value: $domain) -> common::$api {
            match value {
                $($domain::$variant => common::$api::$variant,)+
            }
        })+
    };
}

convert_enums! {
    block_kind: BlockKind => BlockKind { System, Role, Mode }
    dialect: Dialect => Dialect { Role, Profile, Subagent, Graph, Foreign }
    instructions_mode: InstructionsMode => InstructionsMode { Replace, Append, Blocks }
    match_mode: MatchMode => MatchMode { Glob, GlobIgnoreCase, Literal }
    mode: Mode => Mode { Planning, Implementation }
    origin: Origin => ValueOrigin { Explicit, Persona, Role, Inherited, Alias, Default }
    sandbox: Sandbox => Sandbox { ReadOnly, WorkspaceWrite, FullAccess }
    scope: Scope => Scope { Project, User, System }
}
