# Two commands do all the set-up on a machine with Python 3.11 or newer, make and the package registries:
#   make demo   installs into .venv and makes the full report of the model that comes with the package
#   make test   installs the test dependencies and passes the checks and the tests
PYTHON ?= python3
BIN := .venv/bin

# What the demo checkpoint is trained on, and where a new one goes: make train-demo TEXT=texts OUT=build/demo
TEXT ?= ../shared/corpus
OUT ?= build/demo
SOURCES ?= gutenberg novels100 state_union inaugural
MINUTES ?= 96
VOCABULARY ?= 4096
SEED ?= 0
SNAPSHOTS ?= 0

.PHONY: demo test check lint format types imports docs benchmarks train-demo browser forget-compiled clean

demo: .venv/installed
	$(BIN)/detoklens report --out report
	@echo "Open report/report.html in a browser."

test: .venv/installed-for-tests browser check
	$(BIN)/python -m pytest -n 2 --dist worksteal

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

# docs/cli.md is made of the commands' own help.
docs: .venv/installed-for-tests
	$(BIN)/python docs/make_cli_reference.py

# The report is looked at in a real browser. Where Debian's packages can't be installed those tests say so and are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium; } \
	  || echo "No Chromium here: the tests in a real browser will be skipped."

# Speed claims, each a ratio against a named baseline in the same run; they need the shared texts and some minutes.
benchmarks: forget-compiled .venv/installed-for-tests
	$(BIN)/python benchmarks/counting.py $(TEXT) --tokenizer demo
	for name in auroc lexicon contributions; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/report.py --twice

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
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-for-tests: .venv/installed requirements-test.txt
	$(BIN)/python -m pip install --quiet -r requirements-test.txt
	touch $@
