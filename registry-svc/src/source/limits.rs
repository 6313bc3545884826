//! Limits of template files and uploads, for the limits reference.

use svc_kit::limits::{Area, Limit};

use crate::{
    domain::yaml,
    source::{
        budget::{MAX_BYTES, MAX_WORK},
        bundle::{BundleBounds, MAX_FILES, MAX_PATH_BYTES},
        directory::{MAX_ENTRIES, MAX_FOLDERS},
        read::MAX_FILE_BYTES,
    },
};

pub(crate) fn limits() -> Vec<Area> {
    let kept = BundleBounds::default();
    vec![
        Area::new(
            "Template files",
            vec![
                Limit::bytes("a file", MAX_FILE_BYTES),
                Limit::bytes("the YAML of a file", yaml::MAX_BYTES),
                Limit::count("the opening brackets in the YAML of a file", yaml::MAX_BRACKETS),
                Limit::bytes("parsing work of a directory, in bytes of plain YAML", MAX_WORK),
                Limit::count("the files of a directory", MAX_ENTRIES),
                Limit::count("the folders of a directory of OpenCode's agents", MAX_FOLDERS),
            ],
        ),
        Area::new(
            "Uploaded workspaces",
            vec![
                Limit::count("the files of a workspace", MAX_FILES),
                Limit::bytes("a workspace", MAX_BYTES),
                Limit::bytes("a path in a workspace", MAX_PATH_BYTES),
                Limit::count("stored workspaces", kept.count),
                Limit::bytes("stored workspaces, in total", kept.bytes),
                Limit::time("time after which an unused workspace is removed", kept.idle),
            ],
        ),
    ]
}
