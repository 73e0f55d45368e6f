# `make demo` and `make test` do all set-up. On a machine where pip finds no CPU build of torch by itself, name an index
# that has one: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
VENV ?= .venv
PYTHON ?= python3
TORCH_INDEX ?=
PYTEST_ARGS ?=
# One more than there are cores: some tests wait for a timeout or for a process of their own.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 5)))

BIN := $(abspath $(VENV))/bin
READY := $(VENV)/.ready
TORCH := $(VENV)/.torch
TOOLS := $(VENV)/.tools
CPP := $(shell find runtime_shims repro tests -name '*.cpp' -o -name '*.h' -o -name '*.cu')

.PHONY: demo test suite lint ruff mypy clang-format clang-tidy format dist smoke clean

demo: $(READY)
	PATH="$(BIN):$$PATH" bash examples/demo.sh

# The linters run beside what comes meanwhile: torch is installed, and the tests begin.
test:
	$(MAKE) --jobs 4 suite lint

suite: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

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

# Without bytecode of everything that is installed: Python makes that of what it imports.
PIP_INSTALL = $(BIN)/pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

# The packages that torch needs are installed last: two processes of pip must not install the same one.
$(TORCH): pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP_INSTALL) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	touch $@

$(TOOLS): pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP_INSTALL) --no-warn-conflicts --editable '.[dev]'
	touch $@

$(READY): $(TORCH) $(TOOLS)
	$(PIP_INSTALL) torch
	touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache examples/out
