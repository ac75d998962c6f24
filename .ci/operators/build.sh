#!/usr/bin/env bash
# Makes the versions of operators that are tested beside those of QUEUECTL_OPERATORS, from their Go modules, into the same
# folder: Trainer 2.3, whose merge of runtimePatches differs from that of 2.2. Cached; the first time takes some four
# minutes on two cores. Needs Go 1.26 or newer and a Go module proxy.
# usage: .ci/operators/build.sh "$QUEUECTL_OPERATORS"
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?the folder with the other operators}
for folder in /usr/local/go/bin "$HOME/go/bin"; do [ -d "$folder" ] && PATH=$folder:$PATH; done
mkdir -p "$out"
exec 9>"$out/.lock.more"; flock 9
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=readonly"
name=trainer-2.3 module=github.com/kubeflow/trainer/v2
[ -x "$out/$name" ] && exit
echo "building $name" >&2
cd "$here/$name"
go build -ldflags '-s -w' -o "$out/$name.new" "$module/cmd/trainer-controller-manager" >&2
source=$(go list -m -f '{{.Dir}}' "$module")
rm -rf "$out/$name.d"; mkdir -p "$out/$name.d"
cp -r "$source/manifests/base/crds" "$out/$name.d/crds"
rm -f "$out/$name.d/crds/kustomization.yaml"
cp "$source/manifests/base/webhook/manifests.yaml" "$out/$name.d/webhooks.yaml"
chmod -R u+w "$out/$name.d"
mv "$out/$name.new" "$out/$name"
