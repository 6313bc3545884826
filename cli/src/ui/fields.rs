//! One object as a list of fields.

use super::style;
use crate::sanitize;

/// The fields of an object, in order. Empty values are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    fields: Vec<(&'static str, String)>,
}

impl Fields {
    /// Adds a field. The value is sanitized.
    #[must_use]
    pub(crate) fn field(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        let value = sanitize::block(value.as_ref()).trim().to_owned();
        if !value.is_empty() {
            self.fields.push((name, value));
        }
        self
    }

    /// Renders one field per line. Further lines of a value are indented.
    pub(crate) fn render(&self) -> String {
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines = self.fields.iter().map(|(name, value)| {
            let indent = format!("\n{}", " ".repeat(width + 2));
            let name = format!("{name:<width$}");
            format!("{}  {}", style::paint(style::DIM, name), value.replace('\n', &indent))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::plain;

    #[test]
    fn values_are_aligned_and_empty_ones_are_left_out() {
        let fields = Fields::default()
            .field("id", "1")
            .field("alias", "")
            .field("message", "one\ntwo\u{1b}[2J");
        assert_eq!(plain(&fields.render()), "id       1\nmessage  one\n         two[2J");
    }
}
