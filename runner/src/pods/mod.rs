//! Keeps pods for single threads or sessions in a Kubernetes cluster. Each pod has a runner for single use; see
//! [`crate::RunnerConfig::is_single_use`]. Some pods always wait for a thread, so a thread does not wait for the start
//! of a pod. A pod that has had its thread is deleted, and another one is created in its place.
//!
//! All state is in Kubernetes: a pod is ready while its runner waits for a thread. This process can end and start again
//! at any time. Pods belong to a Deployment, usually the Deployment of this process, and are deleted with that
//! Deployment.
//!
//! Instead of pods, this module can create claims of agent-sandbox (`SandboxClaim`). The controller of agent-sandbox
//! creates a pod for each claim.

mod api;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::{api::ApiError, plan::MAX_PODS};
use self::{
    api::{Api, Kind},
    plan::{Pod, Size, Stage, Track},
};
use crate::text::keep_end;

/// Time between two checks of the pods.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum pause in the creation of pods after pods failed.
const MAX_PAUSE: Duration = Duration::from_secs(64);
/// The label with the UID of the Deployment to which a pod belongs. The Deployment's name may be too long for a label.
const OWNER: &str = "troupe.dev/pods-of";
/// The label with the hash of a pod's template.
const TEMPLATE: &str = "troupe.dev/template";
/// A label that agent-sandbox adds to the pods of all sandboxes.
const SANDBOX: &str = "agents.x-k8s.io/sandbox-name-hash";
/// Reasons with which agent-sandbox reports that a claim cannot get a pod. With any other reason, the claim waits for a
/// pod.
const FAULTS: [&str; 3] = ["WarmPoolNotFound", "TemplateNotFound", "ReconcilerError"];
/// Number of checks after which a claim without a status is reported.
const UNSEEN_CHECKS: u32 = 30;
/// Length of a template's hash in the label, in characters.
const HASH_CHARS: usize = 16;
/// The container with the runner.
const RUNNER: &str = "runner";
/// Maximum number of bytes that are logged from the end of a container's termination message.
const MAX_MESSAGE_BYTES: usize = 500;

/// The configuration of the pods to keep.
#[derive(Clone, Debug)]
pub struct PodsConfig {
    /// The manifest of a pod, or of a SandboxClaim for such a pod, in JSON. The pod's container `runner` runs a runner
    /// for single use, and is ready while the runner waits for its first thread.
    pub template: PathBuf,
    /// The Deployment to which the pods belong.
    pub owner: String,
    /// Number of pods that wait for a thread.
    pub idle: usize,
    /// Maximum number of pods, at most [`MAX_PODS`].
    pub max: usize,
    /// The URL of the API server.
    pub server: Uri,
    /// The directory with `token`, `ca.crt` and `namespace`, as Kubernetes mounts it.
    pub account: PathBuf,
}

/// The reason why no pods can be kept.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The template is neither a pod nor a claim.
    #[error("{} is not the manifest of a pod or a SandboxClaim: {problem}", path.display())]
    BadTemplate {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The number of pods is not possible, or the number of idle pods exceeds the maximum number of pods.
    #[error("{idle} idle pods of at most {max} are not possible; the maximum is at least 1 and at most {MAX_PODS}")]
    BadSize {
        /// The requested number of idle pods.
        idle: usize,
        /// The requested maximum number of pods.
        max: usize,
    },
    /// The API server rejects the account, or does not know the Deployment.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// Keeps pods until `shutdown` is cancelled. The pods continue to exist after that.
///
/// # Errors
///
/// The configuration is not usable, or the API server rejects the first call. Later failures are logged, and the calls
/// are repeated.
pub async fn keep(config: PodsConfig, shutdown: CancellationToken) -> Result<(), PodsError> {
    let size = Size::new(config.idle, config.max)?;
    let template = Template::read(&config.template)?;
    let api = Api::new(config.server, &config.account)?;
    let deployment = api.deployment(&config.owner).await?;
    let uid = text(&deployment["metadata"]["uid"]).to_owned();
    let object = template.object(&config.owner, &uid);
    info!(owner = config.owner, ?size, kind = ?template.kind, "keeping pods for threads");
    let mut keeper = Keeper {
        api,
        owner: uid,
        size,
        kind: template.kind,
        hash: template.hash,
        object,
        tracks: BTreeMap::new(),
        ended: BTreeSet::new(),
        pause: Pause::default(),
    };
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_problem = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        let problem = keeper.step().await.err().map(|error| error.to_string());
        // A problem is logged once, not every second.
        match &problem {
            Some(problem) if last_problem.as_ref() != Some(problem) => {
                warn!(problem, "cannot keep the pods as configured");
            }
            None if last_problem.is_some() => info!("the pods are as configured again"),
            Some(_) | None => {}
        }
        last_problem = problem;
    }
}

