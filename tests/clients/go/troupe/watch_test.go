package troupe_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
	"github.com/troupe-dev/troupe/tests/clients/go/troupe"
)

func TestWatchLosesNothingAfterDroppedStream(t *testing.T) {
	session := open(t, 2)
	watch := session.client.Watch(session.GetSessionId(), troupe.Beginning)
	assertLosesNothing(session, watch, watch.Drop)
}

func TestWatchLosesNothingAfterLostConnection(t *testing.T) {
	var wires wires
	session := open(t, 2)
	_, watcher := connect(t, grpc.WithContextDialer(wires.dial))
	watch := watcher.Watch(session.GetSessionId(), troupe.Beginning)
	assertLosesNothing(session, watch, wires.cut)
	if count := wires.count(); count != 3 {
		t.Errorf("%d connections instead of 3: one before each cut and one after both", count)
	}
}

func TestAnotherClientResumesFromStoredPosition(t *testing.T) {
	session := open(t, 2)
	watch := session.client.Watch(session.GetSessionId(), troupe.Position{})
	for message, err := range watch.Messages(session.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if message.GetSnapshot().GetLast() {
			break
		}
	}
	kept := watch.Position()

	session.spawn(session.GetRootThreadId(), "worker", "Do something.")
	session.close()
	_, elsewhere := connect(t)
	events := session.events(elsewhere.Watch(session.GetSessionId(), kept), func(*supervisorv1.Event) {})
	assertWhole(t, *kept.After, events)
}

func TestWatchOfAnotherLogBeginsWithReset(t *testing.T) {
	session := open(t, 2)
	watch := session.client.Watch(session.GetSessionId(), troupe.Position{After: proto.Uint64(1), LogID: "another"})
	wasReset := false
	for message, err := range watch.Messages(session.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if message.GetReset_() != nil {
			wasReset = true
		}
		if message.GetSnapshot().GetLast() {
			break
		}
	}
	if !wasReset {
		t.Error("there was no reset before the snapshot")
	}
}

// assertLosesNothing disconnects twice while a tree runs. After one of the disconnects, events occur without a watcher.
func assertLosesNothing(session *session, watch *troupe.Watch, disconnect func()) {
	session.t.Helper()
	var scout string
	lead := session.spawn(session.GetRootThreadId(), "orchestrator", "Lead the search.\nhold")
	events := session.events(watch, func(event *supervisorv1.Event) {
		switch {
		case event.GetTurnStarted() != nil && event.GetThreadId() == lead:
			disconnect()
			scout = session.spawn(lead, "explorer", "Find the main function.")
		case event.GetTurnEnded() != nil && event.GetThreadId() == scout:
			disconnect()
			session.close()
		}
	})
	assertWhole(session.t, 0, events)
}

// assertWhole checks that the events after a position have consecutive sequences.
func assertWhole(t *testing.T, after uint64, events []*supervisorv1.Event) {
	t.Helper()
	for _, event := range events {
		after++
		if event.GetSequence() != after {
			t.Fatalf("event %d arrived instead of %d", event.GetSequence(), after)
		}
	}
}
