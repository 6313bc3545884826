package dev.troupe.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import dev.troupe.registry.v1.Agent;
import dev.troupe.supervisor.v1.Event;
import dev.troupe.supervisor.v1.ListActiveAgentsRequest;
import dev.troupe.supervisor.v1.ListActiveAgentsResponse;
import dev.troupe.supervisor.v1.WaitAgentsRequest;
import dev.troupe.supervisor.v1.WaitAgentsResponse;
import dev.troupe.supervisor.v1.StatusKind;
import dev.troupe.supervisor.v1.Thread;

class TreeTest {
  @Test
  void listsAgents() {
    try (TroupeClient client = TroupeClient.fromEnvironment()) {
      List<String> names = client.agents(Environment.PROJECT).stream().map(Agent::getAgentType).toList();
      List<String> embedded = List.of("explorer", "orchestrator", "worker");
      assertTrue(names.containsAll(embedded), () -> embedded + " are not all among " + names);
    }
  }

  @Test
  void spawnsATree() {
    try (TestSession session = new TestSession(2)) {
      String lead = session.spawn(session.root, "orchestrator", "Lead the search.\nhold");
      String scout = session.spawn(lead, "explorer", "Find the main function.");

      WaitAgentsResponse settled =
          session
              .client
              .supervisor()
              .waitAgents(WaitAgentsRequest.newBuilder().addThreadIds(scout).build());
      assertFalse(settled.getTimedOut());
      assertEquals(StatusKind.STATUS_KIND_COMPLETED, settled.getStatuses(0).getStatus().getKind());

      ListActiveAgentsResponse tree =
          session
              .client
              .supervisor()
              .listActiveAgents(
                  ListActiveAgentsRequest.newBuilder()
                      .setSessionId(session.id)
                      .setIncludeSelf(true)
                      .build());
      List<Thread> threads = tree.getThreadsList();
      assertEquals(
          List.of(session.root, lead, scout), threads.stream().map(Thread::getThreadId).toList());
      assertEquals(List.of(0, 1, 2), threads.stream().map(Thread::getDepth).toList());
    }
  }

  @Test
  void rejectedDeeperSpawnHasReason() {
    try (TestSession session = new TestSession(1)) {
      String lead = session.spawn(session.root, "orchestrator", "Lead the search.\nhold");
      StatusRuntimeException failure =
          assertThrows(
              StatusRuntimeException.class,
              () -> session.spawn(lead, "explorer", "Find the main function."));
      assertEquals(Status.Code.FAILED_PRECONDITION, failure.getStatus().getCode());
      assertEquals(Refusal.DEPTH_LIMIT, Refusal.reason(failure));
    }
  }

  @Test
  void sessionCloseClosesChildrenFirst() throws InterruptedException {
    try (TestSession session = new TestSession(2)) {
      String lead = session.spawn(session.root, "orchestrator", "Lead the search.\nhold");
      session.spawn(lead, "explorer", "Find the main function.\nhold");
      session.spawn(lead, "explorer", "Find the tests.\nhold");
      session.spawn(session.root, "worker", "Do something else.\nhold");
      session.closeTree();

      Map<String, String> parentOfOpen = new HashMap<>();
      List<String> closed = new ArrayList<>();
      try (Watch watch = new Watch(session.client, session.id, Position.BEGINNING)) {
        for (Event event : TestSession.events(watch, ignored -> {})) {
          String thread = event.getThreadId();
          if (event.hasThreadSpawned()) {
            parentOfOpen.put(thread, event.getThreadSpawned().getParentThreadId());
          }
          if (event.hasThreadClosed()) {
            assertFalse(parentOfOpen.containsValue(thread), () -> thread + " is closed before a child");
            parentOfOpen.remove(thread);
            closed.add(thread);
          }
        }
      }
      assertEquals(Map.of(), parentOfOpen, "threads that are still open, with their parents");
      assertEquals(5, closed.size());
    }
  }
}
