//! Limits of requests and responses, for the limits reference.

use svc_kit::limits::{Area, Limit};

use crate::grpc::{
    agents::DIAGNOSTICS_BYTES,
    bounds::{INSTRUCTIONS_BYTES, MODEL_BYTES, NAME_BYTES, PAGE_SIZE, PATH_BYTES, TEXT_BYTES},
    describe::MAX_NAMES,
    page::PAGE_BYTES,
    route::MAX_SCORES,
    watch::WatchBounds,
};

pub(crate) fn limits() -> Vec<Area> {
    let (default_size, max_size) = PAGE_SIZE;
    let watch = WatchBounds::default();
    vec![
        Area::new(
            "Requests to the registry",
            vec![
                Limit::bytes("a cwd", PATH_BYTES),
                Limit::bytes("a role, a persona or a provider", NAME_BYTES),
                Limit::bytes("a model", MODEL_BYTES),
                Limit::bytes("inherited instructions", INSTRUCTIONS_BYTES),
                Limit::bytes("the text of a RouteAgent", TEXT_BYTES),
                Limit::count("the agent_types of a DescribeSpawnTool", MAX_NAMES),
            ],
        ),
        Area::new(
            "Answers of the registry",
            vec![
                Limit::count("entries of a page where page_size is 0", default_size),
                Limit::count("entries of a page", max_size),
                Limit::bytes("a page; a larger entry gets its own page", PAGE_BYTES),
                Limit::bytes("diagnostics in a list of agents", DIAGNOSTICS_BYTES),
                Limit::count("the scores of a RouteAgent", MAX_SCORES),
            ],
        ),
        Area::new(
            "Watching agents",
            vec![
                Limit::count("concurrent streams", watch.streams),
                Limit::time("maximum delay until a change on disk is reported", watch.poll),
                Limit::time(
                    "silence on a stream before the revision is repeated",
                    watch.bookmark_every,
                ),
                Limit::time("lifetime of a stream, plus up to a fifth", watch.lifetime),
            ],
        ),
    ]
}
