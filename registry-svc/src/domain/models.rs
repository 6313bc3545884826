//! The model catalogue: models, their aliases, and their supported efforts. The catalogue is optional: an empty
//! catalogue accepts every model.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::domain::{effort::Effort, error::RegistryError, yaml};

/// One model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The model's name at its provider.
    pub name: String,
    /// The provider of the model.
    #[serde(default)]
    pub provider: Option<String>,
    /// The supported efforts. Empty: all. `none` is always supported.
    #[serde(default)]
    pub efforts: Vec<Effort>,
}

/// Providers that a template may name even if the configured catalogue names no provider.
const WELL_KNOWN: &[&str] = &["anthropic", "azure", "google", "ollama", "openai", "openrouter"];

/// Returns whether a template may name the provider even if the configured catalogue names no provider.
#[must_use]
pub fn is_well_known(provider: &str) -> bool {
    WELL_KNOWN.contains(&provider)
}

/// The models that spawns may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a mapping with models and aliases")]
pub struct ModelCatalogue {
    models: Vec<Model>,
    aliases: BTreeMap<String, String>,
}

impl ModelCatalogue {
    /// Parses a catalogue.
    ///
    /// # Errors
    ///
    /// A sentence that describes the defect of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (catalogue, _) = yaml::parse::<Self>(text).map_err(|error| error.message)?;
        let dangling = catalogue
            .aliases
            .iter()
            .find(|(_, target)| catalogue.model(target).is_none());
        match dangling {
            Some((alias, target)) if !catalogue.models.is_empty() => {
                Err(format!("alias \"{alias}\" names the unknown model \"{target}\""))
            }
            Some(_) | None => Ok(catalogue),
        }
    }

    /// Returns the model that an alias stands for, or `None` if the name is not an alias.
    #[must_use]
    pub fn alias(&self, name: &str) -> Option<&str> {
        self.aliases.get(name).map(String::as_str)
    }

    /// Returns the provider of a model, if the catalogue declares it.
    #[must_use]
    pub fn provider(&self, model: &str) -> Option<&str> {
        self.model(model)?.provider.as_deref()
    }

    /// Checks that a model exists.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnknownModel`].
    pub fn check_model(&self, model: &str) -> Result<(), RegistryError> {
        if self.models.is_empty() || self.model(model).is_some() {
            return Ok(());
        }
        Err(RegistryError::UnknownModel {
            model: model.to_owned(),
            available: self.models.iter().map(|entry| entry.name.clone()).collect(),
        })
    }

    /// Checks that a provider exists. If no model names a provider, every provider is accepted.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnknownProvider`].
    pub fn check_provider(&self, provider: &str) -> Result<(), RegistryError> {
        let mut available: Vec<String> = self.models.iter().filter_map(|entry| entry.provider.clone()).collect();
        available.sort();
        available.dedup();
        if available.is_empty() || available.iter().any(|name| name == provider) {
            return Ok(());
        }
        Err(RegistryError::UnknownProvider {
            provider: provider.to_owned(),
            available,
        })
    }

    /// Returns whether providers are configured: whether any model of the catalogue names a provider.
    #[must_use]
    pub fn has_providers(&self) -> bool {
        self.models.iter().any(|entry| entry.provider.is_some())
    }

    /// Parses an effort and checks that the model supports it. `model` is `None` if the runner's default applies.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnsupportedEffort`] if the effort is unknown or the model does not support it.
    pub fn check_effort(&self, effort: &str, model: Option<&str>) -> Result<Effort, RegistryError> {
        let supported = self.efforts(model);
        match Effort::parse(effort) {
            Some(known) if supported.contains(&known) => Ok(known),
            Some(_) | None => Err(RegistryError::UnsupportedEffort {
                effort: effort.trim().to_ascii_lowercase(),
                model: model.unwrap_or("<default>").to_owned(),
                supported: supported.iter().map(Effort::to_string).collect(),
            }),
        }
    }

    fn efforts(&self, model: Option<&str>) -> Vec<Effort> {
        let stated = model
            .and_then(|name| self.model(name))
            .map(|entry| entry.efforts.as_slice());
        match stated {
            Some(efforts) if !efforts.is_empty() => {
                let supports = |effort: &Effort| *effort == Effort::None || efforts.contains(effort);
                Effort::ALL.iter().copied().filter(supports).collect()
            }
            Some(_) | None => Effort::ALL.to_vec(),
        }
    }

    fn model(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
models:
  - {name: m1, provider: p1, efforts: [low, medium]}
  - {name: m2, provider: p2}
aliases: {best: m1}
";

    #[test]
    fn unknown_models_and_providers_are_rejected() {
        let catalogue = ModelCatalogue::parse(TEXT).unwrap();
        assert_eq!(catalogue.alias("best"), Some("m1"));
        assert_eq!(catalogue.alias("m1"), None);
        assert_eq!(catalogue.provider("m2"), Some("p2"));
        assert!(catalogue.has_providers());
        assert!(catalogue.check_model("m1").is_ok());
        assert_eq!(
            catalogue.check_model("m").unwrap_err().to_string(),
            "unknown model \"m\" for spawn_agent. Available models: m1, m2"
        );
        assert_eq!(
            catalogue.check_provider("p").unwrap_err().to_string(),
            "unknown provider \"p\". Available providers: p1, p2"
        );
    }

    #[test]
    fn supported_efforts_include_none() {
        let catalogue = ModelCatalogue::parse(TEXT).unwrap();
        assert_eq!(catalogue.check_effort(" Low ", Some("m1")).unwrap(), Effort::Low);
        assert_eq!(catalogue.check_effort("none", Some("m1")).unwrap(), Effort::None);
        assert_eq!(catalogue.check_effort("xhigh", Some("m2")).unwrap(), Effort::Xhigh);
        for effort in ["high", "extreme", ""] {
            assert_eq!(
                catalogue.check_effort(effort, Some("m1")).unwrap_err().to_string(),
                format!(
                    "reasoning_effort \"{effort}\" is not supported for model \"m1\". Supported efforts: none, low, \
                     medium"
                )
            );
        }
    }

    #[test]
    fn empty_catalogue_rejects_only_invalid_efforts() {
        let catalogue = ModelCatalogue::default();
        assert!(catalogue.check_model("anything").is_ok());
        assert!(catalogue.check_provider("anyone").is_ok());
        assert_eq!(
            catalogue.check_effort("e", Some("m")).unwrap_err().to_string(),
            "reasoning_effort \"e\" is not supported for model \"m\". Supported efforts: none, minimal, low, medium, \
             high, xhigh"
        );
    }

    #[test]
    fn catalogue_errors_are_reported() {
        for (text, part) in [
            ("models: [{nam: x}]", "unknown field `nam`"),
            (
                "models: [{name: a}]\naliases: {b: c}",
                "alias \"b\" names the unknown model \"c\"",
            ),
            ("model: []", "unknown field `model`"),
        ] {
            let error = ModelCatalogue::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
