#!/usr/bin/env bash
# Makes the operators that kinds are tested on from their Go modules, and prints the folder that holds them: for each NAME
# below the program NAME, and NAME.d with the definitions, webhooks and runtimes of exactly that version. go.mod has the
# version. Trainer 2.3 is beside 2.2 because its merge of runtimePatches differs. Cached; the first time takes some three
# minutes an operator on two cores. Needs Go 1.26 or newer and a Go module proxy.
# usage: QUEUECTL_OPERATORS=$(.ci/operators/build.sh)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${XDG_CACHE_HOME:-$HOME/.cache}/queuectl-operators/2026-11
for folder in /usr/local/go/bin "$HOME/go/bin"; do [ -d "$folder" ] && PATH=$folder:$PATH; done
mkdir -p "$out"
exec 9>"$out/.lock"; flock 9
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=readonly"
make_from() { # NAME MODULE PACKAGE DEFINITIONS [WEBHOOKS [RUNTIMES]], of which the last three are paths in the module
  [ -x "$out/$1" ] && return
  command -v go > /dev/null || { echo "Go is not installed: it makes $1" >&2; exit 1; }
  echo "building $1" >&2
  cd "$here/$1"
  go build -p 2 -ldflags '-s -w' -o "$out/$1.new" "$2$3" >&2
  local source; source=$(go list -m -f '{{.Dir}}' "$2")
  rm -rf "$out/$1.d"; mkdir -p "$out/$1.d/crds"
  if [ -d "$source/$4" ]; then cp -r "$source/$4/." "$out/$1.d/crds"; else cp "$source/$4" "$out/$1.d/crds"; fi
  rm -f "$out/$1.d/crds/kustomization.yaml"
  [ -z "${5:-}" ] || cp "$source/$5" "$out/$1.d/webhooks.yaml"
  [ -z "${6:-}" ] || { mkdir "$out/$1.d/runtimes"; cp "$source/$6"/*_distributed.yaml "$out/$1.d/runtimes"; }
  chmod -R u+w "$out/$1.d"
  mv "$out/$1.new" "$out/$1"
}
make_from training-operator github.com/kubeflow/training-operator /cmd/training-operator.v1 manifests/base/crds
make_from jobset sigs.k8s.io/jobset "" config/components/crd/bases config/components/webhook/manifests.yaml
make_from mpi-operator github.com/kubeflow/mpi-operator /cmd/mpi-operator manifests/base/kubeflow.org_mpijobs.yaml
make_from kuberay github.com/ray-project/kuberay/ray-operator "" config/crd/bases
make_from argo github.com/argoproj/argo-workflows/v4 /cmd/workflow-controller manifests/base/crds/minimal
make_from lws sigs.k8s.io/lws /cmd config/crd/bases config/webhook/manifests.yaml
for name in trainer trainer-2.3; do
  make_from "$name" github.com/kubeflow/trainer/v2 /cmd/trainer-controller-manager manifests/base/crds \
    manifests/base/webhook/manifests.yaml manifests/base/runtimes
done
echo "$out"
