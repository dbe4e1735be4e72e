# Entry points; each works alone from a fresh clone. The work is done by CMake
# (CMakePresets.json) and by scripts/.
.DEFAULT_GOAL := help
.PHONY: help setup build test demo conformance check-long check-pip format tidy keywords install
.PHONY: clean fuzz wheel sdist deb check-wheel
PREFIX ?= /usr/local

help:        ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*##/ { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup:       ## Install what is missing (packages, LibTorch); nothing when all is there
	@scripts/setup.sh

build: setup ## Build everything into build/
	@scripts/build.sh dev

test: build  ## Build, then run all tests (RESUME=1: those that have not passed)
	@scripts/run_tests.py build $(if $(RESUME),--resume)

demo: setup  ## Train a small GPT on a 2 x 2 mesh of ranks beside the plain run
	@scripts/build.sh dev bin/tessera bin/tessera-demo
	@build/bin/tessera demo

conformance: setup ## Judge all operators by PyTorch's OpInfo; writes docs/reference/op_coverage.md
	@scripts/build.sh dev python
	@.venv/bin/python -B tests/conformance/run.py --page

check-long: setup ## Sanitizers, clang-tidy, long forms ... (PART='asan tsan', RESUME=1)
	@scripts/check_long.py $(if $(RESUME),--resume) $(PART)

fuzz: setup  ## Fuzz the readers of checkpoint files, 2 million inputs each
	@scripts/fuzz_io.sh

check-pip: setup ## Install the Python package into a fresh venv, run README's snippet
	@python3 -B tests/python/pip_install.py

wheel: setup ## Build a wheel per installed torch into dist/ (PYTHONS='python3.11 ...')
	@scripts/wheel.py $(PYTHONS)

sdist: setup ## Build the source package into dist/
	@scripts/wheel.py --sdist

check-wheel: setup ## Build sdist and wheel, run README's snippet in a venv without a compiler
	@python3 -B tests/python/wheel_install.py

deb: setup   ## Build a Debian package of the C++ library and the command into dist/
	@scripts/build.sh release
	@cd build-release && cpack -B $(CURDIR)/dist

format: setup ## Rewrite the sources with clang-format
	@scripts/check_format.py --fix

tidy: setup  ## Run clang-tidy on all sources
	@scripts/tidy.py

keywords: setup ## Refresh docs/reference/keywords.md from the public headers and the docs
	@scripts/keywords.py

install: setup ## Build the release preset and install it below PREFIX (/usr/local)
	@scripts/build.sh release
	@cmake --install build-release --prefix $(PREFIX)

clean:       ## Remove the build folders; .venv stays
	rm -rf build build-release build-asan build-tsan build-plain build-fuzz build-check-long \
	  build-wheel dist
