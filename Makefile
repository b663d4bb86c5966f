SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help quickstart rehearse-paper report docs lock test-browser test coverage test-slow test-triton test-native test-hub test-newest release-check release-models test-gpu test-slurm test-slurm-quick bench bench-gpu lint setup wheelhouse clean

PYTHON ?= python3
VENV := .venv
VENV_BIN := $(CURDIR)/$(VENV)/bin
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
PIP_INSTALL := $(PIP) install --no-compile
# WHEELS=DIR installs from a folder that `make wheelhouse` filled, and from nowhere else; without
# hashes, since what it compiled has none that others know.
ifdef WHEELS
PIP_INSTALL += --no-index --find-links $(abspath $(WHEELS))
PINNED := $(PIP_INSTALL) -q --no-deps --no-build-isolation -r /dev/stdin
PINNED_LIST := $(PINNED)
LOCK := txt
else
PINNED := $(PIP_INSTALL) -q --no-deps --no-build-isolation --require-hashes -r /dev/stdin
PINNED_LIST := scripts/install_pinned.sh $(VENV)
LOCK := lock
endif
TEST_WORKERS ?= 2
export OMP_NUM_THREADS ?= 2
# Threads that wait sleep: spinning ones take the processor from those they wait for, where a
# machine has other work too.
ifndef GOMP_SPINCOUNT
export OMP_WAIT_POLICY ?= PASSIVE
endif

# Each module is compiled once, by the first process that imports it, also where an environment such
# as a container's says otherwise: each start of a training would compile for seconds.
export PYTHONDONTWRITEBYTECODE :=

# A table takes all cores, unless the user said how many.
ALL_CORES := $(if $(filter file,$(origin OMP_NUM_THREADS)),env -u OMP_NUM_THREADS)

# A set-up is done when the stamp with the checksum of all that it depends on is there.
checksum = $(shell { echo '$(CURDIR)'; cat $(1); } | cksum | tr ' ' '-')
RUNTIME := $(VENV)/.runtime-$(call checksum,requirements.txt requirements.lock setup.py pyproject.toml)
DEV := $(VENV)/.dev-$(call checksum,requirements*.txt requirements*.lock setup.py pyproject.toml)

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "Python is PYTHON=$(PYTHON); 3.11 or newer is needed."

quickstart: $(RUNTIME) ## set up, generate the corpus, train and print the toy table
	PYTHON="$(VENV_BIN)/python" scripts/prepare_toy.sh
	$(ALL_CORES) PYTHON="$(VENV_BIN)/python" scripts/table2.sh --scale toy \
	    --rows none,base,rope,lrpe_type2 --attention linear,vanilla
	@echo "The text is generated: compare the order of rows with the paper's, not the numbers."
	@echo 'Next: source $(VENV)/bin/activate, then fairseq-pe shows what it does.'

rehearse-paper: $(RUNTIME) ## set up, build every model of scale paper without weights, train one of each kind for three updates in up to eight processes
	PATH="$(VENV_BIN):$$PATH" $(VENV)/bin/python -m fairseq_plugins rehearse --train lm,mlm,mt

QUICK_TESTS = PATH="$(VENV_BIN):$$PATH" OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest \
    -n $(TEST_WORKERS) --dist worksteal --durations 20 \
    -m "not slow and not triton and not gpu and not browser and not slurm"
test: lint ## set up, lint, and run all tests but the slow ones and those of the GPU kernel
	$(QUICK_TESTS)

coverage: $(DEV) ## run the same tests, show which branches none of them takes (htmlcov/index.html)
	$(QUICK_TESTS) --cov --cov-report term:skip-covered --cov-report html

test-slow: $(DEV) ## set up and run the slow tests
	PATH="$(VENV_BIN):$$PATH" $(VENV)/bin/python -m pytest -m "slow and not slurm"

