# Images of the product, without a package index in their last stages.
#
#   own-wheels       wheels of our own distributions, in /wheels
#   operator-wheels  the locked dependencies of the operator, in /wheels
#   trainer-wheels   the locked dependencies of the trainer, libtpu included
#   trainer-overrides  other versions of some of them, as TRAINER_OVERRIDES says
#   …-dependencies   these installed
#   operator         docker build --target operator --tag tpujob-operator:0.1.0 .
#   trainer          docker build --target trainer --tag tpujob-trainer:0.1.0 .
#
# The folders /wheels of the middle stages are the offline bundle of the images. Dependencies stand apart from our own code, so
# that a change of the code makes neither their download nor their layer anew. Stages hand on by COPY, whose content every builder
# compares; a mounted stage is taken for unchanged by some (buildah 1.28).
# A base of one's own, by digest: --build-arg BASE_IMAGE=python@sha256:… (any Python 3.12 or newer with pip and glibc).
# A package index of one's own, by a pip.conf that only the stages that download see, and no layer keeps:
#   --secret id=pip.conf,src=pip.conf
# Other versions of jax and libtpu than the locked ones, without their hashes: --build-arg TRAINER_OVERRIDES="jax==… libtpu==…"
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_CONFIG_FILE=/run/secrets/pip.conf
WORKDIR /src
COPY requirements/build.txt requirements/
# Into a virtual environment: the base may forbid to install beside what its distribution manages.
RUN --mount=type=secret,id=pip.conf,target=/run/secrets/pip.conf python3 -m venv /build \
    && /build/bin/pip install --only-binary :all: --require-hashes --requirement requirements/build.txt

FROM build AS operator-wheels
COPY requirements/operator.txt /wheels/requirements.txt
# Wheels only: a source distribution would run its own code here. The hashes make a changed file an error.
RUN --mount=type=secret,id=pip.conf,target=/run/secrets/pip.conf \
    /build/bin/pip download --no-deps --only-binary :all: --require-hashes --requirement /wheels/requirements.txt --dest /wheels

FROM build AS trainer-wheels
COPY requirements/trainer-tpu.txt /wheels/requirements.txt
RUN --mount=type=secret,id=pip.conf,target=/run/secrets/pip.conf \
    /build/bin/pip download --no-deps --only-binary :all: --require-hashes --requirement /wheels/requirements.txt --dest /wheels

FROM build AS trainer-overrides
ARG TRAINER_OVERRIDES=""
# hadolint ignore=SC2086
RUN --mount=type=secret,id=pip.conf,target=/run/secrets/pip.conf \
    mkdir /overrides \
    && if [ -n "${TRAINER_OVERRIDES}" ]; then \
         /build/bin/pip download --pre --no-deps --only-binary :all: --dest /overrides ${TRAINER_OVERRIDES}; \
       fi

FROM build AS own-wheels
COPY contract contract
COPY launcher launcher
COPY resource resource
COPY operator operator
COPY trainer trainer
COPY sdk sdk
COPY cli cli
RUN /build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels ./contract ./launcher ./resource ./operator ./trainer ./sdk ./cli

# What both images have in common: a virtual environment, a user without rights, nothing that is written at run time.
FROM ${BASE_IMAGE} AS base
# pip compiles what it installs: the file system is read-only where this runs, so byte code is written here or never.
ENV PATH=/opt/tpujob/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/home/tpujob
RUN python3 -m venv /opt/tpujob \
    && useradd --uid 10001 --user-group --create-home --home-dir /home/tpujob --shell /usr/sbin/nologin tpujob

FROM base AS operator-dependencies
COPY --from=operator-wheels /wheels /wheels
RUN pip install --no-index --find-links /wheels --no-deps --require-hashes --requirement /wheels/requirements.txt

FROM base AS operator
# Fetches the code of jobs that name a commit. A base that has it needs no network here.
# hadolint ignore=DL3008
RUN command -v git || { \
      apt-get update && apt-get install --yes --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*; }
COPY --from=operator-dependencies /opt/tpujob /opt/tpujob
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tpujob operator" \
      org.opencontainers.image.description="Turns TpuTrainingJob resources into JobSets on GKE TPU node pools" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=own-wheels /wheels/tpujob_contract-*.whl /wheels/tpujob_launcher-*.whl /wheels/tpujob_resource-*.whl \
     /wheels/tpujob_operator-*.whl /wheels/
RUN pip install --no-index --no-deps /wheels/*.whl \
    && pip check \
    && pip uninstall --yes pip \
    && rm -r /wheels
USER 10001:10001
WORKDIR /
ENTRYPOINT ["tpujob-operator"]

FROM base AS trainer-dependencies
COPY --from=trainer-wheels /wheels /wheels
RUN pip install --no-index --find-links /wheels --no-deps --require-hashes --requirement /wheels/requirements.txt
COPY --from=trainer-overrides /overrides /overrides
RUN find /overrides -name '*.whl' -exec pip install --no-index --no-deps {} +

FROM base AS trainer
COPY --from=trainer-dependencies /opt/tpujob /opt/tpujob
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tpujob trainer" \
      org.opencontainers.image.description="Trains language models with JAX over the hosts of TPU slices" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=own-wheels /wheels/tpujob_contract-*.whl /wheels/tpujob_launcher-*.whl /wheels/tpujob_trainer-*.whl \
     /wheels/tpujob_sdk-*.whl /wheels/
RUN pip install --no-index --no-deps /wheels/*.whl \
    && pip check \
    && pip uninstall --yes pip \
    && rm -r /wheels
USER 10001:10001
WORKDIR /
ENTRYPOINT ["python", "-m", "tpujob_contract.launch", "--"]
CMD ["python", "-m", "tpujob_trainer"]
