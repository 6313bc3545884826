// Package tools keeps what deploy/test/install makes the CRDs of the Prometheus operator from.
package tools

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
