#!/usr/bin/env bash
# Configures a preset where that is needed and builds it, or some targets of it.
#
#   scripts/build.sh PRESET [TARGET...]     JOBS=n limits what runs at a time
#
# Where no terminal shows ninja's line, a line about every 20 s says how far it is
# (TESSERA_PROGRESS_SECONDS).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
case $preset in
dev) dir=build ;;
*) dir=build-$preset ;;
esac

# What a configuration depends on beside the CMake files, which ninja watches.
settings=$(
  echo "Torch_DIR=${Torch_DIR:-} CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:-}"
  echo "CXX=${CXX:-} CXXFLAGS=${CXXFLAGS:-} GTEST=${TESSERA_GTEST_DIR:-}"
  cat CMakePresets.json
)
cached_torch() { sed -n 's/^Torch_DIR:[A-Z]*=//p' $dir/CMakeCache.txt; }
is_configured() {
  [ -e $dir/build.ninja ] && [ -d "$(cached_torch)" ] &&
    [ "$(cat $dir/.settings 2>/dev/null)" = "$settings" ]
}
if ! is_configured; then
  echo "build: configuring preset $preset"
  mkdir -p $dir
  rm -f $dir/.settings
  cmake --fresh --preset "$preset" >$dir/configure.log 2>&1 || {
    cat $dir/configure.log
    exit 1
  }
  echo "$settings" >$dir/.settings
  grep -E '^-- (LibTorch|Skip)' $dir/configure.log || true
fi

# A file that includes ATen takes about 1.5 GiB to compile.
memory=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
jobs=$(nproc)
[ "$memory" -ge "$jobs" ] || jobs=$((memory > 0 ? memory : 1))
ninja=(ninja -C $dir -j "${JOBS:-$jobs}" "$@")
[ ! -t 1 ] || exec "${ninja[@]}"
exec scripts/build_progress.py "${ninja[@]}"
