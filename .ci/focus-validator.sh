#!/usr/bin/env bash
# Installs FinOps' focus-validator with the rules of FOCUS 1.2 and prints its program. Cached.
# usage: QUEUECTL_FOCUS_VALIDATOR=$(.ci/focus-validator.sh)
set -euo pipefail
out=${XDG_CACHE_HOME:-$HOME/.cache}/queuectl-focus/2.2.1
mkdir -p "$out"
exec 9>"$out/.lock"; flock 9
if ! [ -e "$out/ready" ]; then
  python3 -m venv "$out"
  "$out/bin/pip" install -q --ignore-requires-python focus-validator==2.2.1 'pyarrow<20' >&2
  # Of what needs Python 3.12 there is one expression.
  converter=$("$out/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/focus_validator/config_objects/focus_to_duckdb_converter.py
  sed -i "s/f\"'{k.replace(.*)}'\" for k in ignore_keys/\"'\" + k.replace('\"', '\"\"') + \"'\" for k in ignore_keys/" "$converter"
  "$out/bin/python" -m py_compile "$converter"
  touch "$out/ready"
fi
echo "$out/bin/focus-validator"
