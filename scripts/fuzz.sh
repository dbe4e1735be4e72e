#!/usr/bin/env bash
# Fuzzes the reader of saved metadata under AddressSanitizer and
# UndefinedBehaviorSanitizer: tests/fuzz/serialize_fuzz.cpp with clang's libFuzzer.
#
#   scripts/fuzz.sh [RUNS]    1,000,000 unless told; FUZZ_SECONDS limits the time
#
# The reader is compiled with clang; what it needs of the library beyond that comes
# from build/lib, so `scripts/build.sh dev` comes first. Works in build-fuzz, where
# the corpus and an input that fails stay.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-1000000}
seconds=${FUZZ_SECONDS:-1800}
clang=${FUZZ_CLANG:-clang++-14}
out=build-fuzz
sources='remote_device metadata choices sharding_spec shard_checks infer_spec
spec_registry codec byte_fields text_fields value_fields spec_fields serialize'

say() { echo "fuzz: $*" >&2; }
has_fuzzer() {
  command -v "$clang" >/dev/null || return 1
  local runtime
  runtime=$("$clang" -print-file-name=libclang_rt.fuzzer-x86_64.a)
  [ -e "$runtime" ] || compgen -G \
    "$("$clang" -print-resource-dir)/lib/*/libclang_rt.fuzzer*.a" >/dev/null
}
has_fuzzer || {
  say "installing clang-14 libclang-rt-14-dev"
  apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false)
  [ "$(id -u)" = 0 ] || apt=(sudo -n "${apt[@]}")
  "${apt[@]}" install -y clang-14 libclang-rt-14-dev >/dev/null ||
    { "${apt[@]}" update && "${apt[@]}" install -y clang-14 libclang-rt-14-dev; } >/dev/null
  has_fuzzer || {
    say "clang's libFuzzer is missing: install clang-14 and libclang-rt-14-dev"
    exit 1
  }
}
[ -e build/lib/libtessera_sharded_tensor.so ] || {
  say "build/lib/libtessera_sharded_tensor.so is missing: run 'scripts/build.sh dev'"
  exit 1
}
torch=$(sed -n 's/^Torch_DIR:PATH=//p' build/CMakeCache.txt)
torch=$(cd "$torch/../../.." && pwd)

mkdir -p $out/corpus
rm -f $out/*.o
sanitize=(-fsanitize=fuzzer,address,undefined -fno-sanitize=vptr
  -fno-sanitize-recover=all)
flags=(-std=c++20 -O1 -g -fno-omit-frame-pointer "${sanitize[@]}"
  -Iinclude -Isrc -Itests -isystem "$torch/include"
  -isystem "$torch/include/torch/csrc/api/include")
files=(tests/fuzz/serialize_fuzz.cpp)
for name in $sources; do
  files+=("src/sharded_tensor/$name.cpp")
done
say "compiling ${#files[@]} sources"
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c \
  'file=$1 out=$2; shift 2; exec "$@" -c "$file" -o "$out/$(basename "$file" .cpp).o"' \
  sh {} $out "$clang" "${flags[@]}"
"$clang" "${sanitize[@]}" -o $out/serialize_fuzz $out/*.o \
  -Lbuild/lib -ltessera_sharded_tensor -ltessera_comm -ltessera_layout \
  -L"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 \
  -Wl,-rpath,"$PWD/build/lib:$torch/lib" -Wl,--allow-shlib-undefined

$out/serialize_fuzz --seed $out/corpus
# Leaks that LibTorch makes while it starts are none of ours.
cd $out
ASAN_OPTIONS=detect_leaks=0 ./serialize_fuzz corpus -runs="$runs" -max_total_time="$seconds" \
  -max_len=4096 -timeout=5 -rss_limit_mb=2048 -malloc_limit_mb=1 -print_final_stats=1 >log 2>&1 || {
  tail -40 log
  say "failed; the input lies in $out"
  exit 1
}
executed=$(sed -n 's/^stat::number_of_executed_units: //p' log)
say "$(sed -n 's/^stat::average_exec_per_sec: *//p' log) per second, $executed executions, no failure"
[ "$executed" -ge "$runs" ] || {
  say "stopped after $seconds s, before $runs executions"
  exit 1
}
