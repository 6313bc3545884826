//! ListDiagnostics.

use troupe_proto::registry::v1::{ListDiagnosticsRequest, ListDiagnosticsResponse};

use crate::{
    Parts,
    domain::{
        diagnostic::Diagnostic,
        digest::{Digest, DigestBuilder},
        error::RegistryError,
    },
    grpc::{
        bounds, convert,
        page::{PAGE_BYTES, Page},
    },
};

pub(super) fn list(parts: &Parts, request: ListDiagnosticsRequest) -> Result<ListDiagnosticsResponse, RegistryError> {
    let cwd = bounds::cwd(request.cwd, &request.workspace_digest)?;
    let view = parts.sources.view(cwd.as_deref())?;
    let diagnostics = view.catalog.diagnostics();
    let page = Page::of(
        identity(cwd.as_deref().unwrap_or_default(), diagnostics),
        request.page_size,
        request.page_token,
        PAGE_BYTES - 4 * 1024,
    )?;
    let (diagnostics, next_page_token) = page.take(
        diagnostics.iter().enumerate(),
        // Findings have no name, so a token counts them; which is why it dies with a change of them.
        |(index, _)| format!("{index:09}"),
        |(_, diagnostic)| convert::diagnostic(diagnostic),
    );
    Ok(ListDiagnosticsResponse {
        diagnostics,
        next_page_token,
    })
}

/// What a token belongs to: the request and these very findings.
fn identity(cwd: &str, diagnostics: &[Diagnostic]) -> Digest {
    let mut digest = DigestBuilder::new();
    digest.text("cwd", cwd);
    for diagnostic in diagnostics {
        digest
            .text(&diagnostic.path, &diagnostic.finding.message)
            .text("line", &format!("{:?}", diagnostic.finding.line));
    }
    digest.finish()
}
