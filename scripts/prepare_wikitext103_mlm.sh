#!/usr/bin/env bash
# WikiText-103 in GPT-2's subwords into data/wikitext-103-mlm.
# All options: scripts/prepare_wikitext103_mlm.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare mlm wikitext103 "$@"
