#!/usr/bin/env bash
# Fuzzes the reader of saved metadata under AddressSanitizer and
# UndefinedBehaviorSanitizer: tests/sharded_tensor/format/serialize_fuzz.cpp with clang's libFuzzer.
#
#   scripts/fuzz.sh [RUNS]    1,000,000 unless told; FUZZ_SECONDS limits the time
#
# First a fault is planted that the fuzzer must find (TESSERA_PLANTED_FAULT there).
#
# The reader is compiled with clang; what it needs of the library beyond that comes
# from build/lib, so `scripts/build.sh dev` comes first. Works in build-fuzz, where
# the corpus and an input that fails stay. Readers of checkpoint files, which need no
# library, have a script of their own: fuzz_io.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/fuzz_clang.sh

runs=${1:-1000000}
seconds=${FUZZ_SECONDS:-1800}
out=build-fuzz
sources='spec/remote_device spec/metadata spec/enum_codec spec/sharding_spec
spec/shard_checks spec/infer_spec spec/spec_registry format/codec
format/encode_types format/encode_specs format/serialize'

require_fuzzer
[ -e build/lib/libtessera_sharded_tensor.so ] || {
  say "build/lib/libtessera_sharded_tensor.so is missing: run 'scripts/build.sh dev'"
  exit 1
}
torch=$(sed -n 's/^Torch_DIR:PATH=//p' build/CMakeCache.txt)
torch=$(cd "$torch/../../.." && pwd)

rm -rf $out/objects $out/planted
mkdir -p $out/corpus $out/objects $out/planted
sanitize=(-fsanitize=fuzzer,address,undefined -fno-sanitize=vptr
  -fno-sanitize-recover=all)
flags=(-std=c++20 -O1 -g -fno-omit-frame-pointer "${sanitize[@]}"
  -Iinclude -Isrc -Itests -isystem "$torch/include"
  -isystem "$torch/include/torch/csrc/api/include")
# What to compile, a line each.
compilations() {
  local target=tests/sharded_tensor/format/serialize_fuzz.cpp name
  echo "-c $target -o $out/serialize_fuzz.o"
  echo "-c $target -o $out/planted_fuzz.o -DTESSERA_PLANTED_FAULT"
  for name in $sources; do
    echo "-c src/sharded_tensor/$name.cpp -o $out/objects/${name##*/}.o"
  done
}
say "compiling $(compilations | wc -l) sources"
compilations | xargs -P "${JOBS:-$(nproc)}" -L 1 "$clang" "${flags[@]}"
for program in serialize_fuzz planted_fuzz; do
  "$clang" "${sanitize[@]}" -o $out/$program $out/$program.o $out/objects/*.o \
    -Lbuild/lib -ltessera_sharded_tensor -ltessera_comm -ltessera_layout \
    -L"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 \
    -Wl,-rpath,"$PWD/build/lib:$torch/lib" -Wl,--allow-shlib-undefined
done
$out/planted_fuzz --seed $out/planted
$out/serialize_fuzz --seed $out/corpus
cd $out

# fuzz PROGRAM CORPUS LOG OPTION...
fuzz() {
  local program=$1 corpus=$2 log=$3
  shift 3
  # Leaks that LibTorch makes while it starts are none of ours.
  ASAN_OPTIONS=detect_leaks=0 "./$program" "$corpus" -max_len=4096 -timeout=5 \
    -rss_limit_mb=2048 -malloc_limit_mb=1 -print_final_stats=1 "$@" >"$log" 2>&1
}
fuzz planted_fuzz planted planted.log -artifact_prefix=planted/ -max_total_time=300 || true
grep -q 'AddressSanitizer: heap-buffer-overflow' planted.log || {
  tail -40 planted.log
  say "the planted fault was not found"
  exit 1
}
say "planted fault found"
fuzz serialize_fuzz corpus log -runs="$runs" -max_total_time="$seconds" || {
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
