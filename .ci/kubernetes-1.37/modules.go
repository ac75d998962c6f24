//go:build tools

// Package modules names the programs, so that `go mod tidy` keeps what they need.
package modules

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
