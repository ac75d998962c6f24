//go:build tools

// Package operators names the program, so that `go mod tidy` keeps what it needs.
package operators

import _ "github.com/argoproj/argo-workflows/v4/cmd/workflow-controller"
