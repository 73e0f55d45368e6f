# `make demo` and `make test` do all set-up. On a machine where pip finds no CPU build of torch by itself, name an index
# that has one: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Another torch than that of constraints.txt has an environment of its own: make test TORCH=2.14.1
TORCH =
# The releases of torch that `make versions` writes the table of docs/versions.md for, oldest first.
VERSIONS ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
VENV ?= .venv$(if $(TORCH),-$(TORCH))
PYTHON ?= python3
TORCH_INDEX ?=
PYTEST_ARGS ?=
# One more than there are cores: some tests wait for a timeout or for a process of their own.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 5)))

BIN := $(abspath $(VENV))/bin
READY := $(VENV)/.ready
PINNED := $(VENV)/.constraints
TORCH_READY := $(VENV)/.torch
TOOLS := $(VENV)/.tools
SITE := $(VENV)/.site
CPP := $(shell find runtime_shims repro tests -name '*.cpp' -o -name '*.h' -o -name '*.cu')

.PHONY: demo test suite version versions newest environment lint ruff mypy clang-format clang-tidy format dist smoke docs clean

demo: $(READY)
	PATH="$(BIN):$$PATH" bash examples/demo.sh

# The linters run beside what comes meanwhile: torch is installed, and the tests begin.
test:
	$(MAKE) --jobs 4 suite lint

suite: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# What meets torch, without what does not: a check of another torch in minutes.
version: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal @tests/version_suite.txt $(PYTEST_ARGS)

newest:
	@echo $(lastword $(VERSIONS))

environment: $(READY)

# Removes the environments that it makes, each of which may have five gigabytes.
versions:
	$(PYTHON) -m tests.torch_versions $(VERSIONS)

lint: ruff mypy clang-format clang-tidy

ruff: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(TOOLS)
	$(BIN)/mypy

clang-format: $(TOOLS)
	@echo clang-format
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

clang-tidy: $(TOOLS)
	@echo clang-tidy
	@PATH="$(BIN):$$PATH" bash runtime_shims/clang_tidy.sh

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The last commit as sdist and wheel in dist/; an error if a second build has other bytes.
dist: $(TOOLS)
	PYTHON=$(BIN)/python bash release/dist.sh

# Uses the wheel in a virtual environment of its own, without the checkout.
smoke: dist
	$(PYTHON) -m venv --clear dist/venv
	dist/venv/bin/pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) dist/*.whl torch
	bash release/smoke.sh dist/venv/bin

# The site of the documentation, in dist/site. Three reports are made for it: that compiles four models, once.
docs: $(READY) $(SITE)
	$(BIN)/python -m release.reports dist/reports
	$(BIN)/python -m release.site dist/docs dist/reports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file dist/mkdocs.yml

# Without bytecode of everything that is installed: Python makes that of what it imports. In a variable of the environment,
# the constraints replace those of pip's configuration.
PIP_INSTALL = PIP_CONSTRAINT=$(PINNED) $(BIN)/pip --disable-pip-version-check install --quiet --no-compile

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

# Another torch has another Triton as well, which it names itself.
$(PINNED): constraints.txt | $(VENV)/.created
	$(if $(TORCH),sed 's/^torch==.*/torch==$(TORCH)/; /^triton==/d',cat) constraints.txt > $@

# The packages that torch needs are installed last: two processes of pip must not install the same one.
$(TORCH_READY): pyproject.toml $(PINNED)
	$(PIP_INSTALL) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	touch $@

$(TOOLS): pyproject.toml $(PINNED)
	$(PIP_INSTALL) --no-warn-conflicts --editable '.[dev]'
	touch $@

$(SITE): pyproject.toml | $(TOOLS)
	$(PIP_INSTALL) --editable '.[docs]'
	touch $@

$(READY): $(TORCH_READY) $(TOOLS)
	$(PIP_INSTALL) torch
	touch $@

clean:
	rm -rf $(VENV) .venv-* dist .mypy_cache .ruff_cache .pytest_cache examples/out
