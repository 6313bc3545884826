//! The tables of a batch: its items as CSV, and its results as CSV.

use std::{fs::File, io, path::Path};

use troupe_proto::supervisor::v1::{GroupItem, GroupItemStatus};

use crate::{
    error::{Error, Result},
    names,
};

/// The default heading of the column with the keys.
const KEY: &str = "key";

/// Reads the items of a batch. `-` reads standard input.
pub(super) fn read(path: &Path, key: Option<&str>) -> Result<Vec<GroupItem>> {
    let name = format!("\"{}\"", path.display());
    if path.as_os_str() == "-" {
        return parse(io::stdin().lock(), "standard input", key);
    }
    let file = File::open(path).map_err(|error| Error::failure(format!("cannot read {name}: {error}")))?;
    parse(file, &name, key)
}

fn parse(source: impl io::Read, name: &str, key: Option<&str>) -> Result<Vec<GroupItem>> {
    let unreadable = |error: csv::Error| Error::usage(format!("{name} is not a CSV file: {error}"));
    let mut reader = csv::Reader::from_reader(source);
    let headings = reader.headers().map_err(unreadable)?.clone();
    let column = match key {
        Some(key) => Some(headings.iter().position(|heading| heading == key).ok_or_else(|| {
            let known: Vec<&str> = headings.iter().collect();
            Error::usage(format!("{name} has no column \"{key}\""))
                .hint(format!("its columns are {}", known.join(", ")))
        })?),
        None => headings.iter().position(|heading| heading == KEY),
    };
    let mut items = Vec::new();
    for (number, row) in (1_u32..).zip(reader.records()) {
        let row = row.map_err(unreadable)?;
        let own = column.and_then(|column| row.get(column));
        let is_value = |(heading, _): &(&str, &str)| *heading != KEY;
        items.push(GroupItem {
            key: own.map_or_else(|| number.to_string(), str::to_owned),
            variables: headings
                .iter()
                .zip(row.iter())
                .filter(is_value)
                .map(|(heading, value)| (heading.to_owned(), value.to_owned()))
                .collect(),
            message: String::new(),
        });
    }
    if items.is_empty() {
        return Err(Error::usage(format!("{name} has no rows")).hint("the first line has the names of the columns"));
    }
    Ok(items)
}

/// Writes the results of a batch as CSV.
pub(super) fn write(path: &Path, items: &[GroupItemStatus]) -> Result<()> {
    let failed = |error: csv::Error| Error::failure(format!("cannot write \"{}\": {error}", path.display()));
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    let headings = [
        "key",
        "state",
        "attempts",
        "thread_id",
        "tokens",
        "cost_micros",
        "result",
        "message",
        "error",
    ];
    writer.write_record(headings).map_err(failed)?;
    for item in items {
        let usage = item.usage.unwrap_or_default();
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        let result = item.result.as_ref().map(|result| result.document_json.as_str());
        writer
            .write_record([
                item.key.as_str(),
                names::group_item_state(item.state()),
                &item.attempts.to_string(),
                &item.thread_id,
                &tokens.to_string(),
                &usage.cost_micros.to_string(),
                result.unwrap_or_default(),
                &item.message,
                &item.error,
            ])
            .map_err(failed)?;
    }
    writer.flush().map_err(|error| failed(error.into()))
}

/// Returns the outcome of an item: its error, its result, or its last message.
pub(super) fn outcome(item: &GroupItemStatus) -> &str {
    let result = item.result.as_ref().map(|result| result.document_json.as_str());
    match result {
        _ if !item.error.is_empty() => &item.error,
        Some(result) if !result.is_empty() => result,
        _ => &item.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str, key: Option<&str>) -> Vec<String> {
        let items = parse(text.as_bytes(), "the file", key).unwrap();
        items.into_iter().map(|item| item.key).collect()
    }

    #[test]
    fn rows_become_items() {
        let text = "path,key\n\"a,b.rs\",one\nc.rs,two\n";
        let items = parse(text.as_bytes(), "the file", None).unwrap();
        assert_eq!(items[0].key, "one");
        assert_eq!(items[0].variables["path"], "a,b.rs");
        assert_eq!(items[0].variables.len(), 1);
        assert_eq!(keys("path\na\nb\n", None), ["1", "2"]);
        assert_eq!(keys("path\na\nb\n", Some("path")), ["a", "b"]);
    }

    #[test]
    fn unusable_tables_are_rejected() {
        let error = |text: &str, key| {
            parse(text.as_bytes(), "the file", key)
                .unwrap_err()
                .message()
                .to_owned()
        };
        assert_eq!(error("path\n", None), "the file has no rows");
        assert_eq!(error("path\na\n", Some("name")), "the file has no column \"name\"");
        assert!(error("path\na,b\n", None).starts_with("the file is not a CSV file: "));
    }
}
