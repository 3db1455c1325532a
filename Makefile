# The user's commands: make demo, make test.  The developer's: make check, make cluster, make bench.  `make help` lists all.

CACHE := $(or $(TFCLUSTER_CACHE),$(HOME)/.cache/tfcluster)
# The newest of these that is there: 3.11 is the oldest that runs the project.
PYTHON := $(or $(shell command -v python3.11),$(shell command -v python3))
BIN := .venv/bin
# Some ways to become root leave these out of the PATH, and iptables and its like are there.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
TENSORFLOW := $(CACHE)/tensorflow-$(shell sha256sum requirements/tensorflow-test.txt | cut -c1-16)
# Only the operator's own dependencies, as its image has them: kopf imports the official client where it finds it.
OPERATOR := $(CACHE)/operator-$(shell sha256sum requirements/operator.txt | cut -c1-16)
# What judges the chart and the Dockerfiles: checkov alone brings eighty packages.
LINT := $(CACHE)/lint-$(shell sha256sum requirements/lint.txt | cut -c1-16)
# What `make demo` runs in: the command line, and TensorFlow for the tasks.
DEMO := $(CACHE)/demo-$(shell sha256sum requirements/demo.txt | cut -c1-16)
UV := $(CACHE)/uv-$(shell sha256sum requirements/uv.txt | cut -c1-16)
PICTURES := $(CACHE)/pictures-$(shell sha256sum requirements/pictures.txt | cut -c1-16)
DOCS := $(CACHE)/docs-$(shell sha256sum requirements/docs.txt | cut -c1-16)
# The newest of each major version: the resolver's messages work with all of them.
PROTOBUFS := $(foreach major,5 6 7,$(CACHE)/protobuf-$(major)-$(shell sha256sum requirements/protobuf-$(major).txt | cut -c1-16))
# Keras 2 for the newest TensorFlow.
TF_KERAS := $(CACHE)/tf-keras-$(shell sha256sum requirements/tf-keras.txt | cut -c1-16)
# Two older versions of TensorFlow: what touches its private names runs with them too.
OLDER_TENSORFLOWS := 2.20 2.19
older-tensorflow = $(CACHE)/tensorflow-$(1)-$(shell sha256sum requirements/tensorflow-$(1).txt | cut -c1-16)
# An expression of pytest's option -m; `make test` leaves out what is marked exhaustive, `make test-all` runs just that.
TESTS ?=
export TESTS
PYTEST := $(BIN)/python -m pytest --durations 10 $(if $(TESTS),-m '$(TESTS)')
# By file: a file's tests share a world, and each worker has a control plane and an operator of its own.
PARALLEL := --numprocesses 2 --dist loadfile --max-worker-restart 2
# What a release names the operator's image and for which architectures it is built; where its chart goes.
IMAGE ?= localhost/tfcluster-operator
ARCHITECTURES ?= amd64
CHARTS ?=
SOURCES := operator resolver client crds scripts tests bench local_kubernetes examples

.DEFAULT_GOAL := help
.PHONY: help demo demo-kubernetes test test-all packages check lint types layers unit simulate gates gates-reference mutants tensorflow-tests environments builds older-tensorflow-tests local-tests client-tests integration test-versions test-sharing chart docs docs-publish \
	docs-serve reference lint-chart release-tests e2e cluster cluster-down install bench release release-check publish test-release changelog \
	lock crds chart-docs clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(DEMO)/.complete ## watch a TensorFlow cluster on this machine train, resize and heal: two minutes
	$(DEMO)/bin/python -m scripts.demo

demo-kubernetes: .venv ## the same on a Kubernetes of its own: 7 to 12 minutes the first time, one later
	$(BIN)/python -m scripts.demo_kubernetes

test: packages .venv ## set-up and the tests that CI runs: twenty minutes, in two lanes
	$(BIN)/python -m scripts.test_run test

test-all: packages .venv ## the exhaustive tests that `make test` leaves out, before a release: four parts; PART=1 runs one
	$(BIN)/python -m scripts.test_run $(or $(PART),1 2 3 4)

# First of all: whoever lacks root or Debian learns it before the first test.
packages:
	$(PYTHON) -m local_kubernetes packages

check: lint types layers unit ## lint, types, layers, unit tests: some minutes, no cluster

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv
	$(BIN)/mypy operator resolver client bench local_kubernetes

layers: .venv
	$(BIN)/lint-imports

unit: .venv
	PYTHONHASHSEED=0 $(PYTEST) $(PARALLEL) tests/decisions tests/engine tests/resolver tests/project tests/life tests/simulation

# They wait for programs more than they work.
client-tests: .venv ## the command line and the Python client on a control plane in memory; programs of tfcluster local
	$(PYTEST) $(PARALLEL) --numprocesses 3 tests/client tests/local --ignore tests/local/test_local_training.py