NATIVE = fairseq_plugins/kernels/native
test-native: $(DEV) ## compile the CPU kernel under sanitizers, with emulated AVX-512, and test it
	mkdir -p build
	g++ -O1 -g -std=c++17 -fPIC -shared -pthread -Wall -Wextra -Wno-psabi -DEMULATE_AVX512 \
	    -fsanitize=address,undefined -fno-sanitize-recover=all \
	    $(NATIVE)/linear_attention.cpp -o build/native-checked.so
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 NATIVE_LIBRARY=build/native-checked.so \
	    $(VENV)/bin/python -m pytest -p no:xdist tests/kernels/test_native.py

test-triton: $(DEV) ## install triton and run the GPU kernel's tests in its interpreter
	@# Only where it is missing: CUDA builds of torch bring the triton that fits them.
	@$(VENV)/bin/python -c 'import triton' 2>/dev/null || \
	    grep '^triton==' requirements-dev.$(LOCK) | $(PINNED)
	TRITON_INTERPRET=1 $(VENV)/bin/python -m pytest -m triton

# The lowest and the newest version within the bounds of pyproject.toml.
HUB_VERSIONS := 5.23.0 5.24.0
test-hub: $(DEV) $(HUB_VERSIONS:%=$(VENV)/transformers-%) ## test models of Hugging Face on the lowest and the newest transformers
	@for version in $(HUB_VERSIONS); do echo "transformers $$version"; \
	    PYTHONPATH="$(CURDIR)/$(VENV)/transformers-$$version" OMP_NUM_THREADS=1 \
	    $(VENV)/bin/python -m pytest -n $(TEST_WORKERS) tests/integrations; done

$(VENV)/transformers-%: | $(DEV)
	@rm -rf $@.part
	@$(PIP_INSTALL) -q --no-deps --target $@.part transformers==$*
	@mv $@.part $@

# torch first: fairseq is compiled against it.
NEWEST := .venv-newest
NEWEST_EXTRAS := train,report,figures,wordpiece,hub,dev
test-newest: ## install the newest dependencies within pyproject.toml's bounds in .venv-newest, run a quick suite
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install -q --upgrade pip "setuptools<81" wheel "cython<3.1" "numpy<2"
	$(NEWEST)/bin/python -m pip install -q torch
	CFLAGS="-g0 $${CFLAGS:-}" $(NEWEST)/bin/python -m pip install -q --no-build-isolation \
	    -e '.[$(NEWEST_EXTRAS)]'
	$(NEWEST)/bin/python -m pip list
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n $(TEST_WORKERS) -m "not slow and not gpu and not triton" \
	    tests/integrations tests/encodings tests/integration/test_eval_lm.py

# In an empty environment with what the index gives: as who installs the release has it.
RELEASE := .venv-release
release-check: ## build wheel and sdist in dist/, check them, install the wheel in an empty environment, run the toy table
	$(PYTHON) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/python -m pip install -q build==1.6.1 twine==7.0.0
	rm -rf dist
	$(RELEASE)/bin/python -m build -q
	$(RELEASE)/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear $(RELEASE)
	@# fairseq is compiled against torch and numpy, of which Python 3.13 has only numpy 2.
	$(RELEASE)/bin/python -m pip install -q "setuptools<81" wheel "cython<3.1" torch \
	    "numpy<2; python_version < '3.13'" "numpy; python_version >= '3.13'"
	CFLAGS="-g0 $${CFLAGS:-}" $(RELEASE)/bin/python -m pip install -q --no-build-isolation fairseq-fixed
	$(RELEASE)/bin/python -m pip install -q "$$(echo $(CURDIR)/dist/*.whl)[train,figures]"
	rm -rf $(RELEASE)/quickstart && mkdir $(RELEASE)/quickstart
	cd $(RELEASE)/quickstart && ../bin/fairseq-pe prepare toy && \
	    ../bin/fairseq-pe table table2 --scale toy --rows none,rope --attention linear,vanilla
	@ls dist

