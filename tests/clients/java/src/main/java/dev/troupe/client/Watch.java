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
 * Follows a session across several streams, without losing or repeating an event. Must not be used by several threads
 * at once.
 */
public final class Watch implements AutoCloseable {
  private final TroupeClient client;
  private final String sessionId;
  private Position position;

  /** The context of the current stream; null without a stream. */
  private CancellableContext context;

  private Iterator<WatchThreadsResponse> messages;

  public Watch(TroupeClient client, String sessionId, Position position) {
    this.client = client;
    this.sessionId = sessionId;
    this.position = position;
  }

  /** Returns the position of the watch after the last returned message. */
  public Position position() {
    return position;
  }

  /**
   * Waits for the next message. A {@code reset} invalidates the earlier state, and a snapshot follows. An interrupted
   * snapshot is repeated from its first part.
   *
   * @throws StatusRuntimeException if the service rejects the watch, for example because of a compacted position
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
        // The service or the connection was lost. Any other error would be repeated.
        if (failure.getStatus().getCode() != Status.Code.UNAVAILABLE) {
          throw failure;
        }
        Thread.sleep(Refusal.retryDelay(failure).toMillis());
      }
    }
  }

  /** Closes the current stream. The next message comes from a new stream, which continues at the same position. */
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
    // While the service is unavailable, the channel waits with a backoff instead of the loop in next().
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
      case TELEMETRY, OUTPUT -> {} // they have no sequence
      default -> {
        // Messages of unknown kinds may have no sequence either.
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
