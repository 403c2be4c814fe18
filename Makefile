# Two commands do all the set-up on a machine with Python 3.11 or newer, make and the package registries:
#   make demo   installs into .venv and makes the full report of the model that comes with the package
#   make test   installs the test dependencies and passes the checks and the tests
PYTHON ?= python3
BIN := .venv/bin

# What the demo checkpoint is trained on, and where a new one goes: make train-demo TEXT=texts OUT=build/demo
TEXT ?= texts
OUT ?= build/demo
SOURCES ?= gutenberg novels100 state_union inaugural
MINUTES ?= 96
VOCABULARY ?= 4096
SEED ?= 0
SNAPSHOTS ?= 0

# Seconds for each fuzzer of tests/fuzz, and the seed of its first case: make fuzz SECONDS=300 FUZZ_SEED=1000
SECONDS ?= 120
FUZZ_SEED ?= 0

.PHONY: demo test quick notebooks tutorial docs site explorer-web
.PHONY: check lint format types imports browser
.PHONY: test-lowest test-newest dependencies fuzz explore benchmarks calibrate train-demo
.PHONY: release-check forget-compiled clean

demo: .venv/installed
	$(BIN)/detoklens report --out report
	@echo "Open report/report.html in a browser."

# Pytest's two workers keep both cores busy: more threads would only wait for each other.
test quick fuzz explore test-lowest test-newest: export OMP_NUM_THREADS = 1
test quick fuzz explore test-lowest test-newest: export OPENBLAS_NUM_THREADS = 1

test: .venv/installed-for-tests browser check
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The tests with the lowest versions of all dependencies that are promised, and with the newest there are.
# Each has an environment of its own; `make clean` removes them. Warnings are no errors with the lowest: old libraries
# warn of each other.
test-lowest: build/lowest/installed
	build/lowest/bin/python -m pytest -n 2 --dist worksteal -W default

test-newest: build/newest/bin/python
	build/newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable . -r requirements-test.txt
	build/newest/bin/python -m pytest -n 2 --dist worksteal

# constraints.txt is what is in .venv, to be made anew after its tests have passed; requirements-lowest.txt what
# pyproject.toml promises.
dependencies: .venv/installed-for-tests
	$(BIN)/python -m tests.dependencies tested > constraints.txt
	$(BIN)/python -m tests.dependencies lowest > requirements-lowest.txt

# The tests to run while working, in about a minute. Whole reports, browsers, notebooks, models of transformers, new
# processes, kills, disks and other users are left to `make test`.
quick: .venv/installed-for-tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" -q

# Notebooks are committed with their outputs, which the tests make again.
notebooks: .venv/installed-for-tests
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python docs/run_notebooks.py

# Damaged and hostile input for minutes: no traceback, no silent difference, bounded memory.
fuzz: .venv/installed-for-tests
	DETOKLENS_FUZZ_SECONDS=$(SECONDS) DETOKLENS_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest tests/fuzz -n 2 -rA

# Property tests draw the same cases in every run; this draws new ones.
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

# docs/cli.md is made of the commands' own help, docs/tables.md and docs/gallery.md of the registry of questions.
docs: .venv/installed-for-tests
	$(BIN)/python docs/make_cli_reference.py
	$(BIN)/python docs/make_tables.py

# The tutorial shows what its commands and cells really print.
tutorial: .venv/installed-for-tests
	$(BIN)/python docs/run_tutorial.py

# The site into site/, strictly: a broken link is an error. Nothing is fetched, neither here nor by its pages.
site: .venv/installed-for-tests
	$(BIN)/python docs/make_site.py

# The oldest and the newest Python that are supported: make release-check PYTHONS="python3.11 python3.13"
PYTHONS ?= python3.11 python3.13
release-check:
	bash .ci/release-check $(PYTHONS)

# The report is looked at in a real browser. Where Debian's packages can't be installed those tests say so and are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium; } \
	  || echo "No Chromium here: the tests in a real browser will be skipped."

# The explorer's page, built into the package; it needs Node, which nothing else does. `npm ci` would refuse a lock file
# that lacks the optional binaries of other platforms; this takes the locked versions too, and leaves the file alone.
explorer-web: explorer-web/node_modules
	cd explorer-web && npm test && npm run build

explorer-web/node_modules: explorer-web/package.json explorer-web/package-lock.json
	npm install --prefix explorer-web --no-save --no-audit --no-fund
	touch $@

# Speed claims, each a ratio against a named baseline in the same run; they need texts (TEXT=...) and some minutes.
benchmarks: forget-compiled .venv/installed-for-tests
	$(BIN)/python benchmarks/counting.py $(TEXT) --tokenizer demo
	for name in auroc lexicon contributions; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/report.py --twice
	$(BIN)/python benchmarks/explorer.py

# How often is each verdict wrong? Models of known truth, asked everything; the tables of docs/calibration.md. Minutes on
# two cores; an interrupted run continues. A short one: make calibrate EACH=2
EACH ?= 12

calibrate: .venv/installed-for-tests
	$(BIN)/python -m calibration.run --each $(EACH)

# The recipe of training/README.md, step by step; a step whose file is there is not done again, training continues.
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
