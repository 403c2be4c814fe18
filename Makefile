# Two commands that need only Python 3.11 or newer, make and a package index:
#   make demo   installs into .venv and writes a full report on the bundled demo model
#   make test   installs the test dependencies and runs all checks and tests
PYTHON ?= python3
BIN := .venv/bin

# Training text and output folder of the demo model: make train-demo TEXT=texts OUT=build/demo
TEXT ?= texts
OUT ?= build/demo
SOURCES ?= gutenberg novels100 state_union inaugural
MINUTES ?= 96
VOCABULARY ?= 4096
SEED ?= 0
SNAPSHOTS ?= 0

# Seconds per fuzzer in tests/fuzz, and the seed of its first case: make fuzz SECONDS=300 FUZZ_SEED=1000
SECONDS ?= 120
FUZZ_SEED ?= 0

.PHONY: demo test quick coverage notebooks tutorial docs generated site explorer-web
.PHONY: check lint format types imports browser
.PHONY: test-lowest test-newest dependencies fuzz explore benchmarks calibrate train-demo
.PHONY: release-check forget-compiled clean

demo: .venv/installed
	$(BIN)/detoklens report --out report
	@echo "Open report/report.html in a browser."

# Pytest's two workers keep both cores busy: more threads would only wait for each other.
test quick coverage fuzz explore test-lowest test-newest: export OMP_NUM_THREADS = 1
test quick coverage fuzz explore test-lowest test-newest: export OPENBLAS_NUM_THREADS = 1

test: .venv/installed-for-tests browser check
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Run the tests with the lowest supported version of every dependency, or with the newest. Each uses a separate
# environment; `make clean` removes them. With the lowest versions, warnings are not errors: old libraries warn about
# each other.
test-lowest: build/lowest/installed
	build/lowest/bin/python -m pytest -n 2 --dist worksteal -W default

test-newest: build/newest/bin/python
	build/newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable . -r requirements-test.txt
	build/newest/bin/python -m pytest -n 2 --dist worksteal

# constraints.txt lists the versions in .venv; regenerate it after the tests have passed with them.
# requirements-lowest.txt lists the lowest versions that pyproject.toml allows.
dependencies: .venv/installed-for-tests
	$(BIN)/python -m tests.dependencies tested > constraints.txt
	$(BIN)/python -m tests.dependencies lowest > requirements-lowest.txt

# The tests to run while working, in about a minute. Whole reports, browsers, notebooks, models of transformers, new
# processes, kills, disks and other users are left to `make test`.
quick: .venv/installed-for-tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" -q

# Measure how much of the code the tests run. Compiled loops count as not run.
coverage: .venv/installed-for-tests browser
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered

# Rerun the notebooks. They are committed with their outputs, which the tests reproduce.
notebooks: .venv/installed-for-tests
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python docs/run_notebooks.py

# Feed damaged and hostile input for minutes: no traceback, no silent difference, bounded memory.
fuzz: .venv/installed-for-tests
	DETOKLENS_FUZZ_SECONDS=$(SECONDS) DETOKLENS_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest tests/fuzz -n 2 -rA

# Property tests use the same cases in every run; this tries new ones.
explore: .venv/installed-for-tests
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile exploring -n 2 --dist worksteal

check: lint types imports

lint: .venv/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/installed-for-tests
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/installed-for-tests
	$(BIN)/mypy

imports: .venv/installed-for-tests
	$(BIN)/lint-imports

# Generate docs/cli.md from the commands' help, and docs/tables.md and docs/gallery.md from the questions.
docs: .venv/installed-for-tests
	$(BIN)/python docs/make_cli_reference.py
	$(BIN)/python docs/make_tables.py

# Rewrite everything committed that is generated from the code: after a new question, or when numbers change on purpose.
generated: docs tutorial notebooks
	$(BIN)/python -m tests.report.test_table_contents

# Rerun the tutorial's commands and cells and update their output.
tutorial: .venv/installed-for-tests
	$(BIN)/python docs/run_tutorial.py

# Build the site into site/. A broken link is an error. Neither the build nor the pages need a network.
site: .venv/installed-for-tests
	$(BIN)/python docs/make_site.py

