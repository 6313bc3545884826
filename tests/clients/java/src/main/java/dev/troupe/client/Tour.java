package dev.troupe.client;

import io.grpc.StatusRuntimeException;
import java.io.PrintStream;
import dev.troupe.registry.v1.Agent;
import dev.troupe.supervisor.v1.Event;
import dev.troupe.supervisor.v1.Limits;
import dev.troupe.supervisor.v1.Session;
import dev.troupe.supervisor.v1.CloseSessionRequest;
import dev.troupe.supervisor.v1.CreateSessionRequest;
import dev.troupe.supervisor.v1.SpawnAgentRequest;
import dev.troupe.supervisor.v1.WatchThreadsResponse;

/**
 * Demonstrates a client of a running pair: it lists the agent types, opens a session, spawns a tree, tries a spawn that
 * is too deep, follows the tree across a disconnect, and closes the session.
 */
public final class Tour {
  private final TroupeClient client;
  private final PrintStream out;

  Tour(TroupeClient client, PrintStream out) {
    this.client = client;
    this.out = out;
  }

  public static void main(String[] arguments) throws InterruptedException {
    try (TroupeClient client = TroupeClient.fromEnvironment()) {
      new Tour(client, System.out).run();
    }
  }

  void run() throws InterruptedException {
    for (Agent agent : client.agents(Environment.PROJECT)) {
      out.printf("%-14s %s%n", agent.getAgentType(), agent.getDescription());
    }

    Session session =
        client
            .supervisor()
            .createSession(
                CreateSessionRequest.newBuilder()
                    .setCwd(Environment.PROJECT)
                    .setLimits(Limits.newBuilder().setMaxDepth(2))
                    .build())
            .getSession();
    // The agents that `troupe up` runs have no model; `hold` keeps them busy until they are stopped.
    String lead = spawn(session, session.getRootThreadId(), "orchestrator", "Lead the search.\nhold");
    String scout = spawn(session, lead, "explorer", "Find the main function.");
    spawnTooDeep(session, scout);
    follow(session, scout);
  }

  private String spawn(Session session, String parent, String agentType, String message) {
    return client
        .supervisor()
        .spawnAgent(
            SpawnAgentRequest.newBuilder()
                .setSessionId(session.getSessionId())
                .setParentThreadId(parent)
                .setAgentType(agentType)
                .setMessage(message)
                .build())
        .getThread()
        .getThreadId();
  }

  /** Tries a spawn below the session's maximum depth. Any other error is thrown. */
  private void spawnTooDeep(Session session, String parent) {
    try {
      spawn(session, parent, "explorer", "Deeper.");
    } catch (StatusRuntimeException failure) {
      if (!Refusal.reason(failure).equals(Refusal.DEPTH_LIMIT)) {
        throw failure;
      }
      out.printf("refused: %s%n", failure.getStatus().getDescription());
      return;
    }
    throw new IllegalStateException("a spawn below " + parent + " was not rejected");
  }

  /**
   * Prints all events of the session. When the scout's turn has ended, it drops the stream and closes the session, so
   * that a second stream delivers the events of the close.
   */
  private void follow(Session session, String scout) throws InterruptedException {
    try (Watch watch = new Watch(client, session.getSessionId(), Position.BEGINNING)) {
      boolean isClosed = false;
      while (!isClosed) {
        WatchThreadsResponse message = watch.next();
        if (!message.hasEvent()) {
          continue;
        }
        Event event = message.getEvent();
        // Later releases may send kinds that the protos of this client do not contain: KIND_NOT_SET.
        out.printf("%4d %-18s %s%n", event.getSequence(), event.getKindCase(), event.getThreadId());
        if (event.hasTurnEnded() && event.getThreadId().equals(scout)) {
          watch.drop();
          close(session);
        }
        isClosed = event.hasSessionClosed();
      }
    }
  }

  private void close(Session session) {
    client
        .supervisor()
        .closeSession(CloseSessionRequest.newBuilder().setSessionId(session.getSessionId()).build());
  }
}