struct Keeper {
    api: Api,
    /// The UID of the Deployment.
    owner: String,
    size: Size,
    kind: Kind,
    hash: String,
    /// The manifest of each new pod or claim.
    object: Value,
    /// The state of each pod over the earlier checks.
    tracks: BTreeMap<String, Track>,
    /// The pods whose end was logged, until they no longer exist.
    ended: BTreeSet<String>,
    pause: Pause,
}

impl Keeper {
    /// Checks the pods once, and creates and deletes pods as necessary.
    async fn step(&mut self) -> Result<(), ApiError> {
        let seen = self.list_pods().await?;
        self.report_ends(&seen);
        let pods: Vec<Pod> = seen.iter().map(|(pod, _)| pod.clone()).collect();
        if plan::has_enough_idle(&pods, self.size) {
            self.pause.end();
        }
        let plan = plan::next(&pods, self.size);
        // A failed deletion does not prevent the other deletions.
        let mut outcome = Ok(());
        for name in &plan.delete {
            outcome = outcome.and(self.api.delete(self.kind, name).await);
        }
        if self.pause.is_over(Instant::now()) {
            for _ in 0..plan.create {
                self.api.create(self.kind, &self.object).await?;
            }
        }
        let problem = seen.iter().find_map(|(pod, object)| claim_fault(pod.track, object));
        outcome.and(problem.map_or(Ok(()), Err))
    }

    /// Returns the pods of this Deployment, each with its Kubernetes object. A claim without a pod is returned with the
    /// claim's object.
    async fn list_pods(&mut self) -> Result<Vec<(Pod, Value)>, ApiError> {
        let own = self.api.list(self.kind, &format!("{OWNER}={}", self.owner)).await?;
        let mut of_sandboxes = match self.kind {
            Kind::Pod => HashMap::new(),
            Kind::SandboxClaim => {
                let pods = self.api.list(Kind::Pod, SANDBOX).await?;
                let named = pods
                    .into_iter()
                    .filter_map(|pod| Some((sandbox(&pod)?.to_owned(), pod)));
                named.collect()
            }
        };
        let earlier = std::mem::take(&mut self.tracks);
        let seen = own.into_iter().map(|object| {
            let name = text(&object["metadata"]["name"]).to_owned();
            let is_current = text(&object["metadata"]["labels"][TEMPLATE]) == self.hash;
            let is_deleted = is_being_deleted(&object);
            let sandbox = text(&object["status"]["sandbox"]["name"]);
            let object = of_sandboxes.remove(sandbox).unwrap_or(object);
            let stage = if is_deleted { Stage::Terminating } else { stage(&object) };
            let track = Track::after(earlier.get(&name).copied(), stage);
            self.tracks.insert(name.clone(), track);
            let pod = Pod {
                name,
                track,
                is_current,
            };
            (pod, object)
        });
        Ok(seen.collect())
    }

    /// Logs how pods ended. Pods that failed delay the creation of the next pods.
    fn report_ends(&mut self, seen: &[(Pod, Value)]) {
        self.ended.retain(|name| seen.iter().any(|(pod, _)| pod.name == *name));
        let mut has_failed = false;
        for (Pod { name, track, .. }, object) in seen {
            if track.stage != Stage::Ended || !self.ended.insert(name.clone()) {
                continue;
            }
            match failure(object) {
                None => info!(pod = name, "a pod ended with its thread"),
                Some(failure) => {
                    warn!(pod = name, failure, "a pod failed");
                    has_failed = true;
                }
            }
        }
        if has_failed {
            self.pause.extend(Instant::now());
        }
    }
}

