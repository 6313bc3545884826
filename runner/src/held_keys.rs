//! Provider keys that the runner holds in place of a program.
//!
//! OpenCode and Gemini CLI pass their environment to the commands that they run, and Claude Code does so with
//! `ANTHROPIC_AUTH_TOKEN`. Where the address of the provider is known, the program gets a placeholder and the address of a
//! local proxy, which has the key. Outside of that proxy the placeholder is worthless.

use serde_json::Value;

use crate::{
    agent::Secret,
    env::Environment,
    provider_proxy::{self, ProviderProxy, Upstream},
};

/// A key in a variable, and the variable with the provider's address.
struct Variable {
    key: &'static str,
    address: &'static str,
    default: &'static str,
}

/// Those of each kind of program.
fn variables(kind: &str) -> &'static [Variable] {
    match kind {
        "claude" => &[Variable {
            key: "ANTHROPIC_AUTH_TOKEN",
            address: "ANTHROPIC_BASE_URL",
            default: "https://api.anthropic.com",
        }],
        "gemini" => &[Variable {
            key: "GEMINI_API_KEY",
            address: "GOOGLE_GEMINI_BASE_URL",
            default: "https://generativelanguage.googleapis.com",
        }],
        _ => &[],
    }
}

/// The providers of OpenCode with a key in a variable, and their addresses.
const OPENCODE: [(&str, &str, &str); 3] = [
    ("ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com/v1"),
    ("OPENAI_API_KEY", "openai", "https://api.openai.com/v1"),
    ("OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1"),
];
/// The variable with the settings of OpenCode.
const OPENCODE_SETTINGS: &str = "OPENCODE_CONFIG_CONTENT";

/// The proxies of one program. Dropping them ends its access to the provider.
#[derive(Debug, Default)]
pub(crate) struct HeldKeys {
    proxies: Vec<ProviderProxy>,
}

impl HeldKeys {
    /// Takes the keys out of the environment of a program of that kind. Returns the gap as well: the variables that still
    /// hold a key.
    pub(crate) async fn take(kind: &str, environment: &mut Environment) -> (Self, Option<String>) {
        let mut held = Self::default();
        if provider_proxy::has_own_route(environment) {
            let gap = held.gap(environment);
            return (held, gap);
        }
        for variable in variables(kind) {
            let Some(key) = value(environment, variable.key) else {
                continue;
            };
            let address = value(environment, variable.address).unwrap_or_else(|| variable.default.to_owned());
            if let Some((url, placeholder)) = held.hold(&address, key).await {
                replace(environment, variable.key, placeholder);
                replace(environment, variable.address, url);
            }
        }
        if let Some(text) = value(environment, OPENCODE_SETTINGS)
            && let Ok(mut settings) = serde_json::from_str::<Value>(&text)
        {
            held.take_settings(&mut settings, environment).await;
            replace(environment, OPENCODE_SETTINGS, settings.to_string());
        }
        let gap = held.gap(environment);
        (held, gap)
    }

    async fn take_settings(&mut self, settings: &mut Value, environment: &mut Environment) {
        for (variable, provider, default) in OPENCODE {
            let Some(key) = value(environment, variable) else {
                continue;
            };
            let address = settings["provider"][provider]["options"]["baseURL"]
                .as_str()
                .unwrap_or(default)
                .to_owned();
            if let Some((url, placeholder)) = self.hold(&address, key).await {
                replace(environment, variable, placeholder);
                // A provider without settings gets some.
                for path in [
                    "/provider",
                    &format!("/provider/{provider}"),
                    &format!("/provider/{provider}/options"),
                ] {
                    create_object(settings, path);
                }
                settings["provider"][provider]["options"]["baseURL"] = url.into();
            }
        }
        let providers = settings.get_mut("provider").and_then(Value::as_object_mut);
        for provider in providers.into_iter().flat_map(serde_json::Map::values_mut) {
            let text = |name: &str| provider["options"][name].as_str().map(str::to_owned);
            let (Some(address), Some(key)) = (text("baseURL"), text("apiKey")) else {
                continue;
            };
            // `{env:NAME}` and `{file:PATH}` are not keys.
            if key.starts_with('{') || key.is_empty() {
                continue;
            }
            if let Some((url, placeholder)) = self.hold(&address, key).await {
                provider["options"]["baseURL"] = url.into();
                provider["options"]["apiKey"] = placeholder.into();
            }
        }
    }

