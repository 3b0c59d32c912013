# Everything a fresh machine needs is installed into .venv by the first target that runs.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
EXTRAS := fit,images,text,tensorboard,optuna,ray,plot,cleanlab,hf,trl,lightning,skorch
PIN = .venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --constraint constraints-frameworks.txt
FRAMEWORKS := pytest torchvision timm keras fastai segmentation-models-pytorch setfit mmpretrain mmcv-lite mmengine ultralytics

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint frameworks bench generate figures docs clean

help:  ## List these targets.
	@grep -hE '^[a-z]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "make %-10s %s\n", $$1, $$2}'

demo: .venv/fit  ## Learn digits from 60 % wrong labels: plain cross-entropy, then symloss fit (under a minute).
	$(BIN)/symloss train --data digits --noise sym:0.6 --loss ce --out runs/demo-ce
	$(BIN)/symloss fit --data digits --noise sym:0.6 --jobs 2 --out runs/demo-fit --overwrite

test: lint  ## Lint, then every test.
	$(BIN)/pytest -n auto --dist worksteal

quick: .venv/ready  ## The tests of the losses that take no time (under a minute).
	$(BIN)/pytest -n auto -m 'not slow' tests/losses tests/test_architecture.py

lint: .venv/ready  ## ruff and mypy.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

frameworks: .venv-frameworks/ready  ## The tests of frameworks that need torchvision, in an environment of their own (2 GB).
	.venv-frameworks/bin/pytest -W ignore::DeprecationWarning tests/frameworks

bench: .venv/ready  ## What losses and heads cost against torch, and how much of our own code runs (15 minutes, idle machine).
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/loss_speed.py --check
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/head_speed.py --check
	$(BIN)/python benchmarks/calls.py

generate: .venv/ready  ## Write the generated files: losses and the paper's statements in the docs, the types of the package.
	$(BIN)/python tools/write_generated.py

figures: .venv/ready  ## Make every figure of the documentation, from the library and from measured results.
	$(BIN)/python docs/figures/make.py

docs: .venv/ready  ## The site, in build/docs/html: pages, losses, API and atlas (a minute or two, no network).
	$(BIN)/python tools/build_site.py

# What users of the command line need. pip is pinned too: dependency groups need 25.1 or newer.
.venv/fit: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("symloss needs Python 3.11 or newer; got " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(INSTALL) pip
	$(INSTALL) --editable '.[fit]'
	touch $@

.venv/ready: .venv/fit
	$(INSTALL) --editable '.[$(EXTRAS)]' --group dev
	touch $@

# torch comes first: what depends on it must find it, and not choose another.
.venv-frameworks/ready: pyproject.toml constraints.txt constraints-frameworks.txt
	$(PYTHON) -m venv .venv-frameworks
	$(PIN) torch
	$(PIN) --editable '.[fit]' $(FRAMEWORKS)
	touch $@

clean:  ## Remove the environment, caches and builds.
	rm -rf .venv .venv-frameworks build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
