#!/usr/bin/env bash
# Runs `make test` as a newcomer does: in a clone of what is committed, in a folder with a space, with an empty home, and, if
# this is root, as a user without rights. Nothing else of the environment is handed on but what pip and this script need.
# usage: .ci/newcomer.sh [ARGUMENTS OF make, default: test]
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /tmp/queuectl-newcomer-XXXXXX)
trap 'rm -rf "$place"' EXIT
clone="$place/a folder/queuectl" home="$place/home"
mkdir -p "$home" "$place/a folder"
git clone --quiet --no-hardlinks . "$clone"
as=()
if [ "$(id -u)" = 0 ]; then
  as=(runuser -u nobody --)
  chown -R nobody: "$place"
fi
handed=(HOME="$home" PATH="/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8)
while IFS= read -r name; do handed+=("$name=${!name}"); done < <(compgen -e | grep -E '^(PIP_.*|SSL_CERT_.*|.*_CA_BUNDLE|https?_proxy|HTTPS?_PROXY|NO_PROXY|no_proxy|QUEUECTL_NO_SKIPS|PYTHON)$')
if ! "${as[@]}" env -i "${handed[@]}" python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "that user has no Python 3.11 or newer with venv: $(id -un) runs it with $(command -v python3)" >&2
  chown -R "$(id -u)" "$place"
  as=()
  handed+=(PATH="$PATH")
fi
cd "$clone"
"${as[@]}" env -i "${handed[@]}" make "${@:-test}"
