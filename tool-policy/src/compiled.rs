//! Compiled layers. Compiling costs time and memory, and all threads of a role have the same layer. Therefore equal
//! layers that are in use at the same time share one compiled layer.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::decision::DeniedBy;
use crate::layer::{Layer, ListKind, MAX_PATTERNS, PolicyError};
use crate::pattern::PatternSet;

/// A layer with compiled lists. An empty list is `None`.
#[derive(Debug)]
pub(crate) struct CompiledLayer {
    layer: Layer,
    denies_everything: bool,
    allow: Option<PatternSet>,
    deny: Option<PatternSet>,
}

impl CompiledLayer {
    /// Returns the compiled layer. Reuses an equal layer that is in use.
    ///
    /// # Errors
    ///
    /// If a list has an invalid pattern or too many patterns.
    pub(crate) fn of(layer: &Layer) -> Result<Arc<Self>, PolicyError> {
        if let Some(alive) = ALIVE.lock().get(layer).and_then(Weak::upgrade) {
            return Ok(alive);
        }
        // Compiled outside the lock. If two threads compile the same layer at once, the later result is kept.
        let compiled = Arc::new(Self::compile(layer.clone())?);
        ALIVE.lock().insert(layer.clone(), Arc::downgrade(&compiled));
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

    /// Returns the layer that was compiled.
    pub(crate) const fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Returns whether the layer allows the tool: [`Self::refusal`] without the reason.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        !self.denies_everything
            && self.deny.as_ref().is_none_or(|deny| !deny.is_match(tool))
            && self.allow.as_ref().is_none_or(|allow| allow.is_match(tool))
    }

    /// Returns the reason why the layer refuses a tool that has all of `names`. The tool is denied if one of the names
    /// is denied, and allowed if one of them is allowed. With `only_explicit`, a layer that restricts also refuses a
    /// tool that it does not mention.
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

/// The layers in use in this process. The decisions of a compiled layer depend only on its layer, so sharing has no
/// visible effect.
static ALIVE: LazyLock<Shared> = LazyLock::new(Shared::default);

#[derive(Default)]
struct Shared(Mutex<Alive>);

/// The layers in use. An entry is removed when the last holder of its compiled layer is dropped.
type Alive = HashMap<Layer, Weak<CompiledLayer>>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Alive> {
        // The map is consistent after any panic, because every change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CompiledLayer {
    fn drop(&mut self) {
        let mut alive = ALIVE.lock();
        // Another layer that was compiled at the same time may occupy the entry.
        if alive.get(&self.layer).is_some_and(|layer| layer.strong_count() == 0) {
            alive.remove(&self.layer);
        }
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
    fn equal_layers_are_shared_while_referenced() {
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
    fn unreferenced_layer_is_dropped() {
        let layer = named("forgotten");
        drop(CompiledLayer::of(&layer).unwrap());
        assert!(!ALIVE.lock().contains_key(&layer));
        // If equal layers are compiled at the same time, the later one is shared, even after the earlier one is
        // dropped.
        let earlier = Arc::new(CompiledLayer::compile(layer.clone()).unwrap());
        let later = CompiledLayer::of(&layer).unwrap();
        drop(earlier);
        assert!(Arc::ptr_eq(&later, &CompiledLayer::of(&layer).unwrap()));
    }
}
