#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: Debian packages
# and a .venv with LibTorch. When nothing is missing it only looks, without
# network, in a fraction of a second.
#
#   scripts/setup.sh           install
#   scripts/setup.sh --check   only say what is missing
#
# LibTorch is taken from Torch_DIR or CMAKE_PREFIX_PATH, else from the torch of
# python3 (of a supported version), else from .venv; cmake/find_torch.cmake looks in
# the same order. With CI=true, optional packages are required too. While something
# is installed, a line about every 20 s says so (TESSERA_PROGRESS_SECONDS).
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
supported=$(sed -nE 's/^SUPPORTED = \(\(([0-9]+), ([0-9]+)\), \(([0-9]+), ([0-9]+)\)\)/\1.\2 to \3.\4/p' scripts/find_torch.py)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say() { echo "setup: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Runs a command and says what it does: at once, and from time to time how long it
# has taken by then. A `sleep` that outlives its loop must not hold our output open.
with_progress() {
  local text=$1 ticker status=0
  shift
  say "$text"
  SECONDS=0
  while sleep "${TESSERA_PROGRESS_SECONDS:-20}" >/dev/null 2>&1 && kill -0 $$; do
    say "$text ($((SECONDS / 60)):$(printf %02d $((SECONDS % 60))))"
  done &
  ticker=$!
  "$@" || status=$?
  { kill $ticker && wait $ticker; } 2>/dev/null || true
  return $status
}

# Package, whether the build needs it, and how to see that it is there.
packages='
g++                must command ${CXX:-c++}
cmake              must cmake
ninja-build        must command ninja
make               must command make
git                must command git
python3            must command python3
libgtest-dev       must header gtest/gtest.h
libcli11-dev       must header CLI/CLI.hpp
nlohmann-json3-dev must header nlohmann/json.hpp
libxxhash-dev      must header xxhash.h
python3-dev        may  python_header
ccache             may  command ccache
clang-format       may  command clang-format
clang-tidy         may  command clang-tidy
libbenchmark-dev   may  header benchmark/benchmark.h
libopenmpi-dev     may  command mpicxx
openmpi-bin        may  command mpirun
valgrind           may  command valgrind
'

has_command() { command -v "${1%% *}" >/dev/null; }
has_cmake() {
  has_command cmake || return 1
  local version
  version=$(cmake --version | sed -n 's/^cmake version //p')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -1)" = 3.25 ]
}
has_header() {
  local dir
  for dir in /usr/include /usr/local/include; do
    [ -e "$dir/$1" ] && return
  done
  [ "$1" = gtest/gtest.h ] && [ -n "${TESSERA_GTEST_DIR:-}" ] && return
  # CPATH, compilers of other prefixes.
  echo "#include <$1>" | ${CXX:-c++} -M -x c++ - >/dev/null 2>&1
}

has_python_header() {
  local probe='import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
  python3 -c "$probe" 2>/dev/null || has_header Python.h
}

# Prints the missing packages of one need.
missing() {
  local package need probe
  while read -r package need probe; do
    [ "$need" = "$1" ] || continue
    eval "has_$probe" || echo "$package"
  done < <(grep . <<<"$packages")
}

torch_given() {
  local root place
  [ -n "${Torch_DIR:-}" ] && return
  for root in $(tr ':;' '  ' <<<"${CMAKE_PREFIX_PATH:-}"); do
    for place in Torch share/cmake/Torch lib/cmake/Torch; do
      [ -e "$root/$place/TorchConfig.cmake" ] && return
    done
  done
  return 1
}
torch_of_python3() {
  local found=0
  python3 scripts/find_torch.py >/dev/null 2>"$log" || found=$?
  if [ "$found" = 2 ] && ! torch_of_venv; then
    say "python3 has torch $(tail -1 "$log"), which is not supported ($supported are): using .venv"
  fi
  return $found
}
torch_of_venv() {
  [ -x .venv/bin/python ] || return 1
  .venv/bin/python scripts/find_torch.py --exact $torch_version \
    --modules numpy pytest expecttest safetensors >/dev/null 2>&1
}
has_torch() { torch_given || torch_of_python3 || torch_of_venv; }

# Runs apt-get as root; fails when that cannot be.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif has_command sudo && sudo -n true 2>/dev/null; then
    sudo "$@"
  elif has_command sudo && [ -t 0 ]; then
    sudo "$@"
  else
    echo "neither root nor sudo" >&2
    return 1
  fi
}
install_packages() {
  has_command apt-get || {
    echo "no apt-get here" >"$log"
    return 1
  }
  with_progress "installing $*" apt_install "$@"
}
apt_install() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false)
  as_root "${apt[@]}" install -y "$@" >"$log" 2>&1 && return
  # A machine whose package lists are empty or old.
  as_root "${apt[@]}" update >"$log" 2>&1 &&
    as_root "${apt[@]}" install -y "$@" >"$log" 2>&1
}
reason() { grep -v '^ *$' "$log" | grep -iE '^E:|error|neither|no apt' | head -1; }

require_packages() {
  local must may required
  must=$(missing must | tr '\n' ' ')
  may=$(missing may | tr '\n' ' ')
  [ -n "$must$may" ] || return 0
  if [ "$mode" = install ]; then
    # shellcheck disable=SC2086
    install_packages $must $may || true
    must=$(missing must | tr '\n' ' ')
    may=$(missing may | tr '\n' ' ')
  fi
  required=$must
  [ "${CI:-}" != true ] || required="$must$may"
  [ -z "$required" ] ||
    fail "missing and not installed: ${required% } ($(reason || echo "not on PATH")); install these packages, then try again"
  [ -z "$may" ] || say "without ${may% }: the checks and benchmarks that use them are skipped"
}

require_torch() {
  has_torch && return
  local wanted="LibTorch $supported is missing: set Torch_DIR"
  [ "$mode" = install ] || fail "$wanted, or run 'make setup'"
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    install_packages python3-venv ||
    fail "missing and not installed: python3-venv ($(reason)); install it, or set Torch_DIR"
  .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    python3 -m venv --clear .venv >"$log" 2>&1 ||
    fail "python3 -m venv .venv failed: $(tail -1 "$log")"
  install_wheels "torch==$torch_version" ||
    fail "$wanted; pip could not install torch==$torch_version into .venv: $(grep -i error "$log" | tail -1)"
  install_wheels numpy pytest expecttest safetensors ||
    say "pip could not install numpy, pytest, expecttest and safetensors into .venv: the tests of the Python package are skipped"
  install_wheels mypy || say "pip could not install mypy into .venv: the test of types is skipped"
}
install_wheels() {
  with_progress "installing $* into .venv" pip_install "$@"
}
pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" \
    >"$log" 2>&1
}

mode=install
[ "${1:-}" != --check ] || mode=check
require_packages
require_torch
