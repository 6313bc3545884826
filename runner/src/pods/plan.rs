//! Which pods to create and to delete.

use super::PodsError;

/// The most pods of one template.
pub const MAX_PODS: usize = 1000;

/// The wanted numbers of pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Those that wait for a thread.
    idle: usize,
    /// All.
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

/// A pod as Kubernetes has it.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) stage: Stage,
    /// Whether it is of the present template.
    pub(super) is_current: bool,
}

/// The stage of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its runner has not waited for a thread yet.
    Starting,
    /// Its runner waits for a thread.
    Idle,
    /// Its runner has a thread.
    Busy,
    /// Its runner has ended, or its programs cannot be started any more.
    Ended,
    /// It is being deleted.
    Terminating,
}

impl Pod {
    /// Returns whether it has no thread yet.
    const fn is_free(&self) -> bool {
        matches!(self.stage, Stage::Starting | Stage::Idle)
    }
}

/// What to do next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// How many pods to create.
    pub(super) create: usize,
    /// The names of pods to delete.
    pub(super) delete: Vec<String>,
}

/// Returns what to do about these pods. A pod with a thread is never deleted. A pod that receives its thread in the moment of
/// its deletion finishes the turn within its grace period.
pub(super) fn next(pods: &[Pod], size: Size) -> Plan {
    let (mut current, mut outdated): (Vec<&Pod>, Vec<&Pod>) =
        pods.iter().filter(|pod| pod.is_free()).partition(|pod| pod.is_current);
    // Idle pods are kept first.
    current.sort_by_key(|pod| pod.stage == Stage::Starting);
    let missing = size.idle.saturating_sub(current.len());
    let room = size.max.saturating_sub(pods.len());
    // Pods of an earlier template stay until enough others wait, as long as there is room.
    let unneeded = if has_enough_idle(pods, size) {
        outdated.len()
    } else {
        let stay = pods
            .iter()
            .filter(|pod| !matches!(pod.stage, Stage::Ended | Stage::Terminating));
        (stay.count() + missing).saturating_sub(size.max)
    };
    outdated.sort_by_key(|pod| pod.stage != Stage::Starting);
    let outdated = outdated.into_iter().take(unneeded);
    let ended = pods.iter().filter(|pod| pod.stage == Stage::Ended);
    let surplus = current.iter().skip(size.idle).copied();
    let delete = ended.chain(outdated).chain(surplus).map(|pod| pod.name.clone());
    Plan {
        // A pod that is being deleted still has its resources.
        create: missing.min(room),
        delete: delete.collect(),
    }
}

/// Returns whether enough pods of the present template wait for a thread.
pub(super) fn has_enough_idle(pods: &[Pod], size: Size) -> bool {
    let idle = pods.iter().filter(|pod| pod.is_current && pod.stage == Stage::Idle);
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
                stage,
                is_current,
            };
            numbered.map(pod).collect()
        })
    }

    /// Carries a plan out, as Kubernetes does after a while.
    fn carry_out(pods: &mut Vec<Pod>, plan: &Plan) {
        for pod in pods.iter_mut().filter(|pod| pod.stage == Stage::Starting) {
            pod.stage = Stage::Idle;
        }
        pods.retain(|pod| pod.stage != Stage::Terminating && !plan.delete.contains(&pod.name));
        for number in 0..plan.create {
            pods.push(Pod {
                name: format!("new-{number}-{}", pods.len()),
                stage: Stage::Idle,
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
            for _ in 0..6 {
                let before = pods.len();
                let plan = next(&pods, size);
                for name in &plan.delete {
                    let pod = pods.iter().find(|pod| pod.name == *name).unwrap();
                    prop_assert!(!matches!(pod.stage, Stage::Busy | Stage::Terminating), "{pod:?} is deleted");
                }
                prop_assert!(plan.create == 0 || before + plan.create <= max);
                carry_out(&mut pods, &plan);
            }
            prop_assert_eq!(next(&pods, size), Plan::default(), "it does not settle");
            let free = pods.iter().filter(|pod| pod.is_free()).count();
            prop_assert!(free == idle || (free < idle && pods.len() >= max), "{free} pods are free");
            prop_assert!(pods.iter().all(|pod| pod.stage == Stage::Busy || pod.is_current));
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
