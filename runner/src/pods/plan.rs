//! Determines which pods to create and to delete.
//!
//! Kubernetes reports a pod's state up to two seconds late. Therefore a pod that has just started counts as free until
//! it certainly has a thread, and a pod is deleted only if it has been free for some time.

use super::PodsError;

/// Maximum number of pods of one template.
pub const MAX_PODS: usize = 1000;
/// Number of consecutive checks in which a started pod is not ready before it counts as a pod with a thread.
const BUSY_CHECKS: u32 = 3;
/// Number of consecutive checks in which a pod is free before it is deleted as unneeded.
const FREE_CHECKS: u32 = 5;

/// The requested numbers of pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Number of pods that wait for a thread.
    idle: usize,
    /// Maximum number of all pods.
    max: usize,
}

impl Size {
    pub(super) const fn new(idle: usize, max: usize) -> Result<Self, PodsError> {
        if max == 0 || max > MAX_PODS || idle > max {
            return Err(PodsError::BadSize { idle, max });
        }
        Ok(Self { idle, max })
    }
}

/// A pod as Kubernetes reports it.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) track: Track,
    /// Whether the pod was created from the current template.
    pub(super) is_current: bool,
}

/// The result of several consecutive checks of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    pub(super) stage: Stage,
    /// Number of consecutive checks in which the pod had a thread.
    busy: u32,
    /// Number of consecutive checks in which the pod was free.
    pub(super) free: u32,
}

impl Track {
    /// Returns the result after one more check. `earlier` is `None` at the first check.
    pub(super) fn after(earlier: Option<Self>, seen: Stage) -> Self {
        let (was_starting, busy, free) = earlier.map_or((false, 0, 0), |earlier| {
            (earlier.stage == Stage::Starting, earlier.busy, earlier.free)
        });
        let busy = if seen == Stage::Busy { busy.saturating_add(1) } else { 0 };
        // A pod that has just started is not ready yet, and looks as if it had a thread.
        let stage = if was_starting && (1..BUSY_CHECKS).contains(&busy) {
            Stage::Starting
        } else {
            seen
        };
        let free = if seen.is_free() { free.saturating_add(1) } else { 0 };
        Self { stage, busy, free }
    }
}

/// The stage of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The pod's runner has not waited for a thread yet.
    Starting,
    /// The pod's runner waits for a thread.
    Idle,
    /// The pod's runner has a thread.
    Busy,
    /// The pod's runner has ended, or its programs cannot be started any more.
    Ended,
    /// The pod is being deleted.
    Terminating,
}

impl Stage {
    /// Returns whether the pod has no thread yet.
    const fn is_free(self) -> bool {
        matches!(self, Self::Starting | Self::Idle)
    }
}

/// The pods to create and to delete next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Number of pods to create.
    pub(super) create: usize,
    /// The names of pods to delete.
    pub(super) delete: Vec<String>,
}

/// Returns which pods to create and to delete. A pod with a thread is never deleted. A pod that receives its thread at
/// the moment of its deletion finishes the turn within its grace period.
pub(super) fn next(pods: &[Pod], size: Size) -> Plan {
    let (mut current, mut outdated): (Vec<&Pod>, Vec<&Pod>) = pods
        .iter()
        .filter(|pod| pod.track.stage.is_free())
        .partition(|pod| pod.is_current);
    // Idle pods are kept first.
    current.sort_by_key(|pod| pod.track.stage == Stage::Starting);
    let missing = size.idle.saturating_sub(current.len());
    let room = size.max.saturating_sub(pods.len());
    // Pods of an earlier template stay until enough pods of the current one wait, if the maximum permits that.
    let unneeded = if has_enough_idle(pods, size) {
        outdated.len()
    } else {
        let stay = pods
            .iter()
            .filter(|pod| !matches!(pod.track.stage, Stage::Ended | Stage::Terminating));
        (stay.count() + missing).saturating_sub(size.max)
    };
    outdated.sort_by_key(|pod| pod.track.stage != Stage::Starting);
    let outdated = outdated.into_iter().take(unneeded);
    let ended = pods.iter().filter(|pod| pod.track.stage == Stage::Ended);
    let surplus = current.iter().skip(size.idle).copied();
    let unneeded = outdated.chain(surplus).filter(|pod| pod.track.free >= FREE_CHECKS);
    let delete = ended.chain(unneeded).map(|pod| pod.name.clone());
    Plan {
        // A pod that is being deleted still occupies its resources.
        create: missing.min(room),
        delete: delete.collect(),
    }
}

