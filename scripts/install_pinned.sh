#!/usr/bin/env bash
# Installs pinned packages, listed on standard input with their hashes, into an environment.
#
#     grep '^numpy==' requirements.lock | scripts/install_pinned.sh .venv [pip's options]
#
# By uv where the environment has it, which takes seconds in place of minutes; by pip where uv cannot,
# as with an index that asks for a password which pip alone knows.
set -euo pipefail

environment="$1"
shift
python="$environment/bin/python" uv="$environment/bin/uv"
options=(-q --no-deps --no-build-isolation --require-hashes "$@")
list="$(mktemp)"
trap 'rm -f "$list" "$list.log"' EXIT
cat >"$list"

# uv does not read pip's settings.
index="${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null || true)}"
[[ -z $index ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
export VIRTUAL_ENV="$environment" UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-30}" UV_HTTP_RETRIES="${UV_HTTP_RETRIES:-1}"
if [[ -x $uv ]]; then
    if "$uv" pip install "${options[@]}" -r "$list" 2>"$list.log"; then
        exit
    fi
    echo "uv cannot install these, pip goes on: $(grep -m 1 . "$list.log")" >&2
fi
"$python" -m pip --disable-pip-version-check install --no-compile "${options[@]}" -r "$list"
