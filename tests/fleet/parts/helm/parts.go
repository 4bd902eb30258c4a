//go:build parts

// Package helm names the command that go.mod requires.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
