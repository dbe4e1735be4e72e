#!/usr/bin/env bash
# Fuzzes the readers of checkpoint files under AddressSanitizer and
# UndefinedBehaviorSanitizer: tests/io/fuzz/*_fuzz.cpp with clang's libFuzzer.
#
#   scripts/fuzz_io.sh [RUNS [TARGET...]]    2,000,000 of each target unless told
#
# Targets: manifest safetensors dcp_metadata stored_zip. FUZZ_SECONDS limits the time
# of each. First a fault is planted that the fuzzer must find (TESSERA_PLANTED_FAULT).
#
# The layer io needs no LibTorch, so its sources are compiled here. Works in
# build-fuzz/io, where the corpus and an input that fails stay; the corpus begins
# with parts of real files (tests/io/fuzz/make_seeds.py, by .venv's Python or the
# one that PYTHON names).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/fuzz_clang.sh

runs=${1:-2000000}
shift || true
targets=${*:-manifest safetensors dcp_metadata stored_zip}
seconds=${FUZZ_SECONDS:-1800}
python=${PYTHON:-.venv/bin/python}
out=build-fuzz/io
require_fuzzer

# Objects that do not change are not compiled again.
mkdir -p $out/objects
sanitize=(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
flags=(-std=c++20 -O1 -g -fno-omit-frame-pointer "${sanitize[@]}"
  -fsanitize=fuzzer-no-link -Isrc -Itests '-DTESSERA_VERSION="fuzz"')
cat >$out/Makefile <<'MAKE'
SOURCES := $(shell find src/io -name '*.cpp') src/base/json.cpp tests/io/io_probe.cpp \
  $(shell find tests/io/fuzz -name '*_fuzz.cpp')
OBJECTS := $(patsubst %.cpp,$(OUT)/objects/%.o,$(SOURCES))
PLANTED := $(patsubst %.cpp,$(OUT)/planted/%.o,$(filter tests/io/fuzz/%,$(SOURCES)))
all: $(OBJECTS) $(PLANTED)
$(OUT)/objects/%.o: %.cpp
	@mkdir -p $(@D) && $(CXX) $(FLAGS) -MMD -c $< -o $@
$(OUT)/planted/%.o: %.cpp
	@mkdir -p $(@D) && $(CXX) $(FLAGS) -DTESSERA_PLANTED_FAULT -MMD -c $< -o $@
-include $(OBJECTS:.o=.d) $(PLANTED:.o=.d)
MAKE
say "compiling"
make -s -f $out/Makefile -j "${JOBS:-$(nproc)}" OUT=$out CXX="$clang" \
  FLAGS="$(printf "'%s' " "${flags[@]}")" all
library=$(find $out/objects/src -name '*.o')
# shellcheck disable=SC2086
"$clang" "${sanitize[@]}" -o $out/io_probe $out/objects/tests/io/io_probe.o $library
for target in $targets; do
  for kind in objects planted; do
    # shellcheck disable=SC2086
    "$clang" "${sanitize[@]}" -fsanitize=fuzzer -o "$out/${kind}_$target" \
      "$out/$kind/tests/io/fuzz/${target}_fuzz.o" $library
  done
done
rm -rf $out/seeds
"$python" -B tests/io/fuzz/make_seeds.py $out/seeds $out/io_probe >&2

# fuzz KIND TARGET LOG OPTION...: new inputs go to the first folder. Memory: an
# input of 4 KiB never needs 64 MiB at once.
fuzz() {
  local kind=$1 target=$2 log=$3
  shift 3
  mkdir -p "$out/corpus/$kind/$target"
  # A small quarantine, so that the peak of memory is the reader's own.
  ASAN_OPTIONS=quarantine_size_mb=8 "$out/${kind}_$target" "$out/corpus/$kind/$target" "$out/seeds/$target" \
    -dict="$out/seeds/$target.dict" -max_len=4096 -timeout=5 -rss_limit_mb=1024 \
    -malloc_limit_mb=64 -print_final_stats=1 "$@" >"$log" 2>&1
}
for target in $targets; do
  rm -rf "$out/corpus/planted/$target"
  fuzz planted "$target" "$out/planted_$target.log" \
    -artifact_prefix="$out/planted_$target." -max_total_time=300 || true
  grep -q 'AddressSanitizer: heap-buffer-overflow' "$out/planted_$target.log" || {
    tail -40 "$out/planted_$target.log"
    say "$target: the planted fault was not found"
    exit 1
  }
  say "$target: planted fault found"
  log=$out/$target.log
  fuzz objects "$target" "$log" -artifact_prefix="$out/failed_$target." \
    -runs="$runs" -max_total_time="$seconds" || {
    tail -40 "$log"
    say "$target failed; the input lies in $out"
    exit 1
  }
  executed=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
  say "$target: $(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") per second," \
    "peak $(sed -n 's/^stat::peak_rss_mb: *//p' "$log") MiB, $executed executions, no failure"
  [ "$executed" -ge "$runs" ] || {
    say "$target: stopped after $seconds s, before $runs executions"
    exit 1
  }
done
