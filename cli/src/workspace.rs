//! The templates around a working directory, for a registry without access to this disk. The templates are collected
//! as a local registry would read them, identified by a digest of their content, and uploaded if the registry does not
//! have them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tonic::{Response, Status};
use troupe_client::{Service, Supervisor, host::is_this_machine};
use troupe_proto::{
    fault,
    reason::Reason,
    registry::v1::{PutWorkspaceRequest, WorkspaceFile},
    supervisor::v1::{CreateSessionRequest, CreateSessionResponse},
};

use crate::{
    context::Context,
    error::{Error, Result},
    global::{Global, UploadWorkspace},
    places,
};

/// The workspace digest that calls about a working directory contain.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Empty if the registry reads the directory itself.
    digest: String,
    /// The bundle with that digest. `None` without a digest.
    files: Option<Vec<WorkspaceFile>>,
}

impl Workspace {
    /// Collects the templates around `cwd`, an absolute path, without sending them. An empty `cwd` has no templates.
    ///
    /// # Errors
    ///
    /// Fails if the directory does not exist or the templates are too many for one bundle.
    pub(crate) fn around(cwd: &str, context: &Context) -> Result<Self> {
        if cwd.is_empty() || !is_uploaded(&context.global)? {
            return Ok(Self {
                digest: String::new(),
                files: None,
            });
        }
        let (digest, files) = gather(cwd, context)?;
        Ok(Self {
            digest,
            files: Some(files),
        })
    }

    /// Calls `call` with the digest. If the registry does not have the bundle, uploads it and repeats the call once.
    pub(crate) async fn ask<T>(
        &mut self,
        context: &Context,
        mut call: impl AsyncFnMut(String) -> std::result::Result<Response<T>, Status>,
    ) -> Result<T> {
        let answer = call(self.digest.clone()).await;
        match (answer, &self.files) {
            (Err(status), Some(files)) if fault::reason_of(&status) == Some(Reason::WorkspaceUnknown) => {
                // The registry's digest takes precedence, because the registry may be of another release.
                self.digest = upload(files.clone(), context).await?;
                Ok(call(self.digest.clone()).await?.into_inner())
            }
            (answer, _) => Ok(answer?.into_inner()),
        }
    }
}

/// Opens a session with the templates around its directory.
pub(crate) async fn create_session(
    supervisor: &mut Supervisor,
    mut request: CreateSessionRequest,
    context: &Context,
) -> Result<CreateSessionResponse> {
    Workspace::around(&request.cwd, context)?
        .ask(context, async |digest| {
            request.request_id = troupe_client::request_id();
            request.workspace_digest = digest;
            supervisor.create_session(request.clone()).await
        })
        .await
}

/// Uploads the templates around `cwd` and returns their digest.
pub(crate) async fn put(cwd: &str, context: &Context) -> Result<String> {
    upload(gather(cwd, context)?.1, context).await
}

/// Collects the templates around `cwd`. Returns their digest and their files.
fn gather(cwd: &str, context: &Context) -> Result<(String, Vec<WorkspaceFile>)> {
    // Without a home directory, the project still has templates.
    let home = places::home(None).ok();
    let gathered = registry_svc::gather(cwd, &top(cwd, home.as_deref()), home.as_deref())
        .map_err(|error| Error::failure(format!("cannot upload the templates: {error}")))?;
    for finding in &gathered.findings {
        context
            .ui
            .warn(&format!("{}: {}", finding.path, finding.finding.message));
    }
    let files = gathered.files.into_iter().map(WorkspaceFile::from).collect();
    Ok((gathered.digest.to_string(), files))
}

/// Returns whether the templates have to be uploaded to the registry.
fn is_uploaded(global: &Global) -> Result<bool> {
    Ok(match global.upload_workspace {
        UploadWorkspace::Auto => !is_this_machine(global.settings().address(Service::Registry)?.host()),
        UploadWorkspace::Always => true,
        UploadWorkspace::Never => false,
    })
}

/// Returns the topmost directory of the project around a directory. Symbolic links must not lead out of the topmost
/// directory.
fn top(cwd: &str, home: Option<&Path>) -> PathBuf {
    let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let start = canonical(Path::new(cwd));
    let home = home.map(canonical);
    places::project(&start, home.as_deref()).pop().unwrap_or(start)
}

async fn upload(files: Vec<WorkspaceFile>, context: &Context) -> Result<String> {
    let request = PutWorkspaceRequest {
        files,
        request_id: troupe_client::request_id(),
    };
    let answer = context.registry().await?.put_workspace(request).await?;
    Ok(answer.into_inner().workspace_digest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{global::TlsArgs, output::OutputArgs};

    fn global(registry: &str, upload_workspace: UploadWorkspace) -> Global {
        Global {
            output: OutputArgs::default(),
            context: None,
            supervisor: String::new(),
            registry: registry.to_owned(),
            upload_workspace,
            token: None,
            token_file: None,
            tls: TlsArgs::default(),
            data_dir: None,
        }
    }

    #[test]
    fn templates_are_uploaded_to_other_machines_only() {
        for (registry, when, expected) in [
            ("http://127.0.0.1:50051", UploadWorkspace::Auto, false),
            ("localhost:50051", UploadWorkspace::Auto, false),
            ("http://[::1]:50051", UploadWorkspace::Auto, false),
            ("http://registry.example.com:50051", UploadWorkspace::Auto, true),
            ("http://10.0.0.7:50051", UploadWorkspace::Auto, true),
            ("http://10.0.0.7:50051", UploadWorkspace::Never, false),
            ("http://127.0.0.1:50051", UploadWorkspace::Always, true),
        ] {
            let uploaded = is_uploaded(&global(registry, when)).unwrap();
            assert_eq!(uploaded, expected, "{registry} {when:?}");
        }
        assert!(is_uploaded(&global("ftp://x", UploadWorkspace::Auto)).is_err());
    }

    #[test]
    fn project_ends_at_repository_or_home() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(base.join("home/repo/.git")).unwrap();
        fs::create_dir_all(base.join("home/repo/a")).unwrap();
        fs::create_dir_all(base.join("home/plain/a")).unwrap();
        let home = base.join("home");
        let top = |cwd: &str| top(base.join(cwd).to_str().unwrap(), Some(&home));
        assert_eq!(top("home/repo/a"), base.join("home/repo"));
        assert_eq!(top("home/plain/a"), home);
    }
}
