// Command collector is an OpenTelemetry Collector with nothing but what deploy/test/collector asks of it: it takes OTLP,
// and writes all that it is told to its output, in OTLP's JSON, one request a line.
package main

import (
	"context"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
)

// Lines are whole, whoever writes them.
var output sync.Mutex

func writeLine(line []byte, err error) error {
	if err != nil {
		return err
	}
	output.Lock()
	defer output.Unlock()
	_, err = os.Stdout.Write(append(line, '\n'))
	return err
}

// lines is the exporter: to it nothing is started and nothing is left to do at the end.
type lines struct {
	component.StartFunc
	component.ShutdownFunc
}

func (lines) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{}
}

func (lines) ConsumeTraces(_ context.Context, told ptrace.Traces) error {
	return writeLine((&ptrace.JSONMarshaler{}).MarshalTraces(told))
}

func (lines) ConsumeMetrics(_ context.Context, told pmetric.Metrics) error {
	return writeLine((&pmetric.JSONMarshaler{}).MarshalMetrics(told))
}

func noSettings() component.Config {
	return &struct{}{}
}

func newLines() exporter.Factory {
	traces := func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
		return lines{}, nil
	}
	metrics := func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
		return lines{}, nil
	}
	return exporter.NewFactory(
		component.MustNewType("lines"),
		noSettings,
		exporter.WithTraces(traces, component.StabilityLevelDevelopment),
		exporter.WithMetrics(metrics, component.StabilityLevelDevelopment),
	)
}

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap(otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap(newLines())
	if err != nil {
		return otelcol.Factories{}, err
	}
	// Of itself it tells nothing.
	return otelcol.Factories{
		Receivers: receivers,
		Exporters: exporters,
		Telemetry: telemetry.NewFactory(noSettings),
	}, nil
}

func main() {
	// Without a scheme of its own, values would be sought in the environment, and nothing here reads that.
	resolver := confmap.ResolverSettings{
		ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		DefaultScheme:     "file",
	}
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo:              component.NewDefaultBuildInfo(),
		Factories:              factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: resolver},
	})
	// It says itself what is wrong.
	if command.Execute() != nil {
		os.Exit(1)
	}
}
