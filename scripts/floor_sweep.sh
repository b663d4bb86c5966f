#!/usr/bin/env bash
# Trains and evaluates language models under linear attention with other denominators;
# renders results/floor_sweep/<scale>.md.
# All options: scripts/floor_sweep.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins table floor_sweep "$@"
