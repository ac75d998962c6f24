#!/usr/bin/env bash
# Makes etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl 1.36.2 from their Go modules, and prints
# the folder that holds them. Cached; the first time takes some five minutes on two cores. Needs Go 1.26 or newer and a Go module proxy.
# usage: KUBEBUILDER_ASSETS=$(.ci/kubernetes-1.36/build.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=1.36.2
out=${XDG_CACHE_HOME:-$HOME/.cache}/queuectl-envtest/$version
for folder in /usr/local/go/bin "$HOME/go/bin"; do [ -d "$folder" ] && PATH=$folder:$PATH; done
mkdir -p "$out"
exec 9>"$out/.lock"; flock 9
export CGO_ENABLED=0
flags="-s -w -X k8s.io/component-base/version.gitVersion=v$version"
flags="$flags -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
make_from() { # MODULE_FOLDER NAME PACKAGE
  [ -x "$out/$2" ] && return
  command -v go > /dev/null || { echo "Go is not installed: it makes $2 $version" >&2; exit 1; }
  echo "building $2" >&2
  (cd "$here/$1" && go build -mod=readonly -ldflags "$flags" -o "$out/$2.new" "$3") >&2
  mv "$out/$2.new" "$out/$2"
}
make_from etcd etcd go.etcd.io/etcd/server/v3
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  make_from kube "$name" "k8s.io/kubernetes/cmd/$name"
done
echo "$out"
