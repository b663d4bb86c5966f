#!/usr/bin/env bash
# Two generated tasks in GLUE's layout into data/toy-glue, in the subwords of data/toy-mlm.
# All options: scripts/prepare_toy_glue.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare toy glue "$@"
