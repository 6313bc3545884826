//! Findings as SARIF 2.1.0, the format that code scanners read.

use std::path::Path;

use registry_svc::domain::{
    diagnostic::{Diagnostic, Severity},
    finding_kind::FindingKind,
};
use serde_json::{Value, json};

/// Returns the SARIF log of one run.
pub(super) fn log(findings: &[Diagnostic]) -> Value {
    let rules: Vec<Value> = FindingKind::ALL
        .iter()
        .map(|kind| {
            json!({
                "id": kind.id(),
                "shortDescription": { "text": kind.summary() },
                "helpUri": concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/templates.md"),
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "troupe lint",
                    "version": env!("CARGO_PKG_VERSION"),
                    "informationUri": env!("CARGO_PKG_REPOSITORY"),
                    "rules": rules,
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn result(diagnostic: &Diagnostic) -> Value {
    let finding = &diagnostic.finding;
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let text = match &finding.suggestion {
        Some(suggestion) => format!("{}. {suggestion}", finding.message),
        None => finding.message.clone(),
    };
    json!({
        "ruleId": finding.kind.id(),
        "level": level,
        "message": { "text": text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(Path::new(&diagnostic.path)) },
                // A finding about the whole file gets line 1, because viewers require a line.
                "region": {
                    "startLine": finding.line.unwrap_or(1).max(1),
                    "startColumn": finding.column.unwrap_or(1).max(1),
                },
            },
        }],
    })
}

/// Converts the path to a URI reference. Relative paths stay relative to the directory in which `lint` ran.
fn uri(path: &Path) -> String {
    let mut uri = String::new();
    if path.is_absolute() {
        uri.push_str("file://");
    }
    for byte in path.display().to_string().bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use registry_svc::domain::diagnostic::Finding;

    use super::*;

    #[test]
    fn sarif_log_has_rules_and_locations() {
        let diagnostic = |line, finding: Finding| Diagnostic {
            path: "my dir/a.md".to_owned(),
            dialect: None,
            finding: Finding { line, ..finding },
        };
        let log = log(&[
            diagnostic(
                Some(4),
                Finding::warning(FindingKind::UnknownKey, None, "unknown key").suggest("remove it"),
            ),
            diagnostic(None, Finding::error(FindingKind::InvalidYaml, None, "broken")),
        ]);
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["id"] == "unknown-key"), "{rules:?}");
        let (warning, error) = (&run["results"][0], &run["results"][1]);
        assert_eq!(
            (&warning["ruleId"], &warning["level"]),
            (&json!("unknown-key"), &json!("warning"))
        );
        assert_eq!(warning["message"]["text"], "unknown key. remove it");
        let place = &warning["locations"][0]["physicalLocation"];
        assert_eq!(
            place,
            &json!({"artifactLocation": {"uri": "my%20dir/a.md"}, "region": {"startLine": 4, "startColumn": 1}})
        );
        let region = &error["locations"][0]["physicalLocation"]["region"];
        assert_eq!((&error["level"], &region["startLine"]), (&json!("error"), &json!(1)));
    }

    #[test]
    fn absolute_path_is_file_uri() {
        assert_eq!(uri(Path::new("/a b/ü.md")), "file:///a%20b/%C3%BC.md");
    }
}
