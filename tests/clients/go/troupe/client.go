// Package troupe is a small client of a pair of Troupe services, based on the stubs that are generated from its protos.
package troupe

//go:generate go -C .. run github.com/bufbuild/buf/cmd/buf@v1.72.0 generate

import (
	"cmp"
	"context"
	"errors"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	registryv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/registry/v1"
	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
)

// Client has the stubs of both services.
type Client struct {
	Registry    registryv1.AgentRegistryServiceClient
	Supervisor  supervisorv1.AgentSupervisorServiceClient
	connections []*grpc.ClientConn
}

// FromEnvironment creates a client of the pair at TROUPE_REGISTRY and TROUPE_SUPERVISOR (host:port), by default the
// pair on this machine's default ports. TROUPE_TOKEN is the caller's token.
func FromEnvironment(options ...grpc.DialOption) (*Client, error) {
	registry := cmp.Or(os.Getenv("TROUPE_REGISTRY"), "127.0.0.1:50051")
	supervisor := cmp.Or(os.Getenv("TROUPE_SUPERVISOR"), "127.0.0.1:50052")
	return New(registry, supervisor, os.Getenv("TROUPE_TOKEN"), options...)
}

// New creates a client. It connects on first use.
func New(registry, supervisor, token string, options ...grpc.DialOption) (*Client, error) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	toRegistry, err := grpc.NewClient(registry, options...)
	if err != nil {
		return nil, err
	}
	toSupervisor, err := grpc.NewClient(supervisor, options...)
	if err != nil {
		return nil, errors.Join(err, toRegistry.Close())
	}
	return &Client{
		Registry:    registryv1.NewAgentRegistryServiceClient(toRegistry),
		Supervisor:  supervisorv1.NewAgentSupervisorServiceClient(toSupervisor),
		connections: []*grpc.ClientConn{toRegistry, toSupervisor},
	}, nil
}

// Close ends the connections, and with them every call.
func (c *Client) Close() error {
	var failures error
	for _, connection := range c.connections {
		failures = errors.Join(failures, connection.Close())
	}
	return failures
}

// Agents lists the agent types of the project in cwd, by name and over all pages. Malformed templates are omitted.
func (c *Client) Agents(ctx context.Context, cwd string) ([]*registryv1.Agent, error) {
	request := &registryv1.ListAgentsRequest{Cwd: cwd, AllowPartial: true}
	var agents []*registryv1.Agent
	for {
		page, err := c.Registry.ListAgents(ctx, request)
		if err != nil {
			return nil, err
		}
		agents = append(agents, page.GetAgents()...)
		request.PageToken = page.GetNextPageToken()
		if request.PageToken == "" {
			return agents, nil
		}
	}
}

// bearer is a token that is sent with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// On one machine a token may go over plain TCP; across machines, give the services certificates.
func (bearer) RequireTransportSecurity() bool { return false }
