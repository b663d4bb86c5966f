#!/usr/bin/env bash
# Generates the embedded corpus and binarises it in learned subwords into data/toy-mlm.
# All options: scripts/prepare_toy_mlm.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare toy mlm "$@"
