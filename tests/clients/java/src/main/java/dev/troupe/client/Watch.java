package dev.troupe.client;

import io.grpc.Context;
import io.grpc.Context.CancellableContext;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.OptionalLong;
import dev.troupe.supervisor.v1.WatchThreadsRequest;
import dev.troupe.supervisor.v1.WatchThreadsResponse;

/**
 * Follows a session over as many streams as that takes, without losing or doubling an event. Not for several threads at
 * once.
 */
public final class Watch implements AutoCloseable {
  private final TroupeClient client;
  private final String sessionId;
  private Position position;

  /** What ends the present stream; null where there is none. */
  private CancellableContext context;

  private Iterator<WatchThreadsResponse> messages;

  public Watch(TroupeClient client, String sessionId, Position position) {
    this.client = client;
    this.sessionId = sessionId;
    this.position = position;
  }

  /** Where the watch is, after the last message that it answered. */
  public Position position() {
    return position;
  }

  /**
   * The next message, once there is one. After a {@code reset} what was known is void, and a snapshot follows. One that
   * was interrupted is repeated from its first part.
   *
   * @throws StatusRuntimeException if the service refuses, such as a position that it no longer has
   */
  public WatchThreadsResponse next() throws InterruptedException {
    while (true) {
      try {
        if (context == null) {
          open();
        }
        if (messages.hasNext()) {
          WatchThreadsResponse message = messages.next();
          advance(message);
          return message;
        }
        drop(); // its lifetime was over
      } catch (StatusRuntimeException failure) {
        drop();
        // The service or the way to it went away; anything else would happen again.
        if (failure.getStatus().getCode() != Status.Code.UNAVAILABLE) {
          throw failure;
        }
        Thread.sleep(Refusal.retryDelay(failure).toMillis());
      }
    }
  }

  /** Gives up the present stream. The next message comes from another one, which goes on where this one was. */
  public void drop() {
    if (context != null) {
      context.cancel(null);
      context = null;
    }
  }

  @Override
  public void close() {
    drop();
  }

  private void open() {
    WatchThreadsRequest.Builder request =
        WatchThreadsRequest.newBuilder().setSessionId(sessionId).setLogId(position.logId());
    position.after().ifPresent(request::setAfterSequence);
    context = Context.current().withCancellation();
    // While the service is away, the channel waits and backs off instead of our loop.
    context.run(
        () -> messages = client.supervisor().withWaitForReady().watchThreads(request.build()));
  }

  private void advance(WatchThreadsResponse message) {
    switch (message.getMessageCase()) {
      case RESET -> {
        drop();
        position = Position.UNKNOWN;
      }
      case SNAPSHOT -> {
        if (message.getSnapshot().getLast()) {
          position = after(message, message.getSnapshot().getLogId());
        }
      }
      case TELEMETRY, OUTPUT -> {} // they have no place in the order
      default -> {
        // Of a kind that is not known yet, it may have no place either.
        if (message.getSequence() > 0) {
          position = after(message, position.logId());
        }
      }
    }
  }

  private static Position after(WatchThreadsResponse message, String logId) {
    return new Position(OptionalLong.of(message.getSequence()), logId);
  }
}
