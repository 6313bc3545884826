package dev.troupe.client;

import java.util.OptionalLong;

/**
 * The position of a watch. A stored position resumes the watch in another process.
 *
 * @param after the sequence of the last known event; empty before the first snapshot
 * @param logId the id of the log to which {@code after} belongs; empty before the first snapshot
 */
public record Position(OptionalLong after, String logId) {
  /** The position before the first snapshot: a snapshot comes first. */
  public static final Position UNKNOWN = new Position(OptionalLong.empty(), "");

  /** The position before the first event of a session. */
  public static final Position BEGINNING = new Position(OptionalLong.of(0), "");
}
