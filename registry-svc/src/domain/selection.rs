//! Selection of the role's text for a spawn.

use crate::domain::{
    error::RegistryError,
    name::{PersonaName, TemplateName},
    template::{Persona, Template},
};

/// The selected text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected<'template> {
    /// The default prompt.
    Default(&'template str),
    /// A persona; its defaults apply too.
    Persona(&'template Persona),
}

impl<'template> Selected<'template> {
    /// Selects the named persona, else the default prompt, else the only persona.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnknownPersona`], [`RegistryError::PersonaRequired`].
    pub fn of(
        template: &'template Template,
        agent_type: &TemplateName,
        agent_name: Option<&PersonaName>,
    ) -> Result<Self, RegistryError> {
        let available = || {
            template
                .personas
                .iter()
                .map(|persona| persona.name.to_string())
                .collect()
        };
        if let Some(wanted) = agent_name {
            let persona = template.personas.iter().find(|persona| persona.name == *wanted);
            return persona.map(Self::Persona).ok_or_else(|| RegistryError::UnknownPersona {
                agent_type: agent_type.clone(),
                agent_name: wanted.clone(),
                available: available(),
            });
        }
        match (&template.default_prompt, template.personas.as_slice()) {
            (Some(prompt), _) => Ok(Self::Default(prompt)),
            (None, [only]) => Ok(Self::Persona(only)),
            (None, _) => Err(RegistryError::PersonaRequired {
                agent_type: agent_type.clone(),
                available: available(),
            }),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn prompt(self) -> &'template str {
        match self {
            Self::Default(prompt) => prompt,
            Self::Persona(persona) => &persona.prompt,
        }
    }

    /// Returns the persona, if one is selected.
    #[must_use]
    pub const fn persona(self) -> Option<&'template Persona> {
        match self {
            Self::Default(_) => None,
            Self::Persona(persona) => Some(persona),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{name::AgentType, role};

    fn select(text: &str, agent_name: Option<&str>) -> Result<String, String> {
        let role = AgentType::parse("t").unwrap();
        let template = role::parse(&role, text).template.unwrap();
        let wanted = agent_name.map(PersonaName::normalise);
        let selected = Selected::of(&template, &TemplateName::AgentType(role), wanted.as_ref());
        selected
            .map(|selected| selected.prompt().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn selection_follows_precedence() {
        let one = "---\nagent_names: [{name: a}]\n---\n";
        let two = "---\nagent_names: [{name: a}, {name: b}]\n---\n";
        let a = "\n<!-- agent_name: a -->\nA";
        let b = "\n<!-- agent_name: b -->\nB";
        let required = Err("agent_type \"t\" requires agent_name selection".to_owned());
        let unknown = Err("unknown agent_name \"p\" for agent_type \"t\"".to_owned());
        let rows: &[(String, Option<&str>, Result<String, String>)] = &[
            (format!("{one}base{a}"), None, Ok("base".to_owned())),
            (format!("{one}base{a}"), Some(" A "), Ok("A".to_owned())),
            (format!("{one}{a}"), None, Ok("A".to_owned())),
            (format!("{two}{a}{b}"), None, required.clone()),
            (format!("{two}{a}{b}"), Some("b"), Ok("B".to_owned())),
            (String::new(), None, required),
            (format!("{one}base{a}"), Some("p"), unknown.clone()),
            ("base".to_owned(), Some("p"), unknown),
        ];
        for (text, wanted, outcome) in rows {
            assert_eq!(select(text, *wanted), *outcome, "{text:?} {wanted:?}");
        }
    }
}
