# shellcheck shell=bash
# Helpers shared by the scripts; sourced, after `set -euo pipefail`.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

log() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
}

# Sets PYTHON, unless the caller chose one, to that of .venv or else of the activated environment.
find_python() {
    local environment="$ROOT/.venv"
    [ -d "$environment" ] || environment="${VIRTUAL_ENV:-${CONDA_PREFIX:-$environment}}"
    PYTHON="${PYTHON:-$environment/bin/python}"
    if ! command -v "$PYTHON" >/dev/null; then
        log "no interpreter at PYTHON=$PYTHON; 'make setup' makes .venv, or give PYTHON=python"
        return 1
    fi
    export PYTHON PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
