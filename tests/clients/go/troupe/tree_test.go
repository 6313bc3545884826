package troupe_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
	"github.com/troupe-dev/troupe/tests/clients/go/troupe"
)

func TestListsAgents(t *testing.T) {
	ctx, client := connect(t)
	agents, err := client.Agents(ctx, project)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, agent := range agents {
		names = append(names, agent.GetAgentType())
	}
	for _, embedded := range []string{"explorer", "orchestrator", "worker"} {
		if !slices.Contains(names, embedded) {
			t.Errorf("%s is missing in %q", embedded, names)
		}
	}
}

func TestSpawnsATree(t *testing.T) {
	session := open(t, 2)
	lead := session.spawn(session.GetRootThreadId(), "orchestrator", "Lead the search.\nhold")
	scout := session.spawn(lead, "explorer", "Find the main function.")

	settled, err := session.client.Supervisor.WaitAgents(session.ctx, &supervisorv1.WaitAgentsRequest{ThreadIds: []string{scout}})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range settled.GetStatuses() {
		if kind := status.GetStatus().GetKind(); kind != supervisorv1.StatusKind_STATUS_KIND_COMPLETED {
			t.Errorf("the scout is %s", kind)
		}
	}
	if settled.GetTimedOut() {
		t.Error("the scout has not settled")
	}

	tree, err := session.client.Supervisor.ListActiveAgents(session.ctx, &supervisorv1.ListActiveAgentsRequest{
		SessionId:   session.GetSessionId(),
		IncludeSelf: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var path []string
	for _, thread := range tree.GetThreads() {
		if thread.GetDepth() != uint32(len(path)) {
			t.Errorf("%s has depth %d, not %d", thread.GetThreadId(), thread.GetDepth(), len(path))
		}
		path = append(path, thread.GetThreadId())
	}
	if want := []string{session.GetRootThreadId(), lead, scout}; !slices.Equal(path, want) {
		t.Errorf("the tree is %q, not %q", path, want)
	}
}

func TestRejectedDeeperSpawnHasReason(t *testing.T) {
	session := open(t, 1)
	lead := session.spawn(session.GetRootThreadId(), "orchestrator", "Lead the search.\nhold")
	_, err := session.trySpawn(lead, "explorer", "Find the main function.")

	if code := status.Code(err); code != codes.FailedPrecondition {
		t.Errorf("the code is %s", code)
	}
	if reason := troupe.Reason(err); reason != troupe.DepthLimit {
		t.Errorf("the reason is %q, of %v", reason, err)
	}
}

func TestSessionCloseClosesChildrenFirst(t *testing.T) {
	session := open(t, 2)
	root := session.GetRootThreadId()
	lead := session.spawn(root, "orchestrator", "Lead the search.\nhold")
	session.spawn(lead, "explorer", "Find the main function.\nhold")
	session.spawn(lead, "explorer", "Find the tests.\nhold")
	session.spawn(root, "worker", "Do something else.\nhold")
	session.close()

	watch := session.client.Watch(session.GetSessionId(), troupe.Beginning)
	open := map[string][]string{} // the open children of each open thread
	parents := map[string]string{}
	for _, event := range session.events(watch, func(*supervisorv1.Event) {}) {
		thread := event.GetThreadId()
		if spawned := event.GetThreadSpawned(); spawned != nil {
			parents[thread] = spawned.GetParentThreadId()
			open[parents[thread]] = append(open[parents[thread]], thread)
		}
		if event.GetThreadClosed() != nil {
			if children := open[thread]; len(children) > 0 {
				t.Errorf("%s is closed before its children %q", thread, children)
			}
			siblings := open[parents[thread]]
			open[parents[thread]] = slices.DeleteFunc(siblings, func(sibling string) bool { return sibling == thread })
		}
	}
	if len(parents) != 5 || len(open[""]) > 0 {
		t.Errorf("of %d threads, the root among %q is still open", len(parents), open[""])
	}
}
