//! The difference between two states of a catalogue, as sent to watchers.

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    catalog::Catalog,
    error::RegistryError,
    list::{self, Listed, Selection, Violations},
    name::TemplateName,
};

/// The difference between two states, in order of name.
#[derive(Debug, Default)]
pub struct Changes<'after> {
    /// Templates that are new, or whose file or text changed.
    pub changed: Vec<Listed<'after>>,
    /// Names that are no longer served because the file was removed or became invalid.
    pub removed: Vec<TemplateName>,
}

/// Returns whether two states have the same content and the same findings.
#[must_use]
pub fn are_equal(one: &Arc<Catalog>, other: &Arc<Catalog>) -> bool {
    Arc::ptr_eq(one, other) || (one.revision() == other.revision() && one.diagnostics() == other.diagnostics())
}

/// Returns the agent types that differ between `before` and `after`, or all of them if `before` is `None`. Malformed
/// templates are not served.
///
/// # Errors
///
/// None in practice: a selection of all agent types cannot fail. See [`list::list`].
pub fn between<'after>(before: Option<&Catalog>, after: &'after Catalog) -> Result<Changes<'after>, RegistryError> {
    let old = match before {
        Some(before) => served(before)?,
        None => BTreeMap::new(),
    };
    let new = served(after)?;
    let removed = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| TemplateName::clone(name))
        .collect();
    let changed = new
        .into_iter()
        .filter(|(name, now)| old.get(name).is_none_or(|then| differs(then, now)))
        .map(|(_, now)| now)
        .collect();
    Ok(Changes { changed, removed })
}

fn served(catalog: &Catalog) -> Result<BTreeMap<&TemplateName, Listed<'_>>, RegistryError> {
    let listed = list::list(catalog, &Selection::AgentTypes, Violations::LeaveOut)?;
    Ok(listed.into_iter().map(|item| (&item.entry.file.name, item)).collect())
}

/// Returns whether two entries differ. An unchanged file is the same value, so comparing addresses settles most cases.
fn differs(then: &Listed<'_>, now: &Listed<'_>) -> bool {
    let (then, now) = (&then.entry.file, &now.entry.file);
    !Arc::ptr_eq(then, now) && then != now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalog::tests::catalog;

    const ONE: &str = "---\ndescription: d\n---\none";
    const TWO: &str = "---\ndescription: d\n---\ntwo";

    /// Names with their files' texts.
    type Roles = &'static [(&'static str, &'static str)];

    fn shown(before: Option<Roles>, after: Roles) -> (Vec<String>, Vec<String>) {
        let before = before.map(catalog);
        let after = catalog(after);
        let changes = between(before.as_ref(), &after).unwrap();
        let changed = changes.changed.iter().map(|item| item.entry.file.name.to_string());
        let removed = changes.removed.iter().map(ToString::to_string);
        (changed.collect(), removed.collect())
    }

    #[test]
    fn changes_contain_only_differences() {
        type Row<'a> = (Option<Roles>, Roles, &'a [&'a str], &'a [&'a str]);
        let rows: &[Row<'_>] = &[
            (None, &[("b", ONE), ("a", ONE)], &["a", "b"], &[]),
            (Some(&[("a", ONE)]), &[("a", ONE)], &[], &[]),
            (Some(&[("a", ONE)]), &[("a", TWO)], &["a"], &[]),
            (Some(&[("a", ONE)]), &[("b", ONE)], &["b"], &["a"]),
            // A malformed template is removed, and served again when it is repaired.
            (Some(&[("a", ONE)]), &[("a", "broken")], &[], &["a"]),
            (Some(&[("a", "broken")]), &[("a", ONE)], &["a"], &[]),
        ];
        for (before, after, changed, removed) in rows {
            let (is_changed, is_removed) = shown(*before, after);
            assert_eq!(is_changed, *changed, "{after:?}");
            assert_eq!(is_removed, *removed, "{after:?}");
        }
    }

    #[test]
    fn state_depends_on_content_and_findings() {
        let state = |text| Arc::new(catalog(&[("a", text)]));
        assert!(are_equal(&state(ONE), &state(ONE)));
        assert!(!are_equal(&state(ONE), &state(TWO)));
    }
}
