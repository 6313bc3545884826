# shellcheck shell=bash
# What the tests of images have in common; sourced in the root of the repository, after tests/smoke/lib.sh. $programs is the
# directory with the static programs, and buildah has a store of its own.

# shellcheck source=deploy/release/lib.sh
source deploy/release/lib.sh

# Ends the test, as a success unless nothing may be left out.
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
# The target directory is around $TROUPE_BIN; deploy/test/run says nothing else of it.
programs=${TROUPE_STATIC:-${TROUPE_BIN:-target/debug}/../$(release_target)/debug}
if [[ ! -x $programs/troupe ]]; then
  not_checked "there are no static programs; build them with: deploy/release/static dev"
fi
own_store "$SMOKE_DIR/store"
