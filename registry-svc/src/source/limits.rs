//! The numbers of files and uploads, for the table of all numbers.

use svc_kit::limits::Limit;

use crate::{
    domain::yaml,
    source::{
        budget::{MAX_BYTES, MAX_WORK},
        bundle::{BundleBounds, MAX_FILES, MAX_PATH_BYTES},
        directory::{MAX_ENTRIES, MAX_FOLDERS},
        read::MAX_FILE_BYTES,
    },
};

const FILES: &str = "Template files";
const UPLOADS: &str = "Uploaded workspaces";

pub(crate) fn limits() -> Vec<Limit> {
    let kept = BundleBounds::default();
    vec![
        Limit::bytes(FILES, "a file", MAX_FILE_BYTES),
        Limit::bytes(FILES, "the YAML of a file", yaml::MAX_BYTES),
        Limit::count(FILES, "the opening brackets in the YAML of a file", yaml::MAX_BRACKETS),
        Limit::bytes(FILES, "parsing work of a directory, in bytes of plain YAML", MAX_WORK),
        Limit::count(FILES, "the files of a directory", MAX_ENTRIES),
        Limit::count(FILES, "the folders of a directory of OpenCode's agents", MAX_FOLDERS),
        Limit::count(UPLOADS, "the files of a workspace", MAX_FILES),
        Limit::bytes(UPLOADS, "a workspace", MAX_BYTES),
        Limit::bytes(UPLOADS, "a path in a workspace", MAX_PATH_BYTES),
        Limit::count(UPLOADS, "stored workspaces", kept.count),
        Limit::bytes(UPLOADS, "stored workspaces, in total", kept.bytes),
        Limit::time(UPLOADS, "time after which an unused workspace is removed", kept.idle),
    ]
}
