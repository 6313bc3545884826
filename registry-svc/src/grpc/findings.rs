//! ListDiagnostics.

use troupe_proto::registry::v1::{ListDiagnosticsRequest, ListDiagnosticsResponse};

use crate::{
    domain::{
        diagnostic::Diagnostic,
        digest::{Digest, DigestBuilder},
        error::RegistryError,
    },
    grpc::{
        bounds,
        call::Call,
        convert,
        page::{PAGE_BYTES, Page},
    },
    source::bundle::Workspace,
};

pub(super) fn list(call: &Call, request: ListDiagnosticsRequest) -> Result<ListDiagnosticsResponse, RegistryError> {
    let workspace = bounds::workspace(request.cwd, request.workspace_digest)?;
    let view = call.view(&workspace)?;
    let diagnostics = view.catalog.diagnostics();
    let page = Page::of(
        identity(&workspace, diagnostics),
        request.page_size,
        request.page_token,
        PAGE_BYTES - 4 * 1024,
    )?;
    let (diagnostics, next_page_token) = page.take(
        diagnostics.iter().enumerate(),
        // Findings have no name, so the token holds an index. The token becomes invalid when the findings change.
        |(index, _)| format!("{index:09}"),
        |(_, diagnostic)| convert::diagnostic(diagnostic),
    );
    Ok(ListDiagnosticsResponse {
        diagnostics,
        next_page_token,
    })
}

/// Returns the digest that a token belongs to. It covers the request and the current findings.
fn identity(workspace: &Workspace, diagnostics: &[Diagnostic]) -> Digest {
    let mut digest = DigestBuilder::new();
    match workspace {
        Workspace::Disk(cwd) => digest.text("cwd", cwd.as_deref().unwrap_or_default()),
        Workspace::Bundle(bundle) => digest.text("workspace", bundle),
    };
    for diagnostic in diagnostics {
        digest
            .text(&diagnostic.path, &diagnostic.finding.message)
            .text("line", &format!("{:?}", diagnostic.finding.line));
    }
    digest.finish()
}
