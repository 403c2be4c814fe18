# Two commands do all the set-up on a machine with Python 3.11 or newer, make and the package registries:
#   make demo   installs into .venv and runs the main job on what comes with the package
#   make test   installs the test dependencies and passes the checks and the tests
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format types imports check clean docs benchmarks wheel

demo: .venv/installed-for-tests
	$(BIN)/detoklens verify tests/data/tiny-gpt2
	$(BIN)/detoklens partners tests/data/tiny-gpt2 "ion" --top 5

test: .venv/installed-for-tests check
	$(BIN)/python -m pytest -n 2

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

clean:
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
