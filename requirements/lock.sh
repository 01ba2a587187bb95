#!/usr/bin/env bash
# Writes requirements/*.txt from the pyproject files: hash-pinned, for every platform, without addresses.
# The union is resolved first and constrains the parts, so that all parts agree on every version.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
compile() { # output, inputs...
  local output=$1
  shift
  "$uv" pip compile --quiet --universal --generate-hashes --python-version 3.12 --no-header --no-annotate "${upgrade[@]}" \
    --no-emit-package tpujob-contract --no-emit-package tpujob-launcher --no-emit-package tpujob-resource --no-emit-package tpujob-operator --no-emit-package tpujob-trainer --no-emit-package tpujob-sdk \
    --output-file "$output" "$@"
}
upgrade=("$@") # for instance --upgrade, or --upgrade-package jax
compile requirements/dev.txt requirements/build.in requirements/dev.in operator/pyproject.toml trainer/pyproject.toml sdk/pyproject.toml cli/pyproject.toml --extra wandb --extra azure
upgrade=()
for part in operator trainer; do
  compile "requirements/$part.txt" "$part/pyproject.toml" -c requirements/dev.txt
done
compile requirements/trainer-tpu.txt trainer/pyproject.toml --extra tpu -c requirements/dev.txt
compile requirements/run.txt requirements/build.in operator/pyproject.toml trainer/pyproject.toml cli/pyproject.toml -c requirements/dev.txt
compile requirements/build.txt requirements/build.in -c requirements/dev.txt
compile requirements/wandb.txt requirements/wandb.in -c requirements/dev.txt
compile requirements/azure.txt requirements/azure.in -c requirements/dev.txt
compile requirements/notebook.txt requirements/notebook.in -c requirements/dev.txt
compile requirements/go.txt requirements/go.in
