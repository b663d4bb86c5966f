#!/usr/bin/env bash
# A published BERT as a start for training, from an installed package or a folder, into checkpoints/start.
# All options: scripts/prepare_start.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare start "$@"
