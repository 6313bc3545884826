//! The numbers of requests and answers, for the table of all numbers.

use svc_kit::limits::Limit;

use crate::grpc::{
    agents::DIAGNOSTICS_BYTES,
    bounds::{INSTRUCTIONS_BYTES, MODEL_BYTES, NAME_BYTES, PAGE_SIZE, PATH_BYTES, TEXT_BYTES},
    describe::MAX_NAMES,
    page::PAGE_BYTES,
    route::MAX_SCORES,
    watch::WatchBounds,
};

const REQUESTS: &str = "Requests to the registry";
const ANSWERS: &str = "Answers of the registry";
const WATCHING: &str = "Watching agents";

pub(crate) fn limits() -> Vec<Limit> {
    let (default_size, max_size) = PAGE_SIZE;
    let watch = WatchBounds::default();
    vec![
        Limit::bytes(REQUESTS, "a cwd", PATH_BYTES),
        Limit::bytes(REQUESTS, "a role, a persona or a provider", NAME_BYTES),
        Limit::bytes(REQUESTS, "a model", MODEL_BYTES),
        Limit::bytes(REQUESTS, "inherited instructions", INSTRUCTIONS_BYTES),
        Limit::bytes(REQUESTS, "the text of a RouteAgent", TEXT_BYTES),
        Limit::count(REQUESTS, "the agent_types of a DescribeSpawnTool", MAX_NAMES),
        Limit::count(ANSWERS, "entries of a page where page_size is 0", default_size),
        Limit::count(ANSWERS, "entries of a page", max_size),
        Limit::bytes(ANSWERS, "a page; a larger entry gets its own page", PAGE_BYTES),
        Limit::bytes(ANSWERS, "diagnostics in a list of agents", DIAGNOSTICS_BYTES),
        Limit::count(ANSWERS, "the scores of a RouteAgent", MAX_SCORES),
        Limit::count(WATCHING, "concurrent streams", watch.streams),
        Limit::time(WATCHING, "maximum delay until a change on disk is reported", watch.poll),
        Limit::time(
            WATCHING,
            "silence on a stream before the revision is repeated",
            watch.bookmark_every,
        ),
        Limit::time(WATCHING, "lifetime of a stream, plus up to a fifth", watch.lifetime),
    ]
}
