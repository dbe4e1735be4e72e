#!/usr/bin/env bash
# Everything that is too long for `make test`: the unit and threads tests under
# AddressSanitizer with UndefinedBehaviorSanitizer, then under ThreadSanitizer,
# clang-tidy, all tests in their long forms (TESSERA_LONG=1), a million damaged
# inputs of the reader of saved metadata, sharding texts beside those of JAX where
# it can be installed, bugs planted in the planner that its tests must find, and the
# Python package installed by pip into a fresh venv.
# Runs every part, and fails at the end when one of them failed.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()
part() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}
sanitized() {
  scripts/build.sh "$1" &&
    (cd "build-$1" && ctest --output-on-failure --no-tests=error \
      -L '^(unit|threads|sanitizer)$' -j "$(nproc)")
}
long_forms() {
  (cd build && TESSERA_LONG=1 ctest --output-on-failure --no-tests=error \
    -j "$(nproc)")
}
part "AddressSanitizer, UndefinedBehaviorSanitizer" sanitized asan
part "ThreadSanitizer" sanitized tsan
part "build" scripts/build.sh dev
part "clang-tidy" scripts/tidy.sh
part "long forms" long_forms
part "fuzzing" scripts/fuzz.sh
part "texts of JAX" python3 -B tests/process/xla_jax_test.py
part "planted bugs" python3 -B tests/plan/planted_bugs.py
part "pip install" python3 -B tests/python/pip_install.py
if [ ${#failed[@]} != 0 ]; then
  printf 'check-long: failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "check-long: all passed"
