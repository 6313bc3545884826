//! The files of the page. The build embeds them from `console/dist`; see `build.rs`.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use tonic::body::Body;

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    /// The path of its URL, such as `/assets/index-4b1c.js`.
    path: &'static str,
    /// A hash of the content in double quotes.
    etag: &'static str,
    bytes: &'static [u8],
}

mod embedded {
    use super::Asset;
    include!(concat!(env!("OUT_DIR"), "/console_assets.rs"));
}

/// The file that is sent for every view of the page.
const INDEX: &str = "/index.html";
/// The directory whose files have a hash of their content in the name.
const IMMUTABLE: &str = "/assets/";

/// The page of a binary that was built without `console/dist`.
const MISSING: Asset = Asset {
    path: INDEX,
    etag: "\"missing\"",
    bytes: b"<!doctype html>\n<html lang=\"en\">\n<title>troupe console</title>\n<h1>The page is not part of this build</h1>\n\
        <p>Build the page, then build troupe again:</p>\n\
        <pre>console/tools/build\ncargo build</pre>\n</html>\n",
};

/// Returns whether the binary was built with the page.
pub(super) const fn is_built() -> bool {
    !embedded::ASSETS.is_empty()
}

/// Answers a GET or HEAD request for a file. A path without a file extension is a view of the page.
pub(super) fn respond(method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
    let Some(asset) = find(embedded::ASSETS, path) else {
        return plain(StatusCode::NOT_FOUND, "not found");
    };
    let is_current = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|tags| tags.split(',').any(|tag| tag.trim() == asset.etag))
    });
    let body = match is_current || method == Method::HEAD {
        true => Body::empty(),
        false => Body::new(Full::from(asset.bytes)),
    };
    let mut response = Response::new(body);
    if is_current {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let caching = match asset.path.starts_with(IMMUTABLE) {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(asset.path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    response
}

/// Finds the file with this path, or the index file for a view of the page. The path is compared with the embedded
/// paths without any resolution, so no path can lead out of the directory.
fn find<'a>(assets: &'a [Asset], path: &str) -> Option<&'a Asset> {
    let named = |path: &str| assets.iter().find(|asset| asset.path == path);
    named(path).or_else(|| is_view(path).then(|| named(INDEX).unwrap_or(&MISSING)))
}

/// Returns whether a path can be a view of the page: it has no file extension, and browsers and proxies interpret it in
/// the same way. For example, a browser interprets `//host/` in a link as another host.
fn is_view(path: &str) -> bool {
    let encoded = path.to_ascii_lowercase();
    path.starts_with('/')
        && !path.contains("//")
        && !path.contains('\\')
        && !["%00", "%2e", "%2f", "%5c"].iter().any(|code| encoded.contains(code))
        && path.split('/').all(|part| !matches!(part, "." | ".."))
        && !path.rsplit('/').next().unwrap_or_default().contains('.')
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Creates a response with one line of text.
pub(super) fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[Asset] = &[
        Asset {
            path: INDEX,
            etag: "\"1\"",
            bytes: b"index",
        },
        Asset {
            path: "/assets/app-1a2b.js",
            etag: "\"2\"",
            bytes: b"app",
        },
    ];

    #[test]
    fn views_return_index_and_unknown_files_nothing() {
        for (path, found) in [
            ("/", Some(INDEX)),
            ("/login", Some(INDEX)),
            ("/sessions/01a1/threads/02b2", Some(INDEX)),
            ("/index.html", Some(INDEX)),
            ("/assets/app-1a2b.js", Some("/assets/app-1a2b.js")),
            ("/assets/other.js", None),
            ("/favicon.ico", None),
            ("/assets/../assets/app-1a2b.js", None),
            ("/../../etc/passwd.txt", None),
            ("/assets/%2e%2e/app-1a2b.js", None),
            ("/sessions/", Some(INDEX)),
            ("/%3Cimg%20src=x.png%3E/none", Some(INDEX)),
            ("*", None),
            ("", None),
            ("//evil.example/", None),
            ("/sessions//evil/", None),
            ("/\\evil/", None),
            ("/%5Cevil", None),
            ("/%2Fevil", None),
            ("/sessions/../me", None),
            ("/./sessions", None),
            ("/sessions/%2E%2e", None),
            ("/sessions/%00", None),
            ("///evil.example/sessions", None),
            ("/\\/evil.example/", None),
            ("/.%2e/etc/passwd", None),
            ("/..%5c..%5cetc", None),
            ("/%2E%2E%2Fetc%2Fpasswd", None),
            ("/assets/%2e%2e%2findex", None),
        ] {
            assert_eq!(find(FILES, path).map(|asset| asset.path), found, "{path}");
        }
        assert_eq!(find(&[], "/").map(|asset| asset.etag), Some(MISSING.etag));
        assert!(find(&[], "/assets/app.js").is_none());
    }

    #[test]
    fn current_file_is_not_sent_again() {
        let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("\"x\", \"missing\""))]);
        if !is_built() {
            assert_eq!(respond(&Method::GET, "/", &headers).status(), StatusCode::NOT_MODIFIED);
        }
        let response = respond(&Method::GET, "/", &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
    }
}
