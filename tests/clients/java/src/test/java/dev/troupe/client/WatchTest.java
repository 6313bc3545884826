package dev.troupe.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.OptionalLong;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import dev.troupe.supervisor.v1.Event;
import dev.troupe.supervisor.v1.WatchThreadsResponse;

class WatchTest {
  @Test
  void watchLosesNothingAfterDroppedStream() throws InterruptedException {
    try (TestSession session = new TestSession(2);
        Watch watch = new Watch(session.client, session.id, Position.BEGINNING)) {
      assertLosesNothing(session, watch, watch::drop);
    }
  }

  @Test
  void watchLosesNothingAfterLostConnection() throws Exception {
    try (TestSession session = new TestSession(2);
        Relay relay = new Relay(Environment.SUPERVISOR);
        TroupeClient watcher =
            new TroupeClient(Environment.REGISTRY, relay.address(), Environment.TOKEN);
        Watch watch = new Watch(watcher, session.id, Position.BEGINNING)) {
      assertLosesNothing(session, watch, relay::cut);
      assertEquals(3, relay.count(), "connections: one before each cut and one after both");
    }
  }

  @Test
  void anotherClientResumesFromStoredPosition() throws InterruptedException {
    try (TestSession session = new TestSession(2)) {
      Position kept;
      try (Watch watch = new Watch(session.client, session.id, Position.UNKNOWN)) {
        readSnapshot(watch);
        kept = watch.position();
      }
      session.spawn(session.root, "worker", "Do something.");
      session.closeTree();
      try (TroupeClient elsewhere = TroupeClient.fromEnvironment();
          Watch watch = new Watch(elsewhere, session.id, kept)) {
        List<Event> events = TestSession.events(watch, ignored -> {});
        assertWhole(kept.after().orElseThrow(), events);
      }
    }
  }

  @Test
  void watchOfAnotherLogBeginsWithReset() throws InterruptedException {
    Position elsewhere = new Position(OptionalLong.of(1), "another");
    try (TestSession session = new TestSession(2);
        Watch watch = new Watch(session.client, session.id, elsewhere)) {
      assertTrue(watch.next().hasReset());
      readSnapshot(watch);
    }
  }

  private static void readSnapshot(Watch watch) throws InterruptedException {
    WatchThreadsResponse message;
    do {
      message = watch.next();
    } while (!message.getSnapshot().getLast());
  }

  /** Disconnects twice while a tree runs. After one of the disconnects, events occur without a watcher. */
  private static void assertLosesNothing(TestSession session, Watch watch, Runnable disconnect)
      throws InterruptedException {
    String lead = session.spawn(session.root, "orchestrator", "Lead the search.\nhold");
    List<Event> events =
        TestSession.events(
            watch,
            event -> {
              boolean isOfLead = event.getThreadId().equals(lead);
              if (event.hasTurnStarted() && isOfLead) {
                disconnect.run();
                session.spawn(lead, "explorer", "Find the main function.");
              } else if (event.hasTurnEnded() && !isOfLead) {
                disconnect.run();
                session.closeTree();
              }
            });
    assertWhole(0, events);
  }

  /** Checks that the events after a position have consecutive sequences. */
  private static void assertWhole(long after, List<Event> events) {
    List<Long> due = LongStream.rangeClosed(after + 1, after + events.size()).boxed().toList();
    assertEquals(due, events.stream().map(Event::getSequence).toList());
  }
}
