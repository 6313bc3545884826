//! The section of a service: a table of its methods, then each method with its request, its response, and the permitted
//! callers.

use prost_types::{MethodDescriptorProto, ServiceDescriptorProto};
use svc_kit::auth::Caller;

use super::{
    comments::{inside, step},
    names::anchor,
    source::Source,
    table::table,
};

/// Returns the blocks of a service whose comment is at `path`.
pub fn service(source: &Source<'_>, service: &ServiceDescriptorProto, path: &[i32]) -> Vec<String> {
    let methods: Vec<_> = (0..)
        .zip(&service.method)
        .map(|(position, method)| (method, inside(path, step::METHOD, position)))
        .collect();
    let rows = methods
        .iter()
        .map(|(method, path)| {
            [
                format!("[{}](#{})", method.name(), anchor(method.name())),
                kind(method).to_owned(),
                source.summary(path),
            ]
        })
        .collect();
    let mut blocks = vec![
        format!("## {}\n", service.name()),
        source.comment(path),
        table(["method", "kind", "what"], rows),
    ];
    for (method, path) in methods {
        let full_name = format!("/{}.{}/{}", source.file.package(), service.name(), method.name());
        blocks.push(format!("### {}\n", method.name()));
        blocks.push(source.comment(&path));
        blocks.push(format!(
            "Takes {}, answers {}. May be called by {}.\n",
            messages(source, method.client_streaming(), method.input_type()),
            messages(source, method.server_streaming(), method.output_type()),
            callers(&full_name),
        ));
    }
    blocks
}

/// Returns gRPC's name of the kind of method.
fn kind(method: &MethodDescriptorProto) -> &'static str {
    match (method.client_streaming(), method.server_streaming()) {
        (false, false) => "unary",
        (false, true) => "server streaming",
        (true, false) => "client streaming",
        (true, true) => "bidirectional streaming",
    }
}

fn messages(source: &Source<'_>, streamed: bool, full_name: &str) -> String {
    let one = source.links.to_type(full_name);
    if streamed { format!("a stream of {one}") } else { one }
}

/// Returns the permitted callers of a method, from the table of its service.
fn callers(method: &str) -> String {
    let mut rows = registry_svc::AUTHORITY.iter().chain(supervisor_svc::AUTHORITY);
    let Some(row) = rows.find(|row| row.method == method) else {
        panic!("{method} is missing in the table of callers");
    };
    let who: Vec<&str> = row.who.iter().map(|caller| plural(*caller)).collect();
    match who.as_slice() {
        [] => panic!("{method} has no permitted callers"),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn plural(caller: Caller) -> &'static str {
    match caller {
        Caller::Admin => "operators",
        Caller::Viewer => "viewers",
        Caller::Thread => "threads",
        Caller::Runner => "runners",
        Caller::Service => "services",
        Caller::A2aCaller => "A2A callers",
    }
}
