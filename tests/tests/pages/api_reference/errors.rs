//! The page of the error reasons, generated from the list in the code.

use std::collections::HashMap;

use troupe_proto::reason::{DOMAIN, Reason};

use super::{names::Names, table::table};

/// The list. The descriptions of the reasons are its comments, which exist only in the source.
const LIST: &str = include_str!("../../../../proto/src/reason.rs");

/// Returns the page.
pub fn page(names: &Names) -> String {
    let links = names.links("errors", "");
    let comments = comments();
    let rows = Reason::ALL
        .iter()
        .map(|reason| {
            let name = reason.as_str();
            let Some(comment) = comments.get(name) else {
                panic!("{name} has no comment");
            };
            [format!("`{name}`"), links.prose(comment)]
        })
        .collect();
    format!(
        "\
# Error reasons

An error of Troupe carries a `google.rpc.ErrorInfo` with the domain `{DOMAIN}` and one of these reasons, from which a
test writes this page ([reason.rs](../../proto/src/reason.rs)). A reason, once released, keeps its meaning. One reason
can come with different gRPC codes. [Errors](../api.md#errors) says what to do, by code.

{}",
        table(["reason", "when"], rows)
    )
}

/// Returns the comment of each reason in the list, by the name of the reason on the wire.
fn comments() -> HashMap<&'static str, String> {
    let (_, list) = LIST.split_once("\nreasons! {").unwrap();
    let mut comments = HashMap::new();
    let mut lines = Vec::new();
    for line in list.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            lines.push(comment);
        } else if let Some((_, name)) = line.split_once(" = ") {
            comments.insert(name.trim_matches(['"', ',']), lines.join(" "));
            lines.clear();
        }
    }
    comments
}
