#!/usr/bin/env bash
# GLUE's nine tasks into data/glue, in the subwords of the pre-training.
# All options: scripts/prepare_glue.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare glue "$@"
