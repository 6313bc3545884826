//! Suggestions for misspelt names.

/// Minimum similarity of a suggestion, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// Returns the name that is most similar to `text`, or `None` if no name is similar.
pub(crate) fn closest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&text, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        let roles = ["worker", "reviewer", "explorer"];
        assert_eq!(closest("reveiwer", roles), Some("reviewer"));
        assert_eq!(closest("Wroker", roles), Some("worker"));
        assert_eq!(closest("zzz", roles), None);
        assert_eq!(closest("worker", []), None);
    }
}