/// The pause in the creation of pods after pods failed. The pause is 2 s after the first failure and doubles after each
/// further failure, up to [`MAX_PAUSE`]. Failures are forgotten when enough pods wait for threads.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    fn extend(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let pause = PERIOD
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(MAX_PAUSE);
        self.until = Some(now + pause);
    }

    fn end(&mut self) {
        *self = Self::default();
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

/// The manifest of a pod or of a claim.
struct Template {
    kind: Kind,
    manifest: Value,
    /// A hash of the template file. The file of a claim contains only the name of its pod's template, so an operator
    /// must change the file when that template changes.
    hash: String,
}

impl Template {
    fn read(path: &Path) -> Result<Self, PodsError> {
        let bad = |problem: &str| PodsError::BadTemplate {
            path: path.to_owned(),
            problem: problem.to_owned(),
        };
        let content = read(path)?;
        let manifest: Value = serde_json::from_str(&content).map_err(|error| bad(&error.to_string()))?;
        if !manifest["metadata"].is_object() {
            return Err(bad("it has no metadata"));
        }
        let kind = match text(&manifest["kind"]) {
            "Pod" => {
                let mut containers = manifest["spec"]["containers"].as_array().into_iter().flatten();
                if !containers.any(|container| container["name"] == RUNNER) {
                    return Err(bad(&format!("it has no container called {RUNNER}")));
                }
                Kind::Pod
            }
            "SandboxClaim" => {
                if text(&manifest["spec"]["warmPoolRef"]["name"]).is_empty() {
                    return Err(bad("it has no spec.warmPoolRef.name"));
                }
                Kind::SandboxClaim
            }
            kind => return Err(bad(&format!("its kind is {kind:?}"))),
        };
        let digest = Sha256::digest(content.as_bytes());
        let mut hash = base16ct::lower::encode_string(&digest);
        hash.truncate(HASH_CHARS);
        Ok(Self { kind, manifest, hash })
    }

    /// Returns the manifest of the pods or claims of a Deployment.
    fn object(&self, owner: &str, uid: &str) -> Value {
        let mut object = self.manifest.clone();
        object["apiVersion"] = json!(self.kind.api_version());
        if self.kind == Kind::Pod {
            object["spec"]["restartPolicy"] = json!("Never");
        }
        let metadata = &mut object["metadata"];
        metadata["generateName"] = json!(format!("{owner}-"));
        metadata["labels"][OWNER] = json!(uid);
        metadata["labels"][TEMPLATE] = json!(self.hash);
        metadata["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": uid, "controller": true}]);
        object
    }
}

fn read(path: &Path) -> Result<String, PodsError> {
    fs::read_to_string(path).map_err(|error| PodsError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"].as_array().into_iter().flatten()
}

/// Returns a condition of a pod or claim.
fn condition<'object>(object: &'object Value, wanted: &str) -> Option<&'object Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == wanted)
}

fn has_condition(object: &Value, wanted: &str) -> bool {
    condition(object, wanted).is_some_and(|condition| condition["status"] == "True")
}

