#!/usr/bin/env bash
# Brings published models back after their encoding or attention was exchanged; renders
# results/bert_adapted/<scale>.md. All options: scripts/bert_adapted.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m fairseq_plugins table bert_adapted "$@"
