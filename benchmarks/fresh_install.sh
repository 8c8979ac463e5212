#!/usr/bin/env bash
# Run the two commands of the README, `make demo` and `make test`, or those that are named, in a clone of the repository
# with a fresh HOME, cache and virtual environment: bash benchmarks/fresh_install.sh [demo] [test]
set -euo pipefail

repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/home"
git clone --quiet --no-local "$repository" "$folder/arbormax"
cd "$folder/arbormax"
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME CONDA_PREFIX
export HOME="$folder/home" XDG_CACHE_HOME="$folder/home/.cache" PIP_CACHE_DIR="$folder/home/pip"
for target in ${*:-demo test}; do
  echo "make $target"
  time make "$target"
done
echo "passed with a fresh home, cache and virtual environment"