/// Returns whether enough pods of the current template wait for a thread.
pub(super) fn has_enough_idle(pods: &[Pod], size: Size) -> bool {
    let idle = pods
        .iter()
        .filter(|pod| pod.is_current && pod.track.stage == Stage::Idle);
    idle.count() >= size.idle
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
        let stage = prop::sample::select(vec![
            Stage::Starting,
            Stage::Idle,
            Stage::Busy,
            Stage::Ended,
            Stage::Terminating,
        ]);
        prop::collection::vec((stage, any::<bool>()), 0..20).prop_map(|pods| {
            let numbered = pods.into_iter().enumerate();
            let pod = |(number, (stage, is_current)): (usize, (Stage, bool))| Pod {
                name: number.to_string(),
                track: Track::after(None, stage),
                is_current,
            };
            numbered.map(pod).collect()
        })
    }

    /// Applies a plan, as Kubernetes does after a while.
    fn carry_out(pods: &mut Vec<Pod>, plan: &Plan) {
        pods.retain(|pod| pod.track.stage != Stage::Terminating && !plan.delete.contains(&pod.name));
        for pod in pods.iter_mut() {
            let seen = match pod.track.stage {
                Stage::Starting => Stage::Idle,
                stage => stage,
            };
            pod.track = Track::after(Some(pod.track), seen);
        }
        for number in 0..plan.create {
            pods.push(Pod {
                name: format!("new-{number}-{}", pods.len()),
                track: Track::after(None, Stage::Idle),
                is_current: true,
            });
        }
    }

    proptest! {
        #[test]
        fn plan_keeps_its_bounds_and_leads_to_enough_idle_pods(
            mut pods in any_pods(),
            (idle, max) in (1..20_usize).prop_flat_map(|max| (0..=max, Just(max))),
        ) {
            let size = Size::new(idle, max).unwrap();
            for _ in 0..4 * FREE_CHECKS {
                let before = pods.len();
                let plan = next(&pods, size);
                for name in &plan.delete {
                    let pod = pods.iter().find(|pod| pod.name == *name).unwrap();
                    let was_free = pod.track.stage.is_free() && pod.track.free >= FREE_CHECKS;
                    prop_assert!(was_free || pod.track.stage == Stage::Ended, "{pod:?} is deleted");
                }
                prop_assert!(plan.create == 0 || before + plan.create <= max);
                carry_out(&mut pods, &plan);
            }
            prop_assert_eq!(next(&pods, size), Plan::default(), "the plan does not become stable");
            let free = pods.iter().filter(|pod| pod.track.stage.is_free()).count();
            prop_assert!(free == idle || (free < idle && pods.len() >= max), "{free} pods are free");
            prop_assert!(pods.iter().all(|pod| pod.track.stage == Stage::Busy || pod.is_current));
        }
    }

    #[test]
    fn started_pod_counts_as_busy_after_several_checks() {
        use Stage::{Busy, Idle, Starting, Terminating};

        for (seen, expected) in [
            (&[Starting, Busy, Idle][..], &[Starting, Starting, Idle][..]),
            (
                &[Starting, Busy, Busy, Busy, Busy],
                &[Starting, Starting, Starting, Busy, Busy],
            ),
            (&[Idle, Busy], &[Idle, Busy]),
            (&[Starting, Busy, Terminating], &[Starting, Starting, Terminating]),
            // At the first check of a process, any pod may have had its thread for a long time.
            (&[Busy], &[Busy]),
        ] {
            let mut track = None;
            for (seen, expected) in seen.iter().zip(expected) {
                let now = Track::after(track, *seen);
                assert_eq!(now.stage, *expected);
                assert_eq!(now.free == 0, !seen.is_free(), "{seen:?} may be deleted");
                track = Some(now);
            }
        }
    }

    #[test]
    fn size_is_bounded() {
        assert!(Size::new(0, 1).is_ok() && Size::new(MAX_PODS, MAX_PODS).is_ok());
        for (idle, max) in [(0, 0), (2, 1), (0, MAX_PODS + 1)] {
            assert!(Size::new(idle, max).is_err(), "{idle} of {max}");
        }
    }
}
