# shellcheck shell=bash
# Helpers shared by the scripts; sourced, after `set -euo pipefail`.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

log() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
}

# Sets PYTHON to the project's interpreter unless the caller chose one.
find_python() {
    PYTHON="${PYTHON:-$ROOT/.venv/bin/python}"
    if ! command -v "$PYTHON" >/dev/null; then
        log "no interpreter at PYTHON=$PYTHON; 'make quickstart' sets one up"
        return 1
    fi
    export PYTHON PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
