package troupe_test

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
	"github.com/troupe-dev/troupe/tests/clients/go/troupe"
)

// patience is the maximum time for which a test waits.
const patience = time.Minute

// project is a directory within the pair's workspace roots; empty: none.
var project = os.Getenv("TROUPE_PROJECT")

// connect creates a client of the running pair that is closed at the end of the test, and a context for its calls.
func connect(t *testing.T, options ...grpc.DialOption) (context.Context, *troupe.Client) {
	t.Helper()
	client, err := troupe.FromEnvironment(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx, client
}

// session is a session of the running pair that is closed at the end of its test.
type session struct {
	*supervisorv1.Session
	t      *testing.T
	ctx    context.Context
	client *troupe.Client
}

func open(t *testing.T, maxDepth uint32) *session {
	t.Helper()
	ctx, client := connect(t)
	answer, err := client.Supervisor.CreateSession(ctx, &supervisorv1.CreateSessionRequest{
		Cwd:    project,
		Limits: &supervisorv1.Limits{MaxDepth: proto.Uint32(maxDepth)},
		Labels: map[string]string{"client": "go", "test": t.Name()},
	})
	if err != nil {
		t.Fatal(err)
	}
	opened := &session{Session: answer.GetSession(), t: t, ctx: ctx, client: client}
	t.Cleanup(opened.close)
	return opened
}

// close closes the session and returns when all of its threads are closed. It may be called again.
func (s *session) close() {
	s.t.Helper()
	_, err := s.client.Supervisor.CloseSession(s.ctx, &supervisorv1.CloseSessionRequest{SessionId: s.GetSessionId(), Wait: true})
	if err != nil {
		s.t.Error(err)
	}
}

// spawn spawns an agent below parent and returns its thread's id.
func (s *session) spawn(parent, agentType, message string) string {
	s.t.Helper()
	answer, err := s.trySpawn(parent, agentType, message)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.GetThread().GetThreadId()
}

func (s *session) trySpawn(parent, agentType, message string) (*supervisorv1.SpawnAgentResponse, error) {
	return s.client.Supervisor.SpawnAgent(s.ctx, &supervisorv1.SpawnAgentRequest{
		SessionId:      s.GetSessionId(),
		ParentThreadId: parent,
		AgentType:      agentType,
		Message:        proto.String(message),
	})
}

// events follows the watch until the session is closed, and returns the events in the order of their arrival. It calls
// meanwhile with each event.
func (s *session) events(watch *troupe.Watch, meanwhile func(*supervisorv1.Event)) []*supervisorv1.Event {
	s.t.Helper()
	var events []*supervisorv1.Event
	for message, err := range watch.Messages(s.ctx) {
		if err != nil {
			s.t.Fatal(err)
		}
		event := message.GetEvent()
		if event == nil {
			continue
		}
		events = append(events, event)
		if event.GetSessionClosed() != nil {
			break
		}
		meanwhile(event)
	}
	return events
}