simulate: .venv ## every plan of the simulation, ten minutes; SAMPLE=1 a sample by rule; PLAN='…' one, with a trace; LEARN=1 makes the references again
	PYTHONHASHSEED=0 PYTHONPATH=tests:. $(BIN)/python -m simulation

gates: .venv ## what the operator costs, in requests, bytes, passes and calls, against the reference; WORKLOAD='…' chooses
	PYTHONHASHSEED=0 PYTHONPATH=tests:. $(BIN)/python -m gates

gates-reference: .venv ## write that reference again: review the diff of tests/gates/reference.json
	WRITE=1 PYTHONHASHSEED=0 PYTHONPATH=tests:. $(BIN)/python -m gates

mutants: .venv ## seed bugs of one line, each of which its plan of the simulation must catch; MUTANT='words' chooses
	PYTHONHASHSEED=0 PYTHONPATH=tests:. $(BIN)/python -m mutants

tensorflow-tests: $(TENSORFLOW)/.complete $(PROTOBUFS:=/.complete) $(TF_KERAS)/.complete
	TFCLUSTER_PROTOBUFS="$(PROTOBUFS)" TFCLUSTER_TF_KERAS=$(TF_KERAS) PYTHONPATH=resolver \
	  $(TENSORFLOW)/bin/python -m pytest $(if $(TESTS),-m '$(TESTS)') --numprocesses 2 --dist loadfile tests/tensorflow

# What touches TensorFlow's private names.
ELASTIC := tests/tensorflow/test_tensorflow_classes.py tests/tensorflow/test_connect_targets.py \
  $(wildcard tests/tensorflow/test_elastic*.py)

older-tensorflow-tests: $(foreach version,$(OLDER_TENSORFLOWS),$(call older-tensorflow,$(version))/.complete) ## live resize with the two TensorFlows before the newest: five minutes
	$(MAKE) --jobs 2 --output-sync $(OLDER_TENSORFLOWS:%=elastic-tests-%)

elastic-tests-%:
	PYTHONPATH=resolver $(call older-tensorflow,$*)/bin/python -m pytest $(ELASTIC)

local-tests: .venv $(TENSORFLOW)/.complete ## training by tfcluster local run, with real TensorFlow: half a minute
	TFCLUSTER_TENSORFLOW_PYTHON=$(TENSORFLOW)/bin/python $(PYTEST) tests/local/test_local_training.py

ON_A_SERVER := TFCLUSTER_WORLD=server TFCLUSTER_OPERATOR_PYTHON=$(OPERATOR)/bin/python

# Four control planes keep two cores busy.
integration: .venv $(OPERATOR)/.complete ## tests on real API servers, without nodes, the lives of tests/life among them
	$(ON_A_SERVER) $(PYTEST) $(PARALLEL) --numprocesses 4 tests/admission tests/memory tests/server tests/life

# What differs between minors of Kubernetes: admission, defaults, what pods and their status hold, garbage collection.
CORE := $(wildcard $(foreach folder,admission server life,$(patsubst %,tests/$(folder)/test_%.py,admission_accepted admission_life admission_refused backup creation \
  isolation* kubernetes_version kstatus lifecycle other_actors reported_status restarting \
  rollouts scaling success_and_failure suspending tampering terminating watch_of_clusters))) \
  tests/chart/test_chart_definition.py tests/chart/test_chart_policy.py
MINORS := $(patsubst local_kubernetes/older/%.mod,%,$(wildcard local_kubernetes/older/1.*.mod))

test-versions: .venv $(OPERATOR)/.complete ## the core of the integration tests on older Kubernetes; MINORS=1.36 chooses
	for minor in $(MINORS); do echo "== Kubernetes $$minor" && TFCLUSTER_KUBERNETES_MINOR=$$minor \
	  $(ON_A_SERVER) $(PYTEST) $(PARALLEL) $(CORE) || exit 1; done

test-sharing: .venv $(OPERATOR)/.complete ## TFClusters in the queues of the real Kueue, and gangs on the real scheduler-plugins, on simulated nodes
	$(BIN)/python -m local_kubernetes build hyperkube kwok kueue scheduler-plugins
	TFCLUSTER_OPERATOR_PYTHON=$(OPERATOR)/bin/python $(PYTEST) $(PARALLEL) tests/sharing

chart: .venv lint-chart
	$(PYTEST) $(PARALLEL) tests/chart

lint-chart: .venv $(LINT)/.complete ## the rendered chart and the Dockerfiles before kubernetes-validate, checkov, hadolint
	$(BIN)/python -m scripts.chart_lint $(LINT)/bin

release-tests: .venv
	$(PYTEST) tests/release

docs: $(DOCS)/.complete ## build the docs site into build/site; a dead link or anchor fails it
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

