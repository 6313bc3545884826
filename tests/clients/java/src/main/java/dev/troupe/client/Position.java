package dev.troupe.client;

import java.util.OptionalLong;

/**
 * How far a watch has come. Whoever keeps it can go on from there in another process.
 *
 * @param after the sequence up to which everything is known; empty before the first snapshot
 * @param logId the log that {@code after} counts in; empty until a snapshot has named it
 */
public record Position(OptionalLong after, String logId) {
  /** Nothing is known yet: a snapshot comes first. */
  public static final Position UNKNOWN = new Position(OptionalLong.empty(), "");

  /** Before the first event of a session. */
  public static final Position BEGINNING = new Position(OptionalLong.of(0), "");
}
