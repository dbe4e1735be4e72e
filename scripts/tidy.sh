#!/usr/bin/env bash
# Runs clang-tidy on the sources of src/ and cli/ (headers with them).
#
#   scripts/tidy.sh            all of them
#   scripts/tidy.sh --changed  those that differ from the branch main
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-tidy >/dev/null || {
  echo "tidy: clang-tidy is not on PATH; run 'make setup'" >&2
  exit 1
}
sources() {
  if [ "${1:-}" = --changed ]; then
    git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" -- src cli
    git ls-files --others --exclude-standard -- src cli
  else
    git ls-files -- src cli
  fi | grep '\.cpp$' || true
}
files=$(sources "$@")
[ -n "$files" ] || {
  echo "tidy: no sources to look at"
  exit 0
}
# GCC's own options mean nothing to clang.
xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy --quiet -p build \
  --extra-arg=-Wno-unknown-warning-option <<<"$files" 2> >(grep -v ' warnings\? generated' >&2)
echo "tidy: $(wc -l <<<"$files") sources, no findings"
