#!/usr/bin/env bash
# Unpacks Prometheus of Debian, without installing it, and prints the folder with prometheus and promtool. Cached.
# usage: QUEUECTL_PROMETHEUS=$(.ci/prometheus.sh)
set -euo pipefail
out=${XDG_CACHE_HOME:-$HOME/.cache}/queuectl-prometheus/2
mkdir -p "$out"
exec 9>"$out/.lock"; flock 9
if ! [ -x "$out/promtool" ]; then
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"; cd "$work"
  { apt-get -qq update && apt-get -qq download prometheus; } >&2
  dpkg -x prometheus_*.deb unpacked
  install unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$out/"
fi
echo "$out"
