// Command tour demonstrates a client of a running pair: it lists the agent types, opens a session, spawns a tree, tries
// a spawn that is too deep, follows the tree across a disconnect, and closes the session.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
	"github.com/troupe-dev/troupe/tests/clients/go/troupe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := tour(ctx, os.Getenv("TROUPE_PROJECT"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tour(ctx context.Context, cwd string, out io.Writer) error {
	client, err := troupe.FromEnvironment()
	if err != nil {
		return err
	}
	defer client.Close()

	agents, err := client.Agents(ctx, cwd)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		fmt.Fprintf(out, "%-14s %s\n", agent.GetAgentType(), agent.GetDescription())
	}

	opened, err := client.Supervisor.CreateSession(ctx, &supervisorv1.CreateSessionRequest{
		Cwd:    cwd,
		Limits: &supervisorv1.Limits{MaxDepth: proto.Uint32(2)},
	})
	if err != nil {
		return err
	}
	session := opened.GetSession().GetSessionId()
	// The agents that `troupe up` runs have no model; `hold` keeps them busy until they are stopped.
	lead, err := spawn(ctx, client, session, opened.GetSession().GetRootThreadId(), "orchestrator", "Lead the search.\nhold")
	if err != nil {
		return err
	}
	scout, err := spawn(ctx, client, session, lead, "explorer", "Find the main function.")
	if err != nil {
		return err
	}
	if err := spawnTooDeep(ctx, client, session, scout, out); err != nil {
		return err
	}
	return follow(ctx, client, session, scout, out)
}

func spawn(ctx context.Context, client *troupe.Client, session, parent, agentType, message string) (string, error) {
	answer, err := client.Supervisor.SpawnAgent(ctx, &supervisorv1.SpawnAgentRequest{
		SessionId:      session,
		ParentThreadId: parent,
		AgentType:      agentType,
		Message:        proto.String(message),
	})
	return answer.GetThread().GetThreadId(), err
}

// spawnTooDeep tries a spawn below the session's maximum depth. Any other error is returned.
func spawnTooDeep(ctx context.Context, client *troupe.Client, session, parent string, out io.Writer) error {
	_, err := spawn(ctx, client, session, parent, "explorer", "Deeper.")
	switch {
	case err == nil:
		return fmt.Errorf("a spawn below %s was not rejected", parent)
	case troupe.Reason(err) == troupe.DepthLimit:
		fmt.Fprintf(out, "refused: %v\n", err)
		return nil
	default:
		return err
	}
}

// follow prints all events of the session. When the scout's turn has ended, it drops the stream and closes the session,
// so that a second stream delivers the events of the close.
func follow(ctx context.Context, client *troupe.Client, session, scout string, out io.Writer) error {
	watch := client.Watch(session, troupe.Beginning)
	for message, err := range watch.Messages(ctx) {
		if err != nil {
			return err
		}
		event := message.GetEvent()
		if event == nil {
			continue
		}
		fmt.Fprintf(out, "%4d %-18s %s\n", event.GetSequence(), kind(event), event.GetThreadId())
		if event.GetTurnEnded() != nil && event.GetThreadId() == scout {
			watch.Drop()
			if _, err := client.Supervisor.CloseSession(ctx, &supervisorv1.CloseSessionRequest{SessionId: session}); err != nil {
				return err
			}
		}
		if event.GetSessionClosed() != nil {
			break
		}
	}
	return nil
}

// kind returns the name of an event's kind. Later releases may send kinds that the protos of this client do not
// contain.
func kind(event *supervisorv1.Event) string {
	message := event.ProtoReflect()
	field := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return "(unknown)"
	}
	return string(field.Name())
}
