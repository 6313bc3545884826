# shellcheck shell=bash
# What a release and everything in it agree on; sourced, in the root of the repository.

# Directory of the tools of .ci/install, deploy/test/install and deploy/release/install.
PATH="${TROUPE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tools}/bin:$PATH"

# The programs of a release and of the image.
RELEASE_PROGRAMS=(a2a-svc registry-svc supervisor-svc troupe)

# The version of the workspace, and so of all that is built from it.
release_version() {
  sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
}

# The timestamp of all files, in seconds: that of the commit, so that the same commit gives the same bytes.
release_time() {
  echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
}

# Cargo's target for a static build on this machine.
release_target() {
  echo "$(uname -m)-unknown-linux-musl"
}

# Gives buildah a store of its own in that directory, in plain directories, so that nothing of this machine's gets into
# an image, and the image not among this machine's.
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
