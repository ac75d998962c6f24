//go:build tools

// Package operators names the program, so that `go mod tidy` keeps what it needs.
package operators

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
