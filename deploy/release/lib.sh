# shellcheck shell=bash
# Functions and values that all scripts of a release share. Source it in the root of the repository.

# Directory of the tools of .ci/install, deploy/test/install and deploy/release/install.
PATH="${TROUPE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tools}/bin:$PATH"

# The programs of a release and of the image.
RELEASE_PROGRAMS=(a2a-svc registry-svc supervisor-svc troupe)

# Prints the version of the workspace, which is the version of everything that is built from it.
release_version() {
  sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
}

# Prints the timestamp of all files, in seconds. It is the time of the commit, so that one commit always gives the same
# bytes.
release_time() {
  echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
}

# Prints Cargo's target for a static build on this machine.
release_target() {
  echo "$(uname -m)-unknown-linux-musl"
}

# Gives buildah a separate store in that directory, so that images of this machine do not affect the build, and the
# built image is not added to them.
own_store() { # DIRECTORY
  mkdir -p "$1"
  cat >"$1/storage.conf" <<STORAGE
[storage]
driver = "vfs"
graphroot = "$1/graph"
runroot = "$1/run"
STORAGE
  export CONTAINERS_STORAGE_CONF=$1/storage.conf BUILDAH_ISOLATION=chroot
}
