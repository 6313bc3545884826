package dev.troupe.client;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import dev.troupe.supervisor.v1.Event;
import dev.troupe.supervisor.v1.Limits;
import dev.troupe.supervisor.v1.Session;
import dev.troupe.supervisor.v1.CloseSessionRequest;
import dev.troupe.supervisor.v1.CreateSessionRequest;
import dev.troupe.supervisor.v1.SpawnAgentRequest;
import dev.troupe.supervisor.v1.WatchThreadsResponse;

/** A session of the running pair that is closed at the end of its test. */
final class TestSession implements AutoCloseable {
  final TroupeClient client = TroupeClient.fromEnvironment();
  final String id;
  final String root;

  TestSession(int maxDepth) {
    Session session =
        client
            .supervisor()
            .createSession(
                CreateSessionRequest.newBuilder()
                    .setCwd(Environment.PROJECT)
                    .setLimits(Limits.newBuilder().setMaxDepth(maxDepth))
                    .putLabels("client", "java")
                    .build())
            .getSession();
    id = session.getSessionId();
    root = session.getRootThreadId();
  }

  /** Spawns an agent below {@code parent} and returns its thread's id. */
  String spawn(String parent, String agentType, String message) {
    return client
        .supervisor()
        .spawnAgent(
            SpawnAgentRequest.newBuilder()
                .setSessionId(id)
                .setParentThreadId(parent)
                .setAgentType(agentType)
                .setMessage(message)
                .build())
        .getThread()
        .getThreadId();
  }

  /**
   * Follows a watch until the session is closed, and returns the events in the order of their arrival. Calls
   * {@code meanwhile} with each event.
   */
  static List<Event> events(Watch watch, Consumer<Event> meanwhile) throws InterruptedException {
    List<Event> events = new ArrayList<>();
    while (true) {
      WatchThreadsResponse message = watch.next();
      if (message.hasEvent()) {
        events.add(message.getEvent());
        if (message.getEvent().hasSessionClosed()) {
          return events;
        }
        meanwhile.accept(message.getEvent());
      }
    }
  }

  /** Closes the session and returns when all of its threads are closed. May be called again. */
  void closeTree() {
    client
        .supervisor()
        .closeSession(CloseSessionRequest.newBuilder().setSessionId(id).setWait(true).build());
  }

  @Override
  public void close() {
    closeTree();
    client.close();
  }
}