# Trained on this machine, whatever was trained elsewhere: a card's numbers are those of its model.
MODELS := --rows rope,lrpe_type2,none --attention linear,vanilla --seeds 1
release-models: $(RUNTIME) ## train six models of Table 2 and pack them in dist/models/ (WikiText-2 is downloaded where data/ lacks it)
	[ -d data/wikitext-2-mini ] || PYTHON="$(VENV_BIN)/python" scripts/prepare_wikitext2.sh
	$(ALL_CORES) PATH="$(VENV_BIN):$$PATH" $(VENV)/bin/python -m fairseq_plugins table table2 $(MODELS) --rerun
	$(VENV)/bin/python -m fairseq_plugins pack $(MODELS) --results results/local --checkpoints checkpoints/local

AXE_VERSION := 4.14.1
AXE := $(VENV)/npm/axe-core-$(AXE_VERSION)
test-browser: $(DEV) $(AXE) ## make the site and click through it in Debian's chromium
	AXE_CORE="$(AXE)/node_modules/axe-core/axe.min.js" $(VENV)/bin/python -m pytest -m browser --timeout 900

# The checks of accessibility that selenium runs.
$(AXE): | $(DEV)
	@for program in chromium chromedriver npm; do command -v $$program >/dev/null || { \
	    echo "no $$program; as root: apt install chromium chromium-driver (and npm, without one)" >&2; exit 1; }; done
	@npm install --silent --no-save --prefix $@.part axe-core@$(AXE_VERSION)
	@mv $@.part $@

test-gpu: $(DEV) ## set up and run the tests that need a GPU
	$(VENV)/bin/python -m pytest -m gpu

# One after the other, since they share a Slurm. OMP_NUM_THREADS is theirs to set.
SLURM_TESTS = $(VENV)/bin/python -m pytest -n 0 --durations 10 tests/slurm
test-slurm: $(DEV) ## set up and run the tests on a Slurm of one node (root, Debian's slurm packages)
	scripts/slurm_testbed.sh install
	PATH="$(VENV_BIN):$$PATH" $(SLURM_TESTS) -m slurm

test-slurm-quick: $(DEV) ## of these the ones that take minutes, as continuous integration does
	scripts/slurm_testbed.sh install
	PATH="$(VENV_BIN):$$PATH" $(SLURM_TESTS) -m "slurm and not slow"

bench: $(RUNTIME) ## set up, measure speed and memory on one thread, render benchmarks/results/<machine>/cpu.md
	$(VENV)/bin/python -m benchmarks

bench-gpu: $(RUNTIME) ## the same on a GPU, benchmarks/results/<machine>/gpu.md
	$(VENV)/bin/python -m benchmarks --device gpu

report: $(RUNTIME) ## make the site of all results, to open from site/report/index.html
	$(ALL_CORES) $(VENV)/bin/python -m fairseq_plugins report

docs: $(DEV) ## build the documentation, strictly, to open from site/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build -q

lint: $(DEV) ## set up and run ruff, import-linter, mypy and shellcheck
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/mypy fairseq_plugins benchmarks
	$(VENV)/bin/shellcheck -x scripts/*.sh containers/*.sh .ci/run

setup: $(DEV) ## create .venv with all that is pinned; quick when done before
	@echo "ready: $(VENV)"

WHEELHOUSE ?= wheels
wheelhouse: $(DEV) ## collect in wheels/ what machines without internet need: make setup WHEELS=wheels
	$(PIP) wheel -q --wheel-dir $(WHEELHOUSE) --constraint requirements.txt \
	    "$$(grep -o '^torch==[^ ]*' requirements.txt)"
	CFLAGS="-g0 $${CFLAGS:-}" $(PIP) wheel -q --wheel-dir $(WHEELHOUSE) --no-build-isolation --no-deps \
	    --require-hashes -r requirements.lock -r <(grep -v '^triton==' requirements-dev.lock)
	@echo "$$(ls $(WHEELHOUSE) | wc -l) wheels, $$(du -sh $(WHEELHOUSE) | cut -f 1), in $(WHEELHOUSE)"

# One line for each package, with the hashes of its files for every Python and machine.
LOCKER := .venv-lock
lock: ## write requirements*.lock: the versions of requirements*.txt with the index's hashes
	$(PYTHON) -m venv --clear $(LOCKER)
	$(LOCKER)/bin/python -m pip install -q "$$(grep -o '^uv==[^ ]*' requirements.txt)"
	@for name in requirements requirements-dev; do \
	    $(LOCKER)/bin/uv pip compile -q --universal --python-version 3.11 --no-deps \
	        --no-emit-package torch --generate-hashes --no-annotate --no-header $$name.txt | \
	        sed -e ':a' -e '/\\$$/N; s/ *\\\n */ /; ta' > $$name.lock.part; \
	    mv $$name.lock.part $$name.lock; done
	rm -rf $(LOCKER)

