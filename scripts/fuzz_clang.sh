# Sourced by the scripts that fuzz: finds clang's libFuzzer, installs it where it is
# missing.
clang=${FUZZ_CLANG:-clang++-14}

say() { echo "fuzz: $*" >&2; }
has_fuzzer() {
  command -v "$clang" >/dev/null || return 1
  local runtime
  runtime=$("$clang" -print-file-name=libclang_rt.fuzzer-x86_64.a)
  [ -e "$runtime" ] || compgen -G \
    "$("$clang" -print-resource-dir)/lib/*/libclang_rt.fuzzer*.a" >/dev/null
}
require_fuzzer() {
  has_fuzzer && return
  say "installing clang-14 libclang-rt-14-dev"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false)
  [ "$(id -u)" = 0 ] || apt=(sudo -n "${apt[@]}")
  "${apt[@]}" install -y clang-14 libclang-rt-14-dev >/dev/null ||
    { "${apt[@]}" update && "${apt[@]}" install -y clang-14 libclang-rt-14-dev; } >/dev/null
  has_fuzzer || {
    say "clang's libFuzzer is missing: install clang-14 and libclang-rt-14-dev"
    exit 1
  }
}