# Check a release with the oldest and newest supported Python: make release-check PYTHONS="python3.11 python3.13"
PYTHONS ?= python3.11 python3.13
release-check:
	bash .ci/release-check $(PYTHONS)

# Tests open the pages in a real browser, check them with axe-core and list the fonts of PDFs with pdffonts. Where one of
# these can't be installed, its tests are skipped, with a note.
browser:
	@missing=; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || missing="$$missing chromium"; \
	command -v pdffonts >/dev/null || missing="$$missing poppler-utils"; \
	[ -z "$$missing" ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq $$missing; } \
	  || echo "Not found:$$missing. Their tests will be skipped."
	@[ -f explorer-web/node_modules/axe-core/axe.min.js ] \
	  || { command -v npm >/dev/null && npm install --prefix explorer-web --no-save --no-audit --no-fund --silent; } \
	  || echo "axe-core was not found and npm can't install it. Accessibility tests will be skipped."

# Build the explorer's page into the package; only this needs Node. `npm ci` rejects a lock file without the optional
# binaries of other platforms; this also installs the locked versions and leaves the file alone.
explorer-web: explorer-web/node_modules
	cd explorer-web && npm test && npm run build

explorer-web/node_modules: explorer-web/package.json explorer-web/package-lock.json
	npm install --prefix explorer-web --no-save --no-audit --no-fund
	touch $@

# Measure speed as a ratio to a named baseline in the same run; needs texts (TEXT=...) and a few minutes.
benchmarks: forget-compiled .venv/installed-for-tests
	$(BIN)/python benchmarks/counting.py $(TEXT) --tokenizer demo
	for name in auroc lexicon contributions anatomy lookback; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/report.py --twice
	$(BIN)/python benchmarks/explorer.py

# Measure how often each verdict is wrong, on models with known ground truth, and update docs/calibration.md. Takes
# minutes on two cores; an interrupted run resumes. For a short run: make calibrate EACH=2
EACH ?= 12

calibrate: .venv/installed-for-tests
	$(BIN)/python -m calibration.run --each $(EACH)

# The steps of training/README.md. Steps whose output exists are skipped; training resumes.
FROM_TEXT = $(TEXT) $(1) $(if $(strip $(SOURCES)),--sources $(SOURCES))

train-demo: $(OUT)/train.bin
	$(BIN)/python training/train.py $(OUT) --out $(OUT)/run --minutes $(MINUTES) --seed $(SEED)
	$(BIN)/python training/export.py $(OUT)/run $(OUT)/tokenizer.json $(OUT)/demo --snapshots $(SNAPSHOTS)
	$(BIN)/python training/text.py $(call FROM_TEXT,$(OUT)/text/training.jsonl.zst)
	$(BIN)/detoklens count $(OUT)/text --tokenizer $(OUT)/demo/checkpoint --out $(OUT)/demo/counts
	$(BIN)/python training/sample.py $(OUT)/demo/checkpoint $(OUT)/demo/documents.jsonl.zst

$(OUT)/tokenizer.json: | .venv/installed-for-tests
	mkdir -p $(OUT)/text
	$(BIN)/python training/tokenizer.py $(call FROM_TEXT,$@) --vocabulary $(VOCABULARY)

$(OUT)/train.bin: $(OUT)/tokenizer.json
	$(BIN)/python training/tokenise.py $(call FROM_TEXT,$(OUT))

forget-compiled:
	find src -name '*.nb[ic]' -delete

clean: forget-compiled
	rm -rf .venv dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

build/lowest/bin/python build/newest/bin/python:
	$(PYTHON) -m venv $(@D)/..
	$@ -m pip install --quiet --upgrade pip

build/lowest/installed: build/lowest/bin/python pyproject.toml requirements-test.txt requirements-lowest.txt
	build/lowest/bin/python -m pip install --quiet --editable . -r requirements-test.txt -c requirements-lowest.txt
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-for-tests: .venv/installed requirements-test.txt
	$(BIN)/python -m pip install --quiet -r requirements-test.txt
	touch $@
