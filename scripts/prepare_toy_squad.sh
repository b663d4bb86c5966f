#!/usr/bin/env bash
# Generates questions about the embedded corpus, in the subwords of data/toy-mlm, into
# data/toy-squad-v1.1; --version 2.0 into data/toy-squad-v2.0.
# All options: scripts/prepare_toy_squad.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare toy squad "$@"
