//! The flags that every program with a registry in it has alike.

use clap::Args;

use crate::ProjectTemplates;

/// What templates may say, and what is made of them.
#[derive(Clone, Debug, Default, Args)]
pub struct TemplateOptions {
    /// Leave the templates and footers of projects alone.
    #[arg(long, env = "TROUPE_NO_PROJECT_TEMPLATES")]
    pub no_project_templates: bool,
    /// An endpoint that a project's template may choose; repeatable.
    #[arg(
        long = "allowed-endpoint",
        env = "TROUPE_ALLOWED_ENDPOINTS",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub allowed_endpoints: Vec<String>,
    /// Let RouteAgent route texts that name no agent, by names and keywords.
    #[arg(long, env = "TROUPE_AUTO_ROUTE")]
    pub auto_route: bool,
}

impl TemplateOptions {
    /// Whether templates and footers of projects are used.
    #[must_use]
    pub const fn project_templates(&self) -> ProjectTemplates {
        if self.no_project_templates {
            ProjectTemplates::Off
        } else {
            ProjectTemplates::Trusted
        }
    }
}
