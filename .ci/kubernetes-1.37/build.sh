#!/usr/bin/env bash
# Makes kube-apiserver and kube-controller-manager 1.37.2 from their Go modules, beside the etcd and the kubectl of
# KUBEBUILDER_ASSETS, and prints the folder with all four. Cached; the first time takes some eight minutes on two cores.
# Needs Go 1.26 or newer and a Go module proxy.
# usage: QUEUECTL_NEXT_ASSETS=$(.ci/kubernetes-1.37/build.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=1.37.2
out=${XDG_CACHE_HOME:-$HOME/.cache}/queuectl-kubernetes/$version
for folder in /usr/local/go/bin "$HOME/go/bin"; do [ -d "$folder" ] && PATH=$folder:$PATH; done
mkdir -p "$out"
exec 9>"$out/.lock"; flock 9
export CGO_ENABLED=0
flags="-s -w -X k8s.io/component-base/version.gitVersion=v$version"
flags="$flags -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
for name in kube-apiserver kube-controller-manager; do
  [ -x "$out/$name" ] && continue
  echo "building $name $version" >&2
  (cd "$here" && go build -mod=readonly -ldflags "$flags" -o "$out/$name.new" "k8s.io/kubernetes/cmd/$name") >&2
  mv "$out/$name.new" "$out/$name"
done
for name in etcd kubectl; do ln -sfn "$KUBEBUILDER_ASSETS/$name" "$out/$name"; done
echo "$out"