clean: ## remove caches and build products; keeps .venv and what was prepared, trained or measured
	@# outputs has a GPU campaign's measurements and curves, multirun the jobs of sweeps that wait.
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .import_linter_cache .ruff_cache .hypothesis \
	    .coverage htmlcov
	find fairseq_plugins benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

TOO_OLD = import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
    "Python >= 3.11 is needed, but $(PYTHON) is %d.%d; try: make PYTHON=python3.12 ..." % v[:2])

# fairseq is compiled here, two modules at once, without debug information and with optimisation of
# those modules alone that ask for it (-g0 -O0): the others serve models that nothing here uses.
# Two at once would overwrite the one build.ninja of PyTorch's build, so it finds a ninja that fails
# and calls the compiler itself.
$(RUNTIME):
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; set PYTHON" >&2; exit 1; }
	@$(PYTHON) -c '$(TOO_OLD)'
	@echo "[1/5] $(VENV)"
	@usable='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if ! grep -qsF '$(CURDIR)/$(VENV)' $(VENV)/bin/activate || ! $(VENV)/bin/python -c "$$usable"; \
	then $(PYTHON) -m venv --clear $(VENV); fi
	@echo "[2/5] the pinned packages"
	@grep -E '^(setuptools|uv)==' requirements.$(LOCK) | $(PINNED)
	@grep -Ev '^(torch|fairseq-fixed|setuptools|uv)==' requirements.$(LOCK) | $(PINNED_LIST)
	@echo "[3/5] torch"
	@# Without a hash: each index has builds of its own, with dependencies of their own for CUDA.
	@$(PIP_INSTALL) --constraint requirements.txt "$$(grep -o '^torch==[^ ]*' requirements.txt)"
	@echo "[4/5] fairseq, compiled in one to three minutes"
	@mkdir -p $(VENV)/build
	@printf '[build_ext]\nparallel = 2\n' > $(VENV)/build/build.cfg
	@printf '#!/bin/sh\nexit 1\n' > $(VENV)/build/ninja && chmod +x $(VENV)/build/ninja
	@grep '^fairseq-fixed==' requirements.$(LOCK) | CFLAGS="-g0 -O0 $${CFLAGS:-}" \
	CXXFLAGS="-g0 -O0 $${CXXFLAGS:-}" PATH="$(CURDIR)/$(VENV)/build:$$PATH" \
	DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/build/build.cfg $(PINNED) || { \
	    echo "fairseq needs a C++ compiler and Python's headers (g++ and python3-dev)" >&2; exit 1; }
	@echo "[5/5] fairseq_plugins"
	@# Beside the kernel's compilation, the bytecode of what every training imports is written.
	@$(VENV)/bin/python -c 'import fairseq_plugins.registration' & \
	$(PIP_INSTALL) -q --no-build-isolation --no-deps -e . && wait $$!
	@rm -f $(VENV)/.runtime-* $(VENV)/.dev-*
	@touch $@

$(DEV): $(RUNTIME)
	@echo "tools for tests and lint"
	@grep -Ev '^(wandb|triton)==' requirements-dev.$(LOCK) | $(PINNED_LIST)
	@rm -rf $(VENV)/wandb
	@grep '^wandb==' requirements-dev.$(LOCK) | $(PINNED_LIST) --target $(VENV)/wandb
	@rm -f $(VENV)/.dev-*
	@touch $@