    /// Starts a proxy for a key. Returns its address and the placeholder; `None`: the key stays where it is.
    async fn hold(&mut self, address: &str, key: String) -> Option<(String, String)> {
        let upstream = Upstream::new(address, Some(Secret::new(key)))
            .inspect_err(|error| tracing::warn!(error, "a provider's key is not held by a proxy"))
            .ok()?;
        let proxy = ProviderProxy::start(upstream)
            .await
            .inspect_err(|error| tracing::warn!(%error, "a provider's key is not held by a proxy"))
            .ok()?;
        let given = (proxy.base_url().to_owned(), proxy.placeholder().expose().to_owned());
        self.proxies.push(proxy);
        Some(given)
    }

    /// Hands the proxy at that address over to an owner that also observes it. The owner must live as long as the program.
    pub(crate) fn release(&mut self, base_url: &str) -> Option<ProviderProxy> {
        let place = self.proxies.iter().position(|proxy| proxy.base_url() == base_url)?;
        Some(self.proxies.swap_remove(place))
    }

    fn gap(&self, environment: &Environment) -> Option<String> {
        let is_held = |value: &str| {
            let mut placeholders = self.proxies.iter().map(|proxy| proxy.placeholder().expose());
            value.is_empty() || placeholders.any(|placeholder| placeholder == value)
        };
        let mut shown: Vec<&str> = environment
            .iter()
            .filter(|(name, _)| name.ends_with("_KEY") || name.ends_with("_TOKEN"))
            .filter(|(_, value)| !is_held(&value.to_string_lossy()))
            .map(|(name, _)| name.as_str())
            .collect();
        shown.sort_unstable();
        shown.dedup();
        (!shown.is_empty()).then(|| format!("its commands can read {} in their environment", shown.join(", ")))
    }
}

/// Returns the effective value: the last one.
fn value(environment: &Environment, name: &str) -> Option<String> {
    let (_, value) = environment.iter().rfind(|(known, _)| known == name)?;
    Some(value.to_str()?.to_owned()).filter(|value| !value.is_empty())
}

fn replace(environment: &mut Environment, name: &str, value: String) {
    environment.retain(|(known, _)| known != name);
    environment.push((name.to_owned(), value.into()));
}

fn create_object(settings: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(fields)) = settings.pointer_mut(parent) {
        let field = fields
            .entry(name)
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if !field.is_object() {
            *field = Value::Object(serde_json::Map::new());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn environment(values: &[(&str, &str)]) -> Environment {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.into());
        values.iter().map(owned).collect()
    }

    #[tokio::test]
    async fn keys_are_replaced_by_placeholders() {
        let settings =
            json!({"provider": {"p": {"options": {"baseURL": "http://p.example/v1", "apiKey": "secret-1"}}}});
        let mut given = environment(&[
            ("OPENCODE_CONFIG_CONTENT", &settings.to_string()),
            ("OPENAI_API_KEY", "secret-2"),
        ]);
        let (held, gap) = HeldKeys::take("opencode", &mut given).await;
        assert_eq!((held.proxies.len(), gap), (2, None));
        assert!(!format!("{given:?}").contains("secret-"), "{given:?}");
        let settings: Value = serde_json::from_str(&value(&given, OPENCODE_SETTINGS).unwrap()).unwrap();
        for provider in ["p", "openai"] {
            let url = settings["provider"][provider]["options"]["baseURL"].as_str().unwrap();
            assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/v1"), "{url}");
        }

        let mut given = environment(&[("GEMINI_API_KEY", "secret-3"), ("GOOGLE_API_KEY", "secret-4")]);
        let (_held, gap) = HeldKeys::take("gemini", &mut given).await;
        assert_eq!(
            gap.unwrap(),
            "its commands can read GOOGLE_API_KEY in their environment"
        );
        assert!(!format!("{given:?}").contains("secret-3"));
        assert!(
            value(&given, "GOOGLE_GEMINI_BASE_URL")
                .unwrap()
                .starts_with("http://127.0.0.1:")
        );
    }
}
