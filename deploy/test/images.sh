# shellcheck shell=bash
# Common parts of the tests of images. Source it in the root of the repository, after tests/smoke/lib.sh. $programs is
# the directory with the static programs, and buildah has a separate store.

# shellcheck source=deploy/release/lib.sh
source deploy/release/lib.sh

# Ends the test. It counts as passed unless every check must run.
not_checked() { # WHY
  echo "not checked: ${0##*/}: $1"
  [[ ${TROUPE_CI_STRICT:-} != 1 ]] || fail "nothing is left out"
  trap - EXIT
  rm -rf "$SMOKE_DIR"
  exit $((SMOKE_FAILED > 0))
}

if ! command -v buildah >/dev/null || ((EUID != 0)); then
  not_checked "it takes buildah, and root to build without a user's namespaces"
fi
# The target directory contains $TROUPE_BIN, which is all that deploy/test/run passes on.
programs=${TROUPE_STATIC:-${TROUPE_BIN:-target/debug}/../$(release_target)/debug}
if [[ ! -x $programs/troupe ]]; then
  not_checked "there are no static programs; build them with: deploy/release/static dev"
fi
own_store "$SMOKE_DIR/store"
