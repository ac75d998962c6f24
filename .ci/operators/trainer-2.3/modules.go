// Package operators names what build.sh builds, so that go.mod and go.sum are complete.
package operators

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
