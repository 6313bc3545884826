//! A layer that is ready to decide. Compiling is what costs time and memory here, and a role's layer is the same for each
//! thread of the role, so equal layers that are alive at the same time are one.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::decision::DeniedBy;
use crate::layer::{Layer, ListKind, MAX_PATTERNS, PolicyError};
use crate::pattern::PatternSet;

/// How many layers are looked through at least before those that nobody holds any more are forgotten.
const FEW: usize = 64;

/// A layer with its lists, ready to decide. An empty list is `None`.
#[derive(Debug)]
pub(crate) struct CompiledLayer {
    layer: Layer,
    denies_everything: bool,
    allow: Option<PatternSet>,
    deny: Option<PatternSet>,
}

impl CompiledLayer {
    /// The layer, compiled unless an equal one is alive.
    ///
    /// # Errors
    ///
    /// If a list has a bad pattern or too many of them.
    pub(crate) fn of(layer: &Layer) -> Result<Arc<Self>, PolicyError> {
        if let Some(alive) = ALIVE.lock().get(layer) {
            return Ok(alive);
        }
        // Beside the lock. Of two who compile the same at once, the later one's is kept.
        let compiled = Arc::new(Self::compile(layer.clone())?);
        ALIVE.lock().put(&compiled);
        Ok(compiled)
    }

    fn compile(layer: Layer) -> Result<Self, PolicyError> {
        Ok(Self {
            denies_everything: layer.deny.iter().any(|pattern| pattern == "*"),
            allow: compile_list(&layer, ListKind::Allow, &layer.allow)?,
            deny: compile_list(&layer, ListKind::Deny, &layer.deny)?,
            layer,
        })
    }

    /// What was compiled.
    pub(crate) const fn layer(&self) -> &Layer {
        &self.layer
    }

    /// What says no to a tool that goes by all of `names`: denied if one of them is denied, allowed if one of them is
    /// allowed. With `only_explicit`, silence of a layer that restricts is a no.
    pub(crate) fn refusal(&self, names: &[&str], only_explicit: bool) -> Option<DeniedBy> {
        if self.denies_everything {
            return Some(DeniedBy::DenyList("*".to_owned()));
        }
        if let Some(deny) = &self.deny {
            for name in names {
                if deny.is_match(name) {
                    let pattern = deny.position(name).and_then(|position| self.layer.deny.get(position));
                    return Some(DeniedBy::DenyList(pattern.cloned().unwrap_or_default()));
                }
            }
        }
        match &self.allow {
            Some(allow) if names.iter().any(|name| allow.is_match(name)) => None,
            Some(_) if only_explicit => Some(DeniedBy::UnknownTool),
            Some(_) => Some(DeniedBy::NotInAllowList),
            None if only_explicit && self.deny.is_some() => Some(DeniedBy::UnknownTool),
            None => None,
        }
    }
}

fn compile_list(layer: &Layer, list: ListKind, patterns: &[String]) -> Result<Option<PatternSet>, PolicyError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > MAX_PATTERNS {
        return Err(PolicyError::TooManyPatterns {
            origin: layer.origin.clone(),
            list,
            count: patterns.len(),
        });
    }
    match PatternSet::compile(layer.mode, patterns) {
        Ok(set) => Ok(Some(set)),
        Err(error) => Err(PolicyError::Pattern {
            origin: layer.origin.clone(),
            list,
            error,
        }),
    }
}

/// The layers that are alive in this process. What a layer allows depends on nothing else, so whoever shares it cannot
/// tell.
static ALIVE: LazyLock<Shared> = LazyLock::new(Shared::default);

#[derive(Default)]
struct Shared(Mutex<Alive>);

#[derive(Default)]
struct Alive {
    layers: HashMap<Layer, Weak<CompiledLayer>>,
    /// With so many, those that nobody holds are forgotten: twice those that were held the last time.
    full: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Alive> {
        // Whole after any panic: every change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alive {
    fn get(&self, layer: &Layer) -> Option<Arc<CompiledLayer>> {
        self.layers.get(layer)?.upgrade()
    }

    fn put(&mut self, compiled: &Arc<CompiledLayer>) {
        if self.layers.len() >= self.full {
            self.layers.retain(|_, layer| layer.strong_count() > 0);
            self.full = FEW.max(2 * self.layers.len());
        }
        self.layers.insert(compiled.layer.clone(), Arc::downgrade(compiled));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn named(origin: &str) -> Layer {
        Layer {
            origin: origin.to_owned(),
            allow: vec!["wait".to_owned()],
            ..Layer::default()
        }
    }

    #[test]
    fn equal_layers_are_one_as_long_as_somebody_has_it() {
        let first = CompiledLayer::of(&named("shared")).unwrap();
        let second = CompiledLayer::of(&named("shared")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &CompiledLayer::of(&named("other")).unwrap()));
        let gone = Arc::downgrade(&first);
        drop((first, second));
        assert!(gone.upgrade().is_none());
        assert_eq!(CompiledLayer::of(&named("shared")).unwrap().layer(), &named("shared"));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let mut alive = Alive::default();
        let kept = Arc::new(CompiledLayer::compile(named("kept")).unwrap());
        alive.put(&kept);
        for number in 0..10 * FEW {
            alive.put(&Arc::new(CompiledLayer::compile(named(&number.to_string())).unwrap()));
        }
        assert!(alive.layers.len() <= 2 * FEW, "{}", alive.layers.len());
        assert!(alive.get(kept.layer()).is_some());
    }
}
