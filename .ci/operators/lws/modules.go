//go:build tools

// Package operators names the program, so that `go mod tidy` keeps what it needs.
package operators

import _ "sigs.k8s.io/lws/cmd"
