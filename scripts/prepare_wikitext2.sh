#!/usr/bin/env bash
# WikiText-2 into data/wikitext-2 as words, and into data/wikitext-2-mini as BPE subwords.
# All options: scripts/prepare_wikitext2.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins prepare lm wikitext2 "$@"
