//! The registry's authorization table: which callers may call which methods. A method without a row is rejected.

use svc_kit::auth::{
    Caller::{self, Admin, Service, Viewer},
    Effect, Row,
};

/// Reads: operators, and the supervisor on behalf of threads.
const READS: &[Caller] = &[Admin, Viewer, Service];
/// Uploads and reads of bundles. Callers that may upload a bundle may also read it back.
const BUNDLES: &[Caller] = &[Admin, Service];

macro_rules! rows {
    ($($method:literal => $effect:ident $who:expr,)+) => {
        /// The table.
        pub const AUTHORITY: &[Row] = &[$(Row {
            method: concat!("/troupe.registry.v1.AgentRegistryService/", $method),
            who: $who,
            effect: Effect::$effect,
        },)+];
    };
}

rows! {
    "ListAgents" => Reads READS,
    "ResolveSpawn" => Reads READS,
    "RouteAgent" => Reads READS,
    "PutWorkspace" => Changes BUNDLES,
    "GetWorkspace" => Reads BUNDLES,
    "ListDiagnostics" => Reads READS,
    "WatchAgents" => Reads READS,
    "DescribeSpawnTool" => Reads READS,
}

#[cfg(test)]
mod tests {
    use super::AUTHORITY;

    #[test]
    fn every_method_has_a_row() {
        let missing = svc_kit::auth::rows_missing(
            troupe_proto::FILE_DESCRIPTOR_SET,
            &["troupe.registry.v1.AgentRegistryService"],
            AUTHORITY,
        );
        assert_eq!(missing, Vec::<String>::new());
    }
}