docs-publish: $(DOCS)/.complete ## add the docs of the version in TAG to the branch gh-pages of REMOTE
	@git fetch --quiet $(REMOTE) +gh-pages:gh-pages || true # there is none before the first release
	NO_MKDOCS_2_WARNING=1 PATH=$(DOCS)/bin:$$PATH mike deploy --update-aliases $(TAG) latest
	PATH=$(DOCS)/bin:$$PATH mike set-default latest
	@git push --quiet $(REMOTE) gh-pages

docs-serve: $(DOCS)/.complete ## show the docs site on http://127.0.0.1:8000 as you write
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

# The tests that are marked alone take the operator, the network, the node or a device from the others.
E2E := $(BIN)/python -m pytest --durations 10 --tb=short
e2e: install ## tests on the node of `make cluster`
	$(BIN)/python -m scripts.training_image
	$(E2E) -m '$(if $(TESTS),$(TESTS) and )not alone' --numprocesses 3 --dist loadfile tests/e2e
	$(E2E) -m '$(if $(TESTS),$(TESTS) and )alone' tests/e2e

cluster: .venv ## raise (or find) a Kubernetes; leaves .local/kubeconfig, .local/bin/kubectl, .local/bin/helm
	$(BIN)/python -m local_kubernetes up

cluster-down: .venv ## remove every trace of it
	$(BIN)/python -m local_kubernetes down

install: cluster ## build the image and install (or upgrade) the chart as release tfcluster
	$(BIN)/python -m scripts.install

# The options of the benchmark, as `make bench ONLY='create-1x100 life-300' PAIRS=6 WRITE=1` gives them.
BENCH = TFCLUSTER_OPERATOR_PYTHON=$(OPERATOR)/bin/python $(BIN)/python -m bench $(if $(PAIRS),--pairs $(PAIRS)) \
  $(if $(SCALE),--scale $(SCALE)) $(if $(WRITE),--write) $(if $(JSON),--json $(JSON)) $(if $(TFJOB_SOURCE),--tfjob-source $(TFJOB_SOURCE))

bench: .venv $(OPERATOR)/.complete ## the operator against a bare client on one API server; ONLY='NAME …' PAIRS=6 WRITE=1 JSON=FILE; TFJOB_SOURCE=DIR: TFJob, too
	$(BENCH) $(if $(ONLY),--only $(ONLY))

release: .venv ## the files of a release, in dist/; IMAGE=ghcr.io/me/tfcluster-operator ARCHITECTURES='amd64 arm64'
	$(BIN)/python -m scripts.release build --image $(IMAGE) --architectures $(ARCHITECTURES)

release-check: .venv ## refuse TAG=v1.2.3 where the version or the change log is another; print the release's notes
	@$(BIN)/python -m scripts.release check $(TAG)

publish: .venv ## push the image and the chart in dist/; IMAGE=ghcr.io/me/tfcluster-operator CHARTS=oci://ghcr.io/me/charts
	$(BIN)/python -m scripts.release publish --image $(IMAGE) --charts $(CHARTS)

test-release: .venv ## build the image of a release twice, compare, publish to a registry on this machine; needs root
	TFCLUSTER_TEST_RELEASE=1 $(PYTEST) tests/release/test_release_image.py

changelog: .venv ## move the fragments of changelog.d into CHANGELOG.md, for a release; DRAFT=1 only prints
	$(BIN)/python -m scripts.release changelog $(if $(DRAFT),--draft)

lock: $(UV)/.complete ## pin the newest dependencies, with hashes
	for each in uv build operator client demo dev docs lint pictures release tensorflow tensorflow-test $(OLDER_TENSORFLOWS:%=tensorflow-%) protobuf-5 protobuf-6 protobuf-7; do \
	  $(UV)/bin/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --python-version 3.11 \
	    --no-header --no-annotate requirements/$$each.in -o requirements/$$each.txt; done
	for each in kubectl-helm tf-keras; do \
	  $(UV)/bin/uv pip compile --quiet --no-deps --generate-hashes --no-emit-index-url --no-emit-find-links --python-version 3.11 \
	    --no-header --no-annotate requirements/$$each.in -o requirements/$$each.txt; done

.PHONY: dashboard-picture
dashboard-picture: .venv $(OPERATOR)/.complete ## draw the dashboard for docs/operate/monitoring.md again: ten minutes
	TFCLUSTER_OPERATOR_PYTHON=$(OPERATOR)/bin/python PYTHONPATH=tests:. $(BIN)/python -m scripts.dashboard_picture

