# `make quickstart` and `make test` set up a fresh machine and do the thing; both are plain commands that can be typed by hand.
PYTHON ?= python3
VENV ?= .venv
INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Two busy processes on one machine wait for each other's spinning threads without it.
export OMP_WAIT_POLICY = passive

# One thread a worker: two workers with two threads each would wait for each other.
PYTEST = OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses $(WORKERS)
WORKERS ?= 2

.PHONY: quickstart test test-slow check docs matrix oldest newest clean

quickstart: $(VENV)/.run ## install what the main job needs, then run it on the data that ships with the project
	$(VENV)/bin/distillkit run quickstart

test: $(VENV)/.dev ## install everything the tests need, check, and run the fast tests
	$(MAKE) check
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev ## the tests that kill, start processes, train for long
	$(PYTEST) -m slow

check: $(VENV)/.dev ## style, types, direction of imports
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

docs: $(VENV)/.dev ## the site, into build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

matrix: oldest newest ## the fast tests with the oldest and with the newest packages that pyproject.toml allows

# PYTHON=python3.13 chooses the Python. With torch the installer may fetch gigabytes of CUDA libraries.
oldest: RESOLUTION = lowest-direct
newest: RESOLUTION = highest
oldest newest: $(VENV)/bin/python
	$(INSTALL) uv
	$(VENV)/bin/uv venv --quiet --clear --python $(PYTHON) $(VENV)-$@
	$(VENV)/bin/uv pip install --quiet --python $(VENV)-$@ --resolution $(RESOLUTION) --editable '.[dev]'
	OMP_NUM_THREADS=1 $(VENV)-$@/bin/python -m pytest --numprocesses $(WORKERS) -m "not slow"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: asked for by another package, an installer may choose a CUDA build.
$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) torch
	$(INSTALL) --editable '.[train,minilm]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