/// Returns the name of the sandbox to which a pod belongs.
fn sandbox(pod: &Value) -> Option<&str> {
    let mut owners = pod["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| owner["kind"] == "Sandbox")?["name"].as_str()
}

fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns why a claim cannot get a pod. `None`: it has one or waits for one.
fn claim_fault(track: Track, object: &Value) -> Option<ApiError> {
    let (reason, message) = match condition(object, "Ready") {
        Some(ready) if FAULTS.contains(&text(&ready["reason"])) => (text(&ready["reason"]), text(&ready["message"])),
        Some(_) => return None,
        None => {
            let is_claim = object["spec"]["warmPoolRef"].is_object();
            if !is_claim || track.free < UNSEEN_CHECKS {
                return None;
            }
            (
                "NotSeen",
                "no controller has seen it; start the controller of agent-sandbox with --extensions",
            )
        }
    };
    Some(ApiError::NoPod {
        claim: text(&object["metadata"]["name"]).to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

/// Returns the stage of a pod, or of a claim without a pod. Kubernetes does not restart a container that has ended, so
/// its pod cannot be used any more.
fn stage(pod: &Value) -> Stage {
    let has_ended = containers(pod).any(|container| container["state"]["terminated"].is_object());
    if is_being_deleted(pod) {
        Stage::Terminating
    } else if has_ended || matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded") {
        Stage::Ended
    } else {
        match containers(pod).find(|container| container["name"] == RUNNER) {
            // The startup probe of the container succeeds when the runner is attached.
            Some(runner) if runner["started"] == true => {
                let is_ready = runner["ready"] == true;
                match (has_condition(pod, "Ready"), has_condition(pod, "ContainersReady")) {
                    (true, _) => Stage::Idle,
                    // Another container is not ready yet.
                    (false, false) if is_ready => Stage::Starting,
                    // The runner has a thread, or its node is lost.
                    (false, _) => Stage::Busy,
                }
            }
            Some(_) | None => Stage::Starting,
        }
    }
}

/// Returns why a pod failed. `None`: the pod ended without a failure.
fn failure(pod: &Value) -> Option<String> {
    let failed = |container: &Value| {
        let end = &container["state"]["terminated"];
        let code = end["exitCode"].as_i64().filter(|code| *code != 0)?;
        let mut message = text(&end["message"]).trim().to_owned();
        keep_end(&mut message, MAX_MESSAGE_BYTES);
        Some(format!(
            "{} ended with {code} ({}): {message}",
            text(&container["name"]),
            text(&end["reason"])
        ))
    };
    let has_failed = pod["status"]["phase"] == "Failed";
    let init_containers = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    let init_containers = init_containers.filter(|_| has_failed);
    let failures: Vec<String> = init_containers.chain(containers(pod)).filter_map(failed).collect();
    if !failures.is_empty() {
        return Some(failures.join("; "));
    }
    has_failed.then(|| {
        format!(
            "{}: {}",
            text(&pod["status"]["reason"]),
            text(&pod["status"]["message"])
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "status": status})
    }

    #[test]
    fn pod_stage_follows_from_status() {
        let runner = |started: bool, ready: bool| {
            let status = if ready { "True" } else { "False" };
            json!({
                "phase": "Running",
                "conditions": [{"type": "ContainersReady", "status": status}, {"type": "Ready", "status": status}],
                "containerStatuses": [
                    {"name": "agents", "started": true},
                    {"name": "runner", "started": started, "ready": ready},
                ],
            })
        };
        let with = |pointer: &str, value: Value| {
            let mut status = runner(true, true);
            *status.pointer_mut(pointer).unwrap() = value;
            status
        };
        let ended = |name: &str| {
            let mut status = runner(true, true);
            let containers = status["containerStatuses"].as_array_mut().unwrap();
            let container = containers
                .iter_mut()
                .find(|container| container["name"] == name)
                .unwrap();
            container["state"] = json!({"terminated": {"exitCode": 0}});
            status
        };
        for (status, expected) in [
            (json!({"phase": "Pending"}), Stage::Starting),
            (runner(false, false), Stage::Starting),
            (runner(true, true), Stage::Idle),
            (runner(true, false), Stage::Busy),
            // The pod's node is lost, and another container is not ready yet.
            (with("/conditions/1/status", json!("False")), Stage::Busy),
            (with("/conditions", json!([])), Stage::Starting),
            (ended("runner"), Stage::Ended),
            (ended("agents"), Stage::Ended),
            (json!({"phase": "Failed", "reason": "Evicted"}), Stage::Ended),
        ] {
            assert_eq!(stage(&pod(&status)), expected, "{status}");
        }
        let terminating = json!({"metadata": {"deletionTimestamp": "2026-11-30T00:00:00Z"}});
        assert_eq!(stage(&terminating), Stage::Terminating);
    }

    #[test]
    fn failure_names_container_and_reason() {
        let ended = |code: i32, reason: &str| {
            let end = json!({"exitCode": code, "reason": reason, "message": "last words\n"});
            pod(&json!({"phase": "Running", "containerStatuses": [{"name": "agents", "state": {"terminated": end}}]}))
        };
        assert_eq!(failure(&ended(0, "Completed")), None);
        let failed = failure(&ended(137, "OOMKilled"));
        assert_eq!(failed.as_deref(), Some("agents ended with 137 (OOMKilled): last words"));
        let evicted = pod(&json!({"phase": "Failed", "reason": "Evicted", "message": "too large"}));
        assert_eq!(failure(&evicted).as_deref(), Some("Evicted: too large"));
    }

    #[test]
    fn failures_delay_the_next_pods() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        assert!(pause.is_over(now));
        for seconds in [2, 4, 8, 16, 32, 64, 64] {
            pause.extend(now);
            let end = now + Duration::from_secs(seconds);
            assert!(
                !pause.is_over(end - Duration::from_millis(1)) && pause.is_over(end),
                "{seconds} s"
            );
        }
        pause.end();
        pause.extend(now);
        assert!(pause.is_over(now + Duration::from_secs(2)));
    }

    fn template(content: &str) -> Result<Template, PodsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod.json");
        fs::write(&path, content).unwrap();
        Template::read(&path)
    }

    #[test]
    fn template_becomes_object_owned_by_deployment() {
        let pod =
            r#"{"kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "runner"}]}}"#;
        let claim = r#"{"kind": "SandboxClaim", "metadata": {}, "spec": {"warmPoolRef": {"name": "pool"}}}"#;
        for (content, kind, policy) in [
            (pod, Kind::Pod, json!("Never")),
            (claim, Kind::SandboxClaim, Value::Null),
        ] {
            let template = template(content).unwrap();
            assert_eq!(template.kind, kind);
            let made = template.object("troupe-runner", "1");
            assert_eq!(made["apiVersion"], kind.api_version());
            assert_eq!(made["metadata"]["generateName"], "troupe-runner-");
            assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "1");
            assert_eq!(made["metadata"]["labels"][TEMPLATE], template.hash.as_str());
            assert_eq!(made["spec"]["restartPolicy"], policy);
        }
        let made = template(pod).unwrap().object("troupe-runner", "1");
        assert_eq!(made["metadata"]["labels"]["a"], "b");
    }

    #[test]
    fn template_of_another_kind_is_rejected() {
        for (content, problem) in [
            ("[", "EOF while parsing a list at line 1 column 1"),
            (
                r#"{"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "agents"}]}}"#,
                "it has no container called runner",
            ),
            (
                r#"{"kind": "Pod", "spec": {"containers": [{"name": "runner"}]}}"#,
                "it has no metadata",
            ),
            (
                r#"{"kind": "SandboxClaim", "metadata": {}, "spec": {}}"#,
                "it has no spec.warmPoolRef.name",
            ),
            (r#"{"kind": "Job", "metadata": {}}"#, "its kind is \"Job\""),
        ] {
            let refusal = template(content).err().unwrap().to_string();
            let expected = format!("is not the manifest of a pod or a SandboxClaim: {problem}");
            assert!(refusal.ends_with(&expected), "{refusal}");
        }
    }

    #[test]
    fn pod_belongs_to_the_sandbox_that_owns_it() {
        let owned = |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "s"}]}});
        assert_eq!(sandbox(&owned("Sandbox")), Some("s"));
        assert_eq!(sandbox(&owned("Job")), None);
        assert_eq!(sandbox(&json!({"metadata": {}})), None);
    }

    #[test]
    fn fault_of_claim_without_pod_is_reported() {
        let mut track = Track::after(None, Stage::Starting);
        let claim = |conditions: Value| json!({"metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": "w"}}, "status": {"conditions": conditions}});
        let not_ready = |reason: &str| claim(json!([{"type": "Ready", "reason": reason, "message": "no pool"}]));
        let fault = claim_fault(track, &not_ready("WarmPoolNotFound")).unwrap();
        assert_eq!(
            fault.to_string(),
            "SandboxClaim c gets no pod: WarmPoolNotFound: no pool"
        );
        assert!(claim_fault(track, &not_ready("DependenciesNotReady")).is_none());
        assert!(claim_fault(track, &claim(json!([]))).is_none(), "the claim is new");
        track.free = UNSEEN_CHECKS;
        let fault = claim_fault(track, &claim(json!([]))).unwrap().to_string();
        assert!(fault.contains("NotSeen"), "{fault}");
        assert!(
            claim_fault(track, &pod(&json!({}))).is_none(),
            "a pod that waits for a node is not a fault"
        );
        assert_eq!(stage(&claim(json!([]))), Stage::Starting);
    }
}