.PHONY: terminal-pictures
terminal-pictures: .venv $(PICTURES)/.complete $(DEMO)/.complete ## record the demos in a terminal for docs/images again
	$(PICTURES)/bin/python -m scripts.terminal_picture docs/images/demo.svg --run 'make demo' 'make -s demo'
	$(PICTURES)/bin/python -m scripts.terminal_picture docs/images/status-watch.svg \
	  --run 'tfcluster status digits --watch --local' '$(DEMO)/bin/python -m scripts.watch_scene'
	$(PICTURES)/bin/python -m scripts.terminal_picture docs/images/demo-kubernetes.svg --run 'make demo-kubernetes' 'make -s demo-kubernetes'

crds: .venv ## generate the CRD from its sources
	$(BIN)/python crds/generate.py

chart-docs: .venv ## write the tables of values in the chart's README
	$(BIN)/python -m scripts.chart_values

reference: .venv ## generate docs/reference/api.md and docs/reference/pod-commands.md
	$(BIN)/python -m scripts.reference

clean: ## remove what was made in the checkout; caches and a running cluster stay
	rm -rf .venv .local build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

environments: .venv $(TENSORFLOW)/.complete $(PROTOBUFS:=/.complete) $(TF_KERAS)/.complete $(OPERATOR)/.complete \
  $(DOCS)/.complete $(LINT)/.complete

# At low priority, in the order in which stages need them; each stage finds or awaits what it needs, by locks.
builds: .venv
	-nice $(BIN)/python -m local_kubernetes build hyperkube
	-nice $(BIN)/python -m local_kubernetes tools
	-nice $(BIN)/python -m scripts.set_up dns
	-nice $(BIN)/python -m scripts.set_up 'operator image'
	-nice $(BIN)/python -m scripts.set_up 'training image'
	-nice $(BIN)/python -m local_kubernetes build azure-npm

.venv: .venv/.complete

$(UV)/.complete:
	$(PYTHON) -m venv $(UV)
	$(UV)/bin/pip install --quiet --require-hashes -r requirements/uv.txt
	touch $@

# uv is five times as fast as pip, which knows of mirrors that only its own configuration names.
install = $(UV)/bin/uv pip install --quiet --compile-bytecode --python $(1)/bin/python $(2) || $(1)/bin/pip install --quiet $(2)

.venv/.complete: requirements/dev.txt pyproject.toml | $(UV)/.complete
	@echo "making .venv: usually a few seconds, once per requirements/dev.txt; it is what the tests run in"
	$(PYTHON) -m venv .venv
	$(call install,.venv,--require-hashes -r requirements/dev.txt)
	$(call install,.venv,--no-deps --no-build-isolation -e .)
	touch $@

# An environment of its own: where, for what, how long it usually takes, from which file of requirements/.
define ENVIRONMENT
$(1)/.complete: | $(UV)/.complete
	@echo "making $(2): usually $(3), once per requirements/$(4).txt"
	$$(PYTHON) -m venv $(1)
	$$(call install,$(1),--require-hashes -r requirements/$(4).txt)
	touch $$@
endef
$(eval $(call ENVIRONMENT,$(OPERATOR),the operator's environment,five seconds,operator))
$(eval $(call ENVIRONMENT,$(LINT),the linters' environment,ten seconds,lint))
$(eval $(call ENVIRONMENT,$(DEMO),the demo's environment (TensorFlow is 300 MB),half a minute,demo))
$(eval $(call ENVIRONMENT,$(DOCS),the environment of the docs,five seconds,docs))
$(eval $(call ENVIRONMENT,$(PICTURES),the terminal for pictures,five seconds,pictures))
$(eval $(call ENVIRONMENT,$(TENSORFLOW),TensorFlow's environment,half a minute,tensorflow-test))
$(foreach version,$(OLDER_TENSORFLOWS),$(eval \
  $(call ENVIRONMENT,$(call older-tensorflow,$(version)),the environment of TensorFlow $(version),half a minute,tensorflow-$(version))))

# NB: --no-deps, or pip complains of the TensorFlow that it is installed beside and wants another version.
$(CACHE)/protobuf-%/.complete: $(TENSORFLOW)/.complete
	@echo "fetching protobuf $(firstword $(subst -, ,$*)): usually a second, once per requirements/protobuf-$(firstword $(subst -, ,$*)).txt"
	rm -rf $(@D)
	$(TENSORFLOW)/bin/pip install --quiet --no-deps --require-hashes --target $(@D) -r requirements/protobuf-$(firstword $(subst -, ,$*)).txt
	touch $@

# NB: --no-deps, or pip fetches the package tensorflow beside tensorflow-cpu.
$(TF_KERAS)/.complete: $(TENSORFLOW)/.complete
	@echo "fetching Keras 2: usually a second, once per requirements/tf-keras.txt"
	rm -rf $(@D)
	$(TENSORFLOW)/bin/pip install --quiet --no-deps --require-hashes --target $(@D) -r requirements/tf-keras.txt
	touch $@
