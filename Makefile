# Needs Python >= 3.11 and make. `make demo` and `make test` set up everything else in .venv.

CANDIDATES := python3 python3.12 python3.11 python3.13 python
USABLE := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c "$(USABLE)" >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-all lowest lint derivations docs clean

demo: $(INSTALLED)  ## Derive the action, solve it at every width, draw Fig. 2; results are in demo/
	@echo "Deriving the action and solving it for 15 data sets; bars show the progress."
	$(BIN)/theorykit derive --layers 2 2 --steps --output demo/action.md --overwrite
	$(BIN)/python examples/papers/fig2_hidden_markov.py --output demo

test: $(INSTALLED)  ## Run all tests except the slow ones
	@echo "Running all tests except the slow ones, on every core: four to fifteen minutes on two cores."
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

test-all: $(INSTALLED)  ## Run every test, and check annotations at run time
	@echo "Running every test, on every core: an hour or more on two cores."
	$(BIN)/python -m pytest -n auto --dist loadfile --types

lowest:  ## Run the quick tests with the lowest version of each dependency that pyproject.toml allows
	$(PYTHON) -m venv .venv/lowest
	.venv/lowest/bin/python -m pip install --quiet uv
	.venv/lowest/bin/python -m uv pip install --quiet --python .venv/lowest/bin/python \
	    --resolution lowest-direct --editable '.[test]'
	.venv/lowest/bin/python -m pytest -n auto --dist loadfile -m "not slow"

lint: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

derivations: $(INSTALLED)  ## Write the derivations in derivations/
	for script in derivations/*.py; do $(BIN)/python $$script || exit 1; done

docs: derivations  ## Build the site in build/docs/html
	@echo "Running the examples and building the site: five to ten minutes on two cores, and one if no code changed."
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	rm -rf build/docs/source && mkdir -p build/docs/source
	git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C build/docs/source
	cp derivations/*.md build/docs/source/derivations
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site build/docs/source build/docs/html
	@echo "The site is build/docs/html/index.html"

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 found; name one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --without-pip .venv && \
	    $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf .venv

.PHONY: package release

# Every Python version that pyproject.toml lists.
PYTHONS := python3.11 python3.12 python3.13

package: $(INSTALLED)  ## Build wheel and source in dist/, and test them in a fresh environment of each of PYTHONS
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m release.try_package dist $(PYTHONS)

release: $(INSTALLED)  ## Do all steps of a release except the upload: see "Releases" in CONTRIBUTING.md
	$(BIN)/python release/checks.py
	$(MAKE) lint test-all package
	$(BIN)/python release/tag.py
